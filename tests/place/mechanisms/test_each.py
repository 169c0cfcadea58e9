"""What sets each mechanism apart, on a line a - b - c - d and around it."""

from collections import Counter

import numpy as np
import pytest

from meander.model.ids import OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.costspace.build import build
from meander.place.free_capacity import CapacityLedger, Room
from meander.place.mechanisms import mechanism
from meander.place.mechanisms.search.message_counts import Message
from meander.place.problem import Flow, Need, Problem
from tests.place.mechanisms.problems import chain, line, names, problem_of


def where(name: str, slots: list[int], mbps: list[float]) -> str:
    topology = line(slots)
    return names(topology, mechanism(name).place(chain(topology, "a", "d", mbps)).nodes)


def test_bottom_up_fills_nodes_from_the_source() -> None:
    assert where("bottom_up", [1, 2, 1, 9], [1.0] * 6) == "abbcd"


def test_top_down_fills_nodes_from_the_sink() -> None:
    assert where("top_down", [9, 1, 2, 1], [1.0] * 6) == "abccd"


def test_mdcep_keeps_off_producer_and_consumer_while_it_can() -> None:
    topology = Topology.of(
        [Node("a", NodeKind.SENSOR, 9), *(Node(n, NodeKind.EDGE, 1) for n in "bc"), Node("d", NodeKind.CLOUD, 1)],
        [Link(x, y) for x, y in ("ab", "bc", "cd")],
    )
    proposal = mechanism("mdcep").place(chain(topology, "a", "d", [1.0] * 5))
    assert names(topology, proposal.nodes) == "bcda"


def test_mdcep_sends_fewer_bytes_than_mechanisms_that_gather_knowledge() -> None:
    topology = line([9] * 6)
    sent = {
        name: mechanism(name).place(chain(topology, "a", "f", [4.0, 2.0, 1.0])).bytes
        for name in ("mdcep", "ilp", "global_optimal", "relaxation")
    }
    assert min(sent, key=lambda n: sent[n]) == "mdcep"


def test_messages_of_a_walk_are_counted_once() -> None:
    proposal = mechanism("bottom_up").place(chain(line([0, 1, 1]), "a", "c", [1.0, 1.0]))
    assert proposal.messages == 2 * 2 + 2
    assert proposal.bytes == 2 * (Message.ASK + Message.ANSWER) + Message.ASSIGN + Message.ACKNOWLEDGE


def test_producer_consumer_stays_at_the_ends_and_takes_the_cheaper_one() -> None:
    assert where("producer_consumer", [9, 9, 9, 9], [8.0, 1.0]) == "a"
    assert where("producer_consumer", [9, 9, 9, 9], [1.0, 8.0]) == "d"
    assert where("producer_consumer", [0, 9, 9, 9], [8.0, 1.0]) == "d"
    proposal = mechanism("producer_consumer").place(chain(line([0, 9, 9, 0]), "a", "d", [1.0, 1.0]))
    assert proposal.unplaced == {OperatorId(10): "no room for 1 slots and 0 tuples/s on a, d"}


def test_random_is_even_over_nodes_with_room() -> None:
    topology = line([1, 0, 1, 1, 1])
    topology.add_node(Node("z", NodeKind.EDGE, 9))
    counts: Counter[str] = Counter()
    for seed in range(400):
        problem = chain(topology, "a", "e", [1.0, 1.0])
        drawn = Problem(problem.free, problem.pinned, problem.flows, topology, problem.room, seed)
        counts[names(topology, mechanism("random").place(drawn).nodes)] += 1
    assert set(counts) == set("acde")
    assert min(counts.values()) > 60


def test_random_finds_the_one_node_with_room_among_many() -> None:
    topology = line([0, 0])
    for i in range(500):
        topology.add_node(Node(f"full{i}", NodeKind.EDGE, 0))
    topology.add_node(Node("free", NodeKind.EDGE, 1))
    topology.add_link(Link("b", "free"))
    problem = chain(topology, "a", "b", [1.0, 1.0])
    assert names(topology, mechanism("random").place(problem).nodes) == "free"


def star() -> Topology:
    """Three sensors around a hub, far apart, and nodes near the hub."""
    far = {"x": 50, "y": 50, "z": 50, "near": 1, "close": 1}
    return Topology.of(
        [Node(n, NodeKind.EDGE, 9) for n in (*far, "hub")], [Link(n, "hub", ms) for n, ms in far.items()]
    )


def join_problem(topology: Topology, mbps: tuple[float, float, float], ledger: CapacityLedger | None = None) -> Problem:
    left, right, join, sink = (OperatorId(i) for i in (0, 1, 10, 100))
    pinned = {left: topology.id("x"), right: topology.id("y"), sink: topology.id("z")}
    flows = (Flow(left, join, 1, mbps[0]), Flow(right, join, 1, mbps[1]), Flow(join, sink, 1, mbps[2]))
    room = Room(ledger or CapacityLedger(topology))
    return Problem({join: Need(1, 0.0)}, pinned, flows, topology, room, 0, build(topology))


