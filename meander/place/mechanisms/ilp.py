"""Integer program: least traffic x latency over all flows, with room on nodes and paths between them as hard limits.

Candidates are the nodes on cheapest paths between the pinned operators. Small questions, which deltas mostly are, are
answered exactly without starting a solver: one operator by trying its candidates, a few by branch and bound over a
dynamic program. HiGHS takes over when that does not end quickly. All three answer the same question.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

import numpy as np

from meander.model.demands import Metric
from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.latencies import FEW, Latencies
from meander.place.mechanisms.search.message_counts import Message, count, count_assignments
from meander.place.mechanisms.search.nearby import nearby
from meander.place.mechanisms.search.one_by_one import Spot, downstream
from meander.place.mechanisms.solvers.exact import Answer, Assignment, assign
from meander.place.mechanisms.solvers.milp import Limits, solve
from meander.place.mechanisms.solvers.objective import cost_at, weight
from meander.place.mechanisms.solvers.packing import packed
from meander.place.mechanisms.solvers.question import (
    FreePart,
    by_goal,
    chosen,
    connect,
    fits_together,
    parts,
    path_nodes,
    question,
)
from meander.place.problem import Problem, Proposal

WORK = 200_000
"""Candidates looked at by branch and bound before HiGHS takes over: about as long as starting HiGHS takes."""
WIDENED = 16
"""Nearby nodes with room that join the candidates when the first ones are full."""


class Ilp(Mechanism):
    """The exact optimum over the candidates. `also` adds nodes that a user allows besides those on paths."""

    name = "ilp"
    metadata = Metadata(
        (Metric.NETWORK_USAGE, Metric.LATENCY), "least traffic x latency along the paths of a delta", leaves_lock=True
    )

    def __init__(self, limits: Limits | None = None, also: Sequence[NodeId] = (), work: int = WORK) -> None:
        self.limits = limits or Limits()
        self.also = tuple(also)
        self.work = work

    def place(self, problem: Problem) -> Proposal:
        if not problem.free:
            return Proposal()
        spent = Proposal()
        latencies = Latencies(problem.topology)
        found = parts(problem)
        also = [n for n in self.also if problem.topology.is_alive(n)]
        candidates = [[*path_nodes(p, latencies), *also] for p in found]
        for part in found if also else ():
            connect(part, also, latencies)
        if len(problem.free) == 1:
            nodes = self._single(problem, candidates[0], latencies)
        else:
            nodes = self._optimum(problem, found, candidates, latencies, spent)
            if not problem.connect_all(nodes):
                nodes = packed(problem, spent)
        count(spent, Message.STATE, sum(map(len, candidates)))
        count(spent, Message.LATENCY, latencies.links)
        for operator, node in nodes.items():
            problem.take(operator, node)
        if len(nodes) < len(problem.free):
            return _with_the_rest(problem, nodes, candidates, spent)
        spent.nodes = nodes
        count_assignments(spent)
        return spent

    @staticmethod
    def _single(problem: Problem, candidates: list[NodeId], latencies: Latencies) -> dict[OperatorId, NodeId]:
        """The best node for one operator, by trying them all."""
        pinned, between = problem.pinned, latencies.between
        (operator,) = problem.free
        if len(candidates) > FEW:
            asked = question(problem, [operator], candidates, latencies)
            ranked = np.argsort(asked.unary[0], kind="stable").tolist()
            nodes = (candidates[c] for c in ranked if asked.unary[0, c] < np.inf)
            return next(({operator: node} for node in nodes if _takes(problem, operator, node)), {})
        starts = [(pinned[f.upstream], weight(f)) for f in problem.inputs[operator]]
        ends = by_goal(problem, problem.outputs[operator])
        costs = []
        for node in dict.fromkeys(candidates):
            cost = sum([w * between(s, node) for s, w in starts]) + sum([w * between(node, e) for e, w in ends])
            if cost < float("inf"):
                costs.append((cost, node))
        costs.sort(key=itemgetter(0))
        return next(({operator: node} for _, node in costs if _takes(problem, operator, node)), {})

    def _optimum(
        self,
        problem: Problem,
        found: list[FreePart],
        candidates: list[list[NodeId]],
        latencies: Latencies,
        spent: Proposal,
    ) -> dict[OperatorId, NodeId]:
        """Every part alone while they do not get into each other's way, otherwise all together.

        Parts that cannot be placed as a whole are left out.
        """
        nodes: dict[OperatorId, NodeId] = {}
        places: dict[OperatorId, list[NodeId]] = {}
        for part, own in zip(found, candidates, strict=True):
            for wide in (False, True):
                tried = [*own, *self._more(problem, part, latencies)] if wide else own
                alone = self._solved(problem, part.operators, [tried] * len(part.operators), latencies, spent)
                if alone is not None:
                    nodes.update(alone)
                    places.update(dict.fromkeys(part.operators, tried))
                    break
        if len(found) > 1 and not fits_together(problem, nodes):
            wider = {
                id(own): [*own, *self._more(problem, part, latencies)]
                for part, own in zip(found, candidates, strict=True)
            }
            operators = [o for o in problem.free if o in nodes]
            lists = [wider.get(id(places[o]), places[o]) for o in operators]
            nodes = self._solved(problem, operators, lists, latencies, spent) or {}
        return {o: nodes[o] for o in problem.free if o in nodes}

    def _solved(
        self,
        problem: Problem,
        operators: list[OperatorId],
        places: list[list[NodeId]],
        latencies: Latencies,
        spent: Proposal,
    ) -> dict[OperatorId, NodeId] | None:
        union = list(dict.fromkeys(n for own in places for n in own))
        if not union:
            return None
        same = all(own is places[0] for own in places)
        asked = question(problem, operators, union, latencies, allowed=None if same else [set(own) for own in places])
        answer = self._answer(asked, spent)
        if not len(answer.choice):
            return None
        nodes = chosen(operators, union, answer)
        return nodes if fits_together(problem, nodes) else None

    def _answer(self, asked: Assignment, spent: Proposal) -> Answer:
        answer = assign(asked, self.work // asked.unary.shape[1])
        if answer.proven:
            return answer
        answer = solve(asked, self.limits, answer.choice)
        if not answer.proven:
            spent.note = f"stopped after {self.limits.time_s:g} s; {gap_of(answer)}"
        return answer

    @staticmethod
    def _more(problem: Problem, part: FreePart, latencies: Latencies) -> list[NodeId]:
        """Nodes with room around a part, for when its own candidates are full."""
        least = min((problem.free[o] for o in part.operators), key=lambda n: (n.slots, n.load_tps))
        found: dict[NodeId, None] = {}
        for start in part.starts[:1] or part.ends[:1]:
            found.update(dict.fromkeys(islice(nearby(problem.room, start, least), WIDENED)))
        connect(part, found, latencies)
        return list(found)


def _takes(problem: Problem, operator: OperatorId, node: NodeId) -> bool:
    """Whether a node has room and its links carry the flows; then they are connected."""
    return problem.fits(operator, node) and problem.connect(operator, node, problem.pinned)


def gap_of(answer: Answer) -> str:
    """The possible distance of the choice from the optimum, in words."""
    if not len(answer.choice):
        return "found no placement"
    share = (answer.cost - answer.bound) / answer.cost if answer.cost > 0 else 0.0
    return f"at most {100 * max(share, 0.0):.2g} % above the optimum"


def _with_the_rest(
    problem: Problem, nodes: dict[OperatorId, NodeId], candidates: list[list[NodeId]], spent: Proposal
) -> Proposal:
    """Places operators that do not fit as a whole: one by one, on the cheapest candidate with room."""
    on_paths = list(dict.fromkeys(n for places in candidates for n in places))

    def cheapest_first(spot: Spot) -> list[NodeId]:
        costs = [(cost_at(problem, spot.operator, n, spot.placed), n) for n in on_paths if spot.connects(n)]
        return [n for _, n in sorted(costs, key=itemgetter(0))]

    proposal = downstream(problem, cheapest_first, given=nodes)
    proposal.messages += spent.messages
    proposal.bytes += spent.bytes
    proposal.note = spent.note
    if not proposal.note and not proposal.unplaced:
        proposal.note = "candidates were full; some operators were placed one by one, not as an optimum"
    return proposal
