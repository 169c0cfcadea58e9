"""Bytes that mechanisms exchange: each mechanism has its own, between transitions too, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meander.adapt.per_query import PerQuery, place_again
from meander.coordinator.adaptation.mechanism_bytes import CONTROL, COST_SPACE, PLACEMENT, STATE, ExchangedBytes
from meander.coordinator.loop.loop import PlacementLoop
from meander.lang import sql
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded
from meander.model.ids import QueryId
from meander.model.topology.elements import Link
from meander.place.costspace.maintenance import MEASURED_BYTES
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.mechanisms.search.message_counts import Message
from meander.reconfigure.outcome import ReconfigurationOutcome, never_begun
from tests.reconfigure.moving import moving_catalog
from tests.run.harness import SINKS, STREAMS

TEXT = (
    "CREATE QUERY near AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 4 s) INTO one;"
    "CREATE QUERY springs AS SELECT id, count(*) AS n FROM cars GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO two;"
)
NEAR, SPRINGS = QueryId("near"), QueryId("springs")
HANDOVER: list[ChangeEvent] = [LinkRemoved(0, "s0", "e0"), LinkAdded(0, Link("s0", "e1", 1))]


@pytest.fixture
def engine() -> Engine:
    names = ("bottom_up", "relaxation")
    engine = Engine(moving_catalog(4), PerQuery({name: mechanism(name) for name in names}, names[0]))
    engine.run([QueryAdded(0, q) for q in sql(TEXT, STREAMS, SINKS).queries])
    return engine


@pytest.fixture
def exchanged(engine: Engine) -> ExchangedBytes:
    loop: Any = SimpleNamespace(catalog=engine.catalog, engine=engine)
    return ExchangedBytes(cast(PlacementLoop, loop))


def test_placing_counts_for_the_mechanism_that_placed(engine: Engine, exchanged: ExchangedBytes) -> None:
    first = exchanged.read()
    assert set(first) == {NEAR, SPRINGS}
    assert exchanged.by_mechanism["bottom_up"][PLACEMENT] == pytest.approx(sum(first.values()), abs=20)
    report = place_again(engine, SPRINGS, "relaxation")
    again = exchanged.read()
    assert exchanged.by_mechanism["relaxation"][PLACEMENT] == pytest.approx(report.message_bytes, abs=20)
    assert again[SPRINGS] > again.get(NEAR, 0.0)
    assert exchanged.read() == {}, "each byte is counted once"


def test_a_handover_costs_those_that_need_the_cost_space(engine: Engine, exchanged: ExchangedBytes) -> None:
    exchanged.read()
    engine.run(HANDOVER)
    assert exchanged.read().keys() <= {NEAR, SPRINGS}
    assert COST_SPACE not in exchanged.by_mechanism["bottom_up"], "nobody needs the space"
    place_again(engine, SPRINGS, "relaxation")
    exchanged.read()
    before, built = engine.space_bytes, exchanged.by_mechanism["relaxation"][COST_SPACE]
    engine.run([LinkRemoved(0, "s0", "e1"), LinkAdded(0, Link("s0", "e0", 1))])
    read = exchanged.read()
    grown = engine.space_bytes - before
    assert grown > 0
    assert MEASURED_BYTES == Message.LATENCY + Message.COORDINATE
    assert grown % MEASURED_BYTES == 0
    assert exchanged.by_mechanism["relaxation"][COST_SPACE] == built + grown
    assert read[SPRINGS] >= grown
    assert COST_SPACE not in exchanged.by_mechanism["bottom_up"]


def test_reconfigurations_count_for_the_queries_whose_operators_they_touch(
    engine: Engine, exchanged: ExchangedBytes
) -> None:
    exchanged.read()
    plan = engine.catalog.plan
    own = [o for o in plan.serving(NEAR) if o not in plan.serving(SPRINGS)]
    shared = [o for o in plan.serving(NEAR) if o in plan.serving(SPRINGS)]
    change = replace(never_begun(1, ""), reason=None, control_bytes=300, state_bytes=700)
    exchanged.reconfigured([replace(change, operators=tuple(own[:1]))])
    assert exchanged.read() == {NEAR: 1_000.0}
    exchanged.reconfigured([_aborted(replace(change, operators=tuple(shared[:1])))])
    assert exchanged.read() == {NEAR: 500.0, SPRINGS: 500.0}
    assert (exchanged.by_mechanism["bottom_up"][CONTROL], exchanged.by_mechanism["bottom_up"][STATE]) == (600, 1_400)


def _aborted(outcome: ReconfigurationOutcome) -> ReconfigurationOutcome:
    return replace(outcome, reason="out of luck")


def test_what_went_to_both_places_counts_for_the_target(exchanged: ExchangedBytes) -> None:
    exchanged.read()
    exchanged.overlapped(NEAR, "relaxation", 400.0)
    assert exchanged.read() == {NEAR: 400.0}
    assert exchanged.by_mechanism["relaxation"][STATE] == 400
