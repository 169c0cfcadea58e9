"""What every mechanism owes: room and pins kept, connected placements, reasons, the same answer for the same seed."""

import pytest
from hypothesis import given, settings

from meander.model.errors import InputError
from meander.model.ids import OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.mechanisms import MECHANISMS, Mechanism, mechanism
from meander.place.problem import Flow, Need, Problem, Proposal
from tests.place.mechanisms.problems import Sizes, again, chain, line, names, problem_of, problems, used

ALL = pytest.mark.parametrize("kind", MECHANISMS, ids=lambda m: m.name)
WIDENING = pytest.mark.parametrize(
    "kind", [m for m in MECHANISMS if m.name not in ("producer_consumer", "random")], ids=lambda m: m.name
)


def check(problem: Problem, proposal: Proposal) -> None:
    assert set(proposal.nodes) | set(proposal.unplaced) == set(problem.free)
    assert not set(proposal.nodes) & set(proposal.unplaced)
    assert all(proposal.unplaced.values()), "every unplaced operator has a reason"
    topology = problem.topology
    for node, (slots, tps) in used(problem, proposal.nodes).items():
        assert topology.is_alive(node)
        assert slots <= topology.nodes.slots[node]
        assert tps <= topology.nodes.capacity_tps[node]
    taken = {n: (slots, tps) for n, slots, tps, _ in problem.room.node_changes if slots or tps}
    asked = {n: change for n, change in used(problem, proposal.nodes).items() if change != (0, 0.0)}
    assert taken == asked, "exactly what the placement needs was taken"
    for flow in problem.flows:
        if flow.reader in proposal.nodes:
            start = {**problem.pinned, **proposal.nodes}.get(flow.upstream)
            assert start is None or topology.reachable(start, proposal.nodes[flow.reader])
    assert bool(proposal.messages) == bool(proposal.bytes)


@ALL
@given(problem=problems())
def test_room_pins_and_connections_are_kept_with_slots(kind: type[Mechanism], problem: Problem) -> None:
    check(problem, kind().place(problem))


@ALL
@given(problem=problems(Sizes(slots=9, tps=4.5)))
@settings(max_examples=25)
def test_room_pins_and_connections_are_kept_with_tuples(kind: type[Mechanism], problem: Problem) -> None:
    check(problem, kind().place(problem))


@ALL
@given(problem=problems(Sizes(nodes=12, operators=7)))
@settings(max_examples=25)
def test_the_same_problem_has_the_same_answer(kind: type[Mechanism], problem: Problem) -> None:
    first, second = kind().place(again(problem)), kind().place(again(problem))
    assert first == second


@WIDENING
@given(problem=problems(Sizes(slots=99, connected=True)))
@settings(max_examples=25)
def test_everything_is_placed_where_there_is_plenty(kind: type[Mechanism], problem: Problem) -> None:
    """Nodes may have no slots at all, so plenty means a node with room that everything reaches."""
    problem.topology.nodes.slots[0] = 999
    assert kind().place(problem).unplaced == {}


@ALL
def test_without_free_operators_there_is_nothing_to_do_or_say(kind: type[Mechanism]) -> None:
    topology = line([1, 1])
    assert kind().place(chain(topology, "a", "b", [1.0])) == Proposal()


@ALL
def test_no_room_anywhere_is_a_reason(kind: type[Mechanism]) -> None:
    proposal = kind().place(chain(line([0, 0, 0]), "a", "c", [1.0, 1.0, 1.0]))
    assert proposal.nodes == {}
    assert any("no room for 1 slots" in reason for reason in proposal.unplaced.values())


@ALL
def test_a_target_that_no_path_reaches_is_a_reason(kind: type[Mechanism]) -> None:
    topology = line([5, 5, 5])
    topology.remove_link("b", "c")
    proposal = kind().place(chain(topology, "a", "c", [1.0, 1.0]))
    assert proposal.unplaced == {OperatorId(10): "no path leads from a to c"}


