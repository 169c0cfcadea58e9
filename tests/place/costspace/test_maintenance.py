"""The cost space is there when a mechanism needs it, and follows the topology."""

from __future__ import annotations

import pytest

from meander.model.events import LinkAdded, LinkRemoved, NodeRemoved, QueryAdded
from meander.model.topology.elements import Link
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.place.worlds import query, world


@pytest.mark.parametrize("name", ["mopa", "relaxation"])
def test_the_space_is_built_when_needed_and_follows_changes(name: str) -> None:
    catalog = world(3, slots=20, bandwidth_mbps=1000)
    engine = Engine(catalog, mechanism(name))
    report = engine.run([QueryAdded(0, query(i, f"q{i}")) for i in range(4)])
    assert not report.unplaced
    space = catalog.space
    assert space is not None
    topology = catalog.topology
    link = next(link for link in topology.links() if link.source == "s0")
    far = next(n for n in ("e0", "e1", "e2", "e3") if n != link.target)
    before = space.coordinates[topology.id("s0")].copy()
    engine.run([LinkRemoved(0, "s0", link.target), LinkAdded(0, Link("s0", far, 50.0))])
    assert catalog.space is space
    assert (space.coordinates[topology.id("s0")] != before).any() or space.heights[topology.id("s0")] > 40
    engine.run([NodeRemoved(0, "s5")])
    assert not space.knows(topology.known_id("s5"))


def test_mechanisms_that_do_not_need_it_do_not_pay_for_it() -> None:
    catalog = world(3)
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, query(1, "q"))])
    assert catalog.space is None