def test_even_traffic_meets_in_the_middle() -> None:
    topology = star()
    for name in ("mopa", "relaxation", "ilp", "global_optimal"):
        found = names(topology, mechanism(name).place(join_problem(topology, (1.0, 1.0, 1.0))).nodes)
        assert found in ("hub", "near", "close"), name


def test_mopa_stays_with_a_heavy_flow_and_relaxation_gives_way() -> None:
    topology = star()
    heavy = (5.0, 2.0, 2.0)
    assert names(topology, mechanism("mopa").place(join_problem(topology, heavy)).nodes) == "x"
    assert names(topology, mechanism("relaxation").place(join_problem(topology, heavy)).nodes) != "x"


def test_relaxation_takes_the_least_loaded_of_the_nearest() -> None:
    topology = star()
    ledger = CapacityLedger(topology)
    for name, used in (("hub", 5), ("near", 1), ("close", 3)):
        ledger.add(topology.id(name), used, 0.0)
    found = mechanism("relaxation").place(join_problem(topology, (1.0, 1.0, 1.0), ledger))
    assert names(topology, found.nodes) == "near"


@pytest.mark.parametrize("name", ["mopa", "relaxation"])
def test_a_full_neighbourhood_sends_operators_further_out(name: str) -> None:
    topology = star()
    for node in ("hub", "near", "close", "x", "y"):
        topology.set_capacity(topology.id(node), slots=0)
    assert names(topology, mechanism(name).place(join_problem(topology, (1.0, 1.0, 1.0))).nodes) == "z"


@pytest.mark.parametrize("name", ["mopa", "relaxation"])
def test_nodes_without_coordinates_fall_back_to_paths(name: str) -> None:
    topology = star()
    problem = join_problem(topology, (1.0, 1.0, 1.0))
    assert problem.space is not None
    for node in list(topology.ids()):
        problem.space.forget(node)
    assert names(topology, mechanism(name).place(problem).nodes) == "hub"


def test_ilp_with_two_parts_that_want_the_same_slot_decides_jointly() -> None:
    """Two operators on separate flows, one slot in the middle: the heavier flow gets it."""
    topology = line([0, 1, 0, 9])
    a, d = topology.id("a"), topology.id("d")
    ops = [OperatorId(i) for i in (0, 1, 10, 11, 100, 101)]
    flows = (
        Flow(ops[0], ops[2], 1, 4.0), Flow(ops[2], ops[4], 1, 1.0),
        Flow(ops[1], ops[3], 1, 8.0), Flow(ops[3], ops[5], 1, 1.0),
    )  # fmt: skip
    pinned = {ops[0]: a, ops[1]: a, ops[4]: d, ops[5]: d}
    problem = problem_of(topology, {ops[2]: Need(1, 0.0), ops[3]: Need(1, 0.0)}, pinned, flows)
    assert names(topology, mechanism("ilp").place(problem).nodes) == "db"


def test_ilp_places_what_it_can_when_one_part_is_cut_off() -> None:
    topology = line([9, 9, 9])
    topology.add_node(Node("z", NodeKind.EDGE, 9))
    ops = [OperatorId(i) for i in (0, 1, 10, 11, 100, 101)]
    flows = tuple(Flow(ops[i], ops[j], 1, 1.0) for i, j in ((0, 2), (2, 4), (1, 3), (3, 5)))
    pinned = {
        ops[0]: topology.id("a"),
        ops[1]: topology.id("a"),
        ops[4]: topology.id("c"),
        ops[5]: topology.id("z"),
    }
    for name in ("ilp", "global_optimal"):
        problem = problem_of(topology, {ops[2]: Need(1, 0.0), ops[3]: Need(1, 0.0)}, pinned, flows)
        proposal = mechanism(name).place(problem)
        assert set(proposal.nodes) == {ops[2]}
        assert proposal.unplaced == {ops[3]: "no path leads from a to z"}


def test_many_sinks_on_few_nodes() -> None:
    topology = line([9] * 5)
    start, shared = OperatorId(0), OperatorId(10)
    sinks = [OperatorId(100 + i) for i in range(300)]
    pinned = {start: topology.id("a"), **{s: topology.id("de"[i % 2]) for i, s in enumerate(sinks)}}
    flows = (Flow(start, shared, 1, 9.0), *(Flow(shared, s, 1, 1.0) for s in sinks))
    for name in ("ilp", "global_optimal"):
        problem = problem_of(topology, {shared: Need(1, 0.0)}, pinned, flows)
        assert names(topology, mechanism(name).place(problem).nodes) in ("d", "e")
    assert np.isfinite(topology.latency_ms(topology.id("a"), topology.id("e")))
