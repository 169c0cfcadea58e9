"""`ilp` and `global_optimal` against brute force over the same candidates and the same objective."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.model.ids import NodeId, OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.path_cache import Path
from meander.place.mechanisms.global_optimal import GlobalOptimal
from meander.place.mechanisms.ilp import Ilp
from meander.place.mechanisms.search.latencies import Latencies
from meander.place.mechanisms.solvers.exact import Assignment, assign
from meander.place.mechanisms.solvers.milp import Limits, cost_of, network, solve
from meander.place.mechanisms.solvers.objective import cost
from meander.place.mechanisms.solvers.question import parts, path_nodes
from meander.place.problem import Problem
from tests.place.mechanisms.problems import Sizes, again, chain, line, names, problems, used

INF = float("inf")


def brute_force(problem: Problem, candidates: Mapping[OperatorId, Sequence[NodeId]]) -> float:
    """The least cost over all placements with room; infinite when there is none."""
    best = INF
    nodes = problem.topology.nodes
    for choice in product(*(candidates[o] for o in problem.free)):
        placed = dict(zip(problem.free, choice, strict=True))
        if all(
            nodes.alive[n] and s <= nodes.slots[n] and t <= nodes.capacity_tps[n]
            for n, (s, t) in used(problem, placed).items()
        ):
            best = min(best, cost(problem, placed))
    return best


SMALL = Sizes(nodes=5, operators=4, slots=2)
TUPLES = Sizes(nodes=5, operators=4, slots=9, tps=6.0)


@pytest.mark.parametrize("work", [10**9, 0], ids=["branch and bound", "HiGHS"])
@given(problem=problems(SMALL) | problems(TUPLES))
@settings(max_examples=60)
def test_global_optimal_equals_brute_force(work: int, problem: Problem) -> None:
    everywhere = {o: list(problem.topology.ids()) for o in problem.free}
    best = brute_force(problem, everywhere)
    proposal = GlobalOptimal(work=work).place(again(problem))
    if best < INF:
        assert not proposal.unplaced
        assert cost(problem, proposal.nodes) == pytest.approx(best, rel=1e-6, abs=1e-9)
        assert not proposal.note


@pytest.mark.parametrize("work", [10**9, 0], ids=["branch and bound", "HiGHS"])
@given(problem=problems(SMALL) | problems(TUPLES))
@settings(max_examples=60)
def test_ilp_equals_brute_force_over_its_candidates(work: int, problem: Problem) -> None:
    candidates: dict[OperatorId, Sequence[NodeId]] = {}
    for part in parts(problem):
        on_paths = path_nodes(part, Latencies(problem.topology))
        candidates.update(dict.fromkeys(part.operators, on_paths))
    best = brute_force(problem, candidates)
    proposal = Ilp(work=work).place(again(problem))
    if best < INF:
        assert not proposal.unplaced
        found = cost(problem, proposal.nodes)
        widened = any(n not in candidates[o] for o, n in proposal.nodes.items())
        assert found <= best * (1 + 1e-6) + 1e-9
        assert widened or found == pytest.approx(best, rel=1e-6, abs=1e-9)


@given(problem=problems(SMALL))
@settings(max_examples=60)
def test_ilp_with_all_nodes_allowed_is_the_global_optimum(problem: Problem) -> None:
    everywhere = {o: list(problem.topology.ids()) for o in problem.free}
    best = brute_force(problem, everywhere)
    proposal = Ilp(also=list(problem.topology.ids())).place(again(problem))
    if best < INF:
        assert cost(problem, proposal.nodes) == pytest.approx(best, rel=1e-6, abs=1e-9)


@st.composite
def questions(draw: st.DrawFn) -> Assignment:
    """Arrays with cycles, parallel edges, asymmetric latencies and forbidden places."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    operators, places, edges = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(0, 8))
    latency = rng.integers(0, 10, (places, places)).astype(float)
    latency[rng.random((places, places)) < 0.1] = np.inf
    np.fill_diagonal(latency, 0)
    for via in range(places):
        latency = np.minimum(latency, latency[:, via, None] + latency[None, via, :])
    unary = rng.integers(0, 20, (operators, places)).astype(float)
    unary[rng.random(unary.shape) < 0.1] = np.inf
    ends = rng.integers(0, operators, (edges, 2))
    ends = ends[ends[:, 0] < ends[:, 1]].astype(np.int64)
    return Assignment(
        unary,
        latency,
        ends,
        rng.integers(1, 5, len(ends)).astype(float),
        rng.integers(0, 3, operators),
        rng.integers(0, 4, operators) / 2,
        rng.integers(0, 5, places),
        rng.integers(0, 8, places) / 2,
        rng.integers(0, 4, operators) / 2,
        rng.integers(0, 8, places) / 2,
    )


