"""Links of a topology: never more than they can carry, and no capacity exceeded for it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.nova.improvement.bandwidth import respect_links
from meander.place.nova.improvement.links import LinkTraffic, link_loads
from meander.place.nova.place import place
from meander.place.nova.running.joins import Joins
from meander.place.nova.settings import NovaSettings
from tests.place.nova.joins_check import violations
from tests.place.nova.problems import paired

TUPLE_BYTES = 125_000.0
"""So that a tuple per second is a Mbit/s."""


def placed_on_links(seed: int, bandwidth_mbps: float, nodes: int = 16) -> tuple[Joins, Topology]:
    """Joins on a ring with chords; latencies and bandwidths are random."""
    rng = np.random.default_rng(seed)
    problem = paired(nodes, seed, capacity_tps=rng.uniform(60, 250, nodes))
    ends = [(i, (i + 1) % nodes) for i in range(nodes)]
    ends += [(i, int((i + rng.integers(2, nodes - 1)) % nodes)) for i in range(0, nodes, 2)]
    links = {tuple(sorted(e)): rng.uniform(0.7, 1.5) * bandwidth_mbps for e in ends}
    topology = Topology.of(
        [Node(f"n{i}", NodeKind.EDGE, 10) for i in range(nodes)],
        [Link(f"n{a}", f"n{b}", float(rng.uniform(1, 9)), width) for (a, b), width in links.items()],
    )
    return place(problem, NovaSettings(sigma=0.2)), topology


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 500), st.sampled_from([30.0, 80.0, 200.0, 1000.0]))
def test_no_link_carries_more_than_it_can(seed: int, bandwidth_mbps: float) -> None:
    joins, topology = placed_on_links(seed, bandwidth_mbps)
    before = set(joins.unplaced.tolist())
    relief = respect_links(joins, topology, TUPLE_BYTES)
    assert not [load for load in link_loads(joins, topology, TUPLE_BYTES) if load.exceeded]
    assert violations(joins) == []
    assert set(joins.unplaced.tolist()) == before | set(relief.refused)


def test_traffic_that_follows_is_traffic_counted_anew() -> None:
    joins, topology = placed_on_links(3, 60.0)
    traffic = LinkTraffic(joins, topology, TUPLE_BYTES, 0.5)
    rows = joins.rows().tolist()
    for row in rows[::2]:
        traffic.remove(row)
    for row in rows[::2]:
        traffic.add(row)
    fresh = LinkTraffic(joins, topology, TUPLE_BYTES, 0.5)
    assert np.isclose(traffic.excess_mbps, fresh.excess_mbps)
    assert all(np.isclose(traffic.mbps[a], mbps, atol=1e-9) for a, mbps in fresh.mbps.items())


def test_links_that_suffice_change_nothing_and_narrow_ones_move_something() -> None:
    joins, topology = placed_on_links(1, 1e9)
    relief = respect_links(joins, topology, TUPLE_BYTES)
    assert (relief.moved, relief.cut, relief.refused) == (0, 0, [])
    joins, topology = placed_on_links(1, 150.0)
    relief = respect_links(joins, topology, TUPLE_BYTES)
    assert relief.moved
