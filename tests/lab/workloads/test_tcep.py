"""The five TCEP queries: their size, that every mechanism places them, and what they answer."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lab.workloads import tcep as road
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.operators import Conjunction, Filter, Sequence, Source, WindowAggregate
from meander.model.placement import violations
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.run.oracle.batch import oracle


def test_congestion_detection_has_43_operators() -> None:
    operators = list(road.query("congestion").plan.operators.values())
    assert len(operators) == 43
    kinds = {kind: sum(isinstance(o, kind) for o in operators) for kind in (Source, Conjunction, WindowAggregate)}
    assert kinds == {Source: 18, Conjunction: 16, WindowAggregate: 4}
    assert sum(isinstance(o, Filter) for o in operators) == 2
    assert sum(isinstance(o, Sequence) for o in operators) == 1


@pytest.mark.parametrize("kind", [m.name for m in MECHANISMS])
def test_every_mechanism_places_all_five(kind: str) -> None:
    catalog = Catalog(road.topology(), road.streams(), dict(road.SINKS))
    report = Engine(catalog, mechanism(kind)).run([QueryAdded(0, road.query(name)) for name in road.NAMES])
    assert not report.unplaced
    assert not violations(catalog.plan, catalog.placement, catalog.topology)


def test_an_unknown_query_is_named() -> None:
    with pytest.raises(InputError, match="no TCEP query 'jam'; known TCEP queries"):
        road.query("jam")


def test_traces_repeat_by_their_seed() -> None:
    assert road.traces(20, 3) == road.traces(20, 3)
    assert road.traces(20, 3) != road.traces(20, 4)


@pytest.mark.slow
def test_what_the_queries_answer(spark: SparkSession) -> None:
    """Section 1 is jammed in seconds 3 to 5, section 2 never.

    An average is known when its second ends and meets the density of the next, so seconds 3 and 4 count as jammed. Each
    is followed by every later second of the other section, of which the last to have an average and a density is 10.
    """
    seconds = 12
    inputs = road.traces(seconds, 1, {1: (3, 6)})

    def answers(kind: str) -> list[dict[str, float]]:
        plan = road.query(kind).plan
        used = {o.stream for o in plan.operators.values() if isinstance(o, Source)}
        found = oracle(spark, plan, {name: inputs[name] for name in used}, 2000)
        rows: list[dict[str, float]] = found[road.SINK].to_pylist()
        return rows

    assert len(answers("stream")) == seconds
    assert len(answers("filter")) == 3
    assert len(answers("conjunction")) == seconds
    assert all(0 < row["later_ms"] <= 5000 for row in answers("join"))
    congestion = answers("congestion")
    assert len(congestion) == (10 - 3) + (10 - 4)
    assert all(row["slow_kmh"] < road.SLOW_KMH < road.FREE_KMH < row["free_kmh"] for row in congestion)