@ALL
def test_a_pinned_node_that_is_gone_is_a_reason(kind: type[Mechanism]) -> None:
    topology = line([5, 5, 5])
    problem = chain(topology, "a", "c", [1.0, 1.0])
    topology.remove_node(topology.id("c"))
    assert kind().place(problem).unplaced == {OperatorId(10): "node c, which it leads to, is gone"}


@ALL
def test_one_sink_that_is_cut_off_does_not_stop_the_others(kind: type[Mechanism]) -> None:
    topology = line([5, 5, 5])
    topology.add_node(Node("z", NodeKind.CLOUD, 5))
    start, middle, near, far = (OperatorId(i) for i in (0, 10, 100, 101))
    pinned = {start: topology.id("a"), near: topology.id("c"), far: topology.id("z")}
    flows = (Flow(start, middle, 1, 1.0), Flow(middle, far, 1, 1.0), Flow(middle, near, 1, 1.0))
    proposal = kind().place(problem_of(topology, {middle: Need(1, 0.0)}, pinned, flows))
    if kind.name == "top_down":  # readers come first, and all of them are there
        assert proposal.nodes or proposal.unplaced
    else:
        assert proposal.nodes
        assert not proposal.unplaced


@WIDENING
def test_a_full_path_sends_operators_to_a_side_node(kind: type[Mechanism]) -> None:
    topology = line([0, 0, 0])
    topology.add_node(Node("s", NodeKind.EDGE, 9))
    topology.add_link(Link("b", "s", 1.0))
    assert names(topology, kind().place(chain(topology, "a", "c", [1.0, 1.0, 1.0])).nodes) == "ss"


@ALL
def test_an_operator_that_nobody_reads_is_placed(kind: type[Mechanism]) -> None:
    topology = line([5, 5])
    start, last = OperatorId(0), OperatorId(10)
    flows = (Flow(start, last, 1.0, 1.0),)
    problem = problem_of(topology, {last: Need(1, 0.0)}, {start: topology.id("a")}, flows)
    proposal = kind().place(problem)
    assert set(proposal.nodes) == {last}


@ALL
def test_an_operator_without_neighbours_on_nodes_has_a_reason(kind: type[Mechanism]) -> None:
    problem = problem_of(line([5, 5]), {OperatorId(10): Need(1, 0.0)}, {}, ())
    assert kind().place(problem).unplaced == {OperatorId(10): "no operator it reads from or leads to has a node"}


@ALL
def test_metadata_says_what_it_is_for(kind: type[Mechanism]) -> None:
    assert kind.metadata.summary
    assert mechanism(kind.name).name == kind.name


def test_an_unknown_mechanism_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=r"no mechanism 'bottomup'; known mechanisms: bottom_up"):
        mechanism("bottomup")


@pytest.mark.parametrize("name", ["mopa", "relaxation"])
def test_a_cost_space_is_asked_for(name: str) -> None:
    problem = chain(line([5, 5]), "a", "b", [1.0, 1.0])
    bare = Problem(problem.free, problem.pinned, problem.flows, problem.topology, problem.room)
    with pytest.raises(InputError, match=f"mechanism '{name}' needs a cost space"):
        mechanism(name).place(bare)


def test_a_join_may_run_on_the_way_of_one_input() -> None:
    """A join's inputs that only meet at the sink: operators may still run on one input's way."""
    nodes = [Node(n, NodeKind.EDGE, slots) for n, slots in zip("abmz", (0, 0, 1, 0), strict=True)]
    topology = Topology.of(nodes, [Link("a", "m"), Link("m", "z"), Link("b", "z")])
    left, right, join, sink = (OperatorId(i) for i in (0, 1, 10, 100))
    pinned = {left: topology.id("a"), right: topology.id("b"), sink: topology.id("z")}
    flows = (Flow(left, join, 1, 1.0), Flow(right, join, 1, 1.0), Flow(join, sink, 1, 1.0))
    for kind in MECHANISMS:
        problem = problem_of(topology, {join: Need(1, 0.0)}, pinned, flows)
        if kind.name != "producer_consumer":
            assert names(topology, kind().place(problem).nodes) == "m", kind.name
