"""The search for nodes with room nearby, against sorting all nodes by latency."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meander.model.ids import NodeId
from meander.model.topology.graph import Topology
from meander.place.free_capacity import CapacityLedger, Room
from meander.place.mechanisms.search.nearby import nearby
from meander.place.problem import Need
from tests.place.mechanisms.problems import Sizes, line, topologies


@given(topologies(Sizes(nodes=30, slots=3)), st.integers(0, 99), st.integers(0, 2))
def test_nodes_with_room_come_by_latency(topology: Topology, start: int, slots: int) -> None:
    node = NodeId(start % topology.nodes.count)
    room = Room(CapacityLedger(topology))
    found = list(nearby(room, node, Need(slots, 1.0)))
    row = topology.adjacency.latencies_from(node)
    alive = topology.nodes.alive[: topology.nodes.count]
    wanted = np.flatnonzero(alive & np.isfinite(row) & (topology.nodes.slots[: topology.nodes.count] >= slots))
    assert sorted(found) == (wanted.tolist() if alive[node] else [])
    assert [row[n] for n in found] == sorted(row[n] for n in found)


def test_what_this_view_took_and_gave_back_counts() -> None:
    topology = line([1, 1, 1])
    ledger = CapacityLedger(topology)
    a, b, c = topology.ids()
    ledger.add(c, 1, 0.0)
    room = Room(ledger)
    room.take(a, 1, 0.0)
    assert list(nearby(room, a, Need(1, 0.0))) == [b]
    room.take(c, -1, 0.0)
    assert list(nearby(room, a, Need(1, 0.0))) == [b, c]


def test_a_directed_search_goes_against_the_arcs() -> None:
    topology = line([1, 1, 1])
    topology.remove_link("a", "b", directed=True)
    a, b, c = topology.ids()
    room = Room(CapacityLedger(topology))
    assert list(nearby(room, a, Need(1, 0.0))) == [a]
    assert list(nearby(room, a, Need(1, 0.0), upstream=True)) == [a, b, c]