def cheapest(asked: Assignment) -> float:
    operators, places = asked.unary.shape
    best = INF
    for choice in product(range(places), repeat=operators):
        slots, tps, memory = np.zeros(places), np.zeros(places), np.zeros(places)
        np.add.at(slots, list(choice), asked.need_slots)
        np.add.at(tps, list(choice), asked.need_tps)
        np.add.at(memory, list(choice), asked.need_mb)
        fits = (slots <= asked.free_slots).all() and (tps <= asked.free_tps).all()
        if fits and (memory <= asked.free_mb).all():
            best = min(best, cost_of(asked, np.array(choice)))
    return best


@given(asked=questions())
@settings(max_examples=150)
def test_both_solvers_equal_brute_force(asked: Assignment) -> None:
    best = cheapest(asked)
    for answer in (assign(asked, 10**9), solve(asked, Limits())):
        assert answer.proven
        if best == INF:
            assert not len(answer.choice)
        else:
            assert answer.cost == pytest.approx(best)
            assert cost_of(asked, answer.choice) == pytest.approx(best)


@given(asked=questions(), steps=st.integers(0, 6))
@settings(max_examples=60)
def test_giving_up_early_is_admitted_and_the_bound_holds(asked: Assignment, steps: int) -> None:
    best = cheapest(asked)
    answer = assign(asked, steps)
    assert answer.bound <= best + 1e-9 or best == INF
    assert answer.cost >= best - 1e-9
    if answer.proven:
        assert answer.cost == pytest.approx(best) or best == answer.cost == INF


@given(asked=questions())
def test_the_network_of_needed_arcs_keeps_all_latencies(asked: Assignment) -> None:
    latency = asked.latency_ms
    again = np.full(latency.shape, np.inf)
    np.fill_diagonal(again, 0)
    tails, tips = network(latency)
    again[tails, tips] = latency[tails, tips]
    for via in range(len(again)):
        again = np.minimum(again, again[:, via, None] + again[None, via, :])
    np.testing.assert_allclose(again, latency, rtol=1e-6)


def test_a_filter_goes_to_its_source_and_an_expansion_to_its_sink() -> None:
    topology = line([5, 5, 5, 5])
    problem = chain(topology, "a", "d", [8.0, 1.0, 6.0])
    assert names(topology, Ilp().place(again(problem)).nodes) == "ad"
    assert names(topology, GlobalOptimal().place(problem).nodes) == "ad"


def test_a_full_source_keeps_the_operator_next_to_it() -> None:
    topology = line([1, 1, 5, 5])
    assert names(topology, Ilp().place(chain(topology, "a", "d", [8.0, 4.0, 2.0, 1.0])).nodes) == "abc"


def test_too_large_a_problem_is_refused_with_the_limits() -> None:
    problem = chain(line([99] * 3), "a", "c", [1.0] * 66)
    reasons = set(GlobalOptimal().place(problem).unplaced.values())
    assert reasons == {
        "global_optimal takes at most 64 operators, 1,000 nodes and 20,000 operators x nodes, not 65 x 3; "
        "choose ilp or bottom_up"
    }


def test_a_time_limit_is_noted_with_the_gap() -> None:
    rng = np.random.default_rng(3)
    topology = line([2] * 12)
    problem = chain(topology, "a", "l", (rng.integers(1, 9, 25) / 4).tolist())
    proposal = Ilp(Limits(time_s=0.0), work=400).place(problem)
    assert proposal.note.startswith("stopped after 0 s; ")
    assert not proposal.unplaced


@pytest.mark.parametrize("operators", [1, 3])
def test_long_paths_give_the_optimum_without_a_search_per_pair(operators: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty nodes in a row and a side node: latencies along the path are exact."""
    rng = np.random.default_rng(operators)
    topology = line([1] * 20 + [0] * 10 + [1] * 10, ms=3.0)
    start, end = topology.name(NodeId(2)), topology.name(NodeId(37))
    problem = chain(topology, start, end, (rng.integers(1, 9, operators + 1) / 4).tolist())
    searched: list[tuple[NodeId, NodeId]] = []
    search = topology.adjacency.search

    def counted(a: NodeId, b: NodeId, *more: Any) -> Path | None:
        searched.append((a, b))
        return search(a, b, *more)

    monkeypatch.setattr(topology.adjacency, "search", counted)
    proposal = Ilp().place(again(problem))
    assert len(searched) <= 2
    best = GlobalOptimal().place(again(problem))
    assert cost(problem, proposal.nodes) == pytest.approx(cost(problem, best.nodes))


def test_ilp_on_long_paths_uses_nodes_that_a_user_allows() -> None:
    """A join of two long routes: the allowed node beside their meeting point is the only one with room."""
    topology = line([0] * 40, ms=2.0)
    topology.add_node(Node("side", NodeKind.EDGE, 1))
    topology.add_link(Link(topology.name(NodeId(20)), "side", 1.0))
    problem = chain(topology, topology.name(NodeId(0)), topology.name(NodeId(39)), [1.0, 1.0])
    assert names(topology, Ilp(also=[topology.id("side")]).place(problem).nodes) == "side"
