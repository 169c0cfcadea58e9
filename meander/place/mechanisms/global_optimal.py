"""Global optimum: the least traffic x latency over all operators and all nodes, proven, for graphs small enough."""

from __future__ import annotations

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.ilp import gap_of
from meander.place.mechanisms.search.message_counts import Message, count, count_assignments
from meander.place.mechanisms.search.one_by_one import downstream
from meander.place.mechanisms.solvers.exact import assign
from meander.place.mechanisms.solvers.milp import Limits, solve
from meander.place.mechanisms.solvers.packing import packed
from meander.place.mechanisms.solvers.question import chosen, fits_together, parts
from meander.place.mechanisms.solvers.whole_question import everywhere
from meander.place.problem import Problem, Proposal

MOST_OPERATORS = 64
MOST_NODES = 1_000
MOST_PAIRS = 20_000
WORK = 200_000_000


class GlobalOptimal(Mechanism):
    """Searches all placements. Refuses problems that would take too long, and names the limits."""

    name = "global_optimal"
    metadata = Metadata(
        (Metric.NETWORK_USAGE, Metric.LATENCY),
        "the true optimum of traffic x latency, with knowledge of the whole network; small graphs only",
        most_operators=MOST_OPERATORS,
        leaves_lock=True,
    )

    def __init__(self, limits: Limits | None = None, work: int = WORK) -> None:
        self.limits = limits or Limits(time_s=60.0)
        self.work = work

    def place(self, problem: Problem) -> Proposal:
        proposal = Proposal()
        if not problem.free:
            return proposal
        operators, nodes = len(problem.free), len(problem.topology)
        if operators > MOST_OPERATORS or nodes > MOST_NODES or operators * nodes > MOST_PAIRS:
            reason = (
                f"global_optimal takes at most {MOST_OPERATORS} operators, {MOST_NODES:,} nodes and {MOST_PAIRS:,} "
                f"operators x nodes, not {operators} x {nodes:,}; choose ilp or bottom_up"
            )
            proposal.unplaced = dict.fromkeys(problem.free, reason)
            return proposal
        count(proposal, Message.STATE, nodes)
        count(proposal, Message.LATENCY, len(problem.topology.adjacency))
        anchored = all(part.starts or part.ends for part in parts(problem))
        best = self._best(problem, list(problem.free), proposal) if anchored else None
        if best is not None and not problem.connect_all(best):
            best = packed(problem, proposal) or None
        if best is None:
            return self._piecewise(problem, proposal)
        for operator, node in best.items():
            problem.take(operator, node)
        proposal.nodes = best
        count_assignments(proposal)
        return proposal

    def _best(
        self, problem: Problem, operators: list[OperatorId], proposal: Proposal
    ) -> dict[OperatorId, NodeId] | None:
        asked, candidates = everywhere(problem, operators)
        if not candidates:
            return None
        answer = assign(asked, self.work // len(candidates))
        if not answer.proven:
            answer = solve(asked, self.limits, answer.choice)
        if not answer.proven:
            proposal.note = f"not proven optimal within {self.limits.time_s:g} s; {gap_of(answer)}"
        if not len(answer.choice):
            return None
        nodes = chosen(operators, candidates, answer)
        return nodes if fits_together(problem, nodes) else None

    def _piecewise(self, problem: Problem, spent: Proposal) -> Proposal:
        """Not everything can be placed at once: part by part where a part can be, and the rest near its inputs."""
        nodes: dict[OperatorId, NodeId] = {}
        for part in parts(problem):
            best = self._best(problem, part.operators, spent) if part.starts or part.ends else None
            if best is None or not problem.connect_all(best):
                continue
            for operator, node in best.items():
                problem.take(operator, node)
                nodes[operator] = node
        proposal = downstream(
            problem, lambda spot: [n for n in (*spot.starts, *spot.ends) if spot.connects(n)], given=nodes
        )
        proposal.messages += spent.messages
        proposal.bytes += spent.bytes
        proposal.note = "not everything can be placed at once; what can be was placed part by part"
        return proposal
