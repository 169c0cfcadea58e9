"""Joins of two streams added to a catalog by Nova and by the baselines, in the place of a mechanism."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.lang.query_files import load_queries
from meander.lang.topology.reader import load
from meander.model.errors import InputError
from meander.model.operators import WindowJoin
from meander.model.placement import violations
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.nova.queries.joined import NAMES, add_joined

EXAMPLES = Path(__file__).parents[4] / "examples"


def ring() -> Catalog:
    world = load(EXAMPLES / "topologies" / "ring.yaml")
    return Catalog(world.topology, dict(world.streams), dict(world.sinks))


@pytest.mark.parametrize("name", NAMES)
def test_trains_join_the_weather_at_nodes_that_are_there(name: str) -> None:
    catalog = ring()
    engine = Engine(catalog, mechanism("bottom_up"))
    query = load_queries(EXAMPLES / "queries" / "trains_in_storm.sql", catalog.streams, catalog.sinks).queries[0]
    wiring = add_joined(catalog, engine.log, query, name)
    assert not engine.run([]).unplaced
    assert violations(catalog.plan, catalog.placement, catalog.topology) == []
    joins = [o for o, r in catalog.plan.operators.items() if isinstance(r.spec, WindowJoin)]
    assert len(joins) == len(wiring.parts) >= 4 * 2
    booked = float(catalog.ledger.load_tps.sum())
    assert booked > 0 if name == "nova" else booked == 0
    with pytest.raises(InputError, match="is running already"):
        add_joined(catalog, engine.log, query, name)


def test_unknown_ways_and_other_queries_are_refused() -> None:
    catalog = ring()
    engine = Engine(catalog, mechanism("bottom_up"))
    slow = load_queries(EXAMPLES / "queries" / "slow_trains.sql", catalog.streams, catalog.sinks).queries[0]
    with pytest.raises(InputError, match="use another mechanism for it"):
        add_joined(catalog, engine.log, slow, "nova")
    with pytest.raises(InputError, match="no way to place a join 'best'"):
        add_joined(catalog, engine.log, slow, "best")
    assert not catalog.plan.operators
