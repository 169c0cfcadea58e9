"""Packs operators onto nodes and their flows onto links at once: complete where other mechanisms are greedy.

A mixed-integer program over a part of the network (all of it when it is small). Binary x[i, n] says that operator i
runs on node n. Every flow is a unit that enters the network where its upstream runs and leaves it where its reader
runs; a link that could become full carries a flow as a whole or not at all. So room on nodes, memory and bandwidth are
limits of one question, and any fitting solution is found. It is the last resort of all mechanisms, and takes the time
of a solver.

Operators that wait may be left out when not everything fits; operators that run may not. In this order: as many
operators as possible run, as few as possible move, traffic x latency is least.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from meander.model.ids import NodeId, OperatorId
from meander.model.topology.path_cache import Path
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.message_counts import Message, count, count_assignments
from meander.place.mechanisms.search.nearby import nearby
from meander.place.mechanisms.solvers.milp import Limits, Rows, highs
from meander.place.mechanisms.solvers.objective import weight
from meander.place.problem import Flow, Need, Problem, Proposal

MOST_COLUMNS = 40_000
"""Beyond this size only a part of the network is looked at."""
FEWEST_NODES, MOST_NODES = 16, 400
MOST_BRANCHES = 2_000
"""Sub-problems after which the solver stops. A number, not a time, so that the same question has the same answer."""
NEARBY = 8
"""Nodes with room around each pinned operator that are candidates in a large network."""
MOST_ANCHORS = 64
LIMITS = Limits(time_s=20.0, gap=1e-4)
PRESENT = 1e-6


class Packing(Mechanism):
    """Finds a placement whenever there is one, within its limits; prefers to leave operators where they are.

    An operator may stay on its node although the mechanism would not choose it now.
    """

    name = "packing"
    metadata = Metadata(
        (), "whatever fits, with the fewest moves; the last resort of the other mechanisms", routes_all=True
    )

    def __init__(self, instead_of: Mechanism | None = None) -> None:
        self.instead_of = instead_of

    def place(self, problem: Problem) -> Proposal:
        proposal = Proposal()
        only = self.instead_of.allowed(problem) if self.instead_of else {}
        only = {o: nodes | {problem.former[o]} if o in problem.former else nodes for o, nodes in only.items()}
        nodes = _solved(problem, proposal, only, stay=True)
        for operator in problem.free:
            if operator in nodes:
                problem.take(operator, nodes[operator])
            else:
                proposal.unplaced[operator] = "no way was found to fit it in beside everything that runs"
        proposal.nodes = nodes
        count_assignments(proposal)
        return proposal


def packed(problem: Problem, spent: Proposal) -> dict[OperatorId, NodeId]:
    """Nodes for all free operators at least traffic x latency, with their flows connected; empty if there are none."""
    return _solved(problem, spent, {}, stay=False)


def _solved(
    problem: Problem, spent: Proposal, only: Mapping[OperatorId, frozenset[NodeId]], *, stay: bool
) -> dict[OperatorId, NodeId]:
    network = _network(problem)
    count(spent, Message.STATE, len(network.nodes))
    count(spent, Message.LATENCY, len(network.arcs))
    program = _Program(problem, network, only, stay=stay)
    values = program.solution()
    if values is None:
        return {}
    nodes, routes = program.read(values)
    if not _fits(problem, nodes, routes):
        return {}
    for flow in problem.flows:
        path = routes.get((flow.upstream, flow.reader))
        if path is not None:
            problem.routes[flow.upstream, flow.reader] = path
            problem.room.take_traffic(path.arcs, flow.mbps)
    return nodes


def _fits(problem: Problem, nodes: dict[OperatorId, NodeId], routes: dict[tuple[OperatorId, OperatorId], Path]) -> bool:
    """Does not trust the solver's arithmetic."""
    trial = problem.room.copy()
    for operator, node in nodes.items():
        need = problem.free[operator]
        if not trial.fits(node, need.slots, need.load_tps, need.memory_mb):
            return False
        trial.take(node, need.slots, need.load_tps, need.memory_mb)
    for flow in problem.flows:
        path = routes.get((flow.upstream, flow.reader))
        if path is not None:
            if not trial.carries(path.arcs, flow.mbps):
                return False
            trial.take_traffic(path.arcs, flow.mbps)
    return True


# -------------------------------------------------------------------- the part of the network that is looked at


@dataclass(slots=True)
class _Network:
    nodes: list[NodeId]
    arcs: list[int]
    index: dict[NodeId, int] = field(init=False)

    def __post_init__(self) -> None:
        self.index = {n: i for i, n in enumerate(self.nodes)}


def _network(problem: Problem) -> _Network:
    topology = problem.topology
    most = MOST_COLUMNS // max(len(problem.free) + 4 * len(problem.flows), 1)
    most = min(max(most, FEWEST_NODES), MOST_NODES)
    near = topology.ids() if len(topology) <= most else islice(dict.fromkeys(_around(problem)), most)
    nodes = list(near)
    inside = set(nodes)
    arcs = [a for n in nodes for a in topology.adjacency.leaving(n) if NodeId(int(topology.arcs.tip[a])) in inside]
    return _Network(nodes, arcs)


def _around(problem: Problem) -> Iterable[NodeId]:
    """Nodes that matter, most important first: of pinned operators, on the paths between them, and those with room."""
    topology, room = problem.topology, problem.room
    anchors = [n for n in dict.fromkeys(problem.pinned.values()) if topology.is_alive(n)][:MOST_ANCHORS]
    yield from anchors
    yield from problem.former.values()
    for start in anchors:
        for goal in anchors:
            path = topology.path(start, goal)
            yield from path.nodes if path else ()
    least = (
        Need(
            min(n.slots for n in problem.free.values()),
            min(n.load_tps for n in problem.free.values()),
            min(n.memory_mb for n in problem.free.values()),
        )
        if problem.free
        else Need(0, 0.0)
    )
    for start in anchors:
        for node in islice(nearby(room, start, least), NEARBY):
            for path in (topology.path(start, node), topology.path(node, start)):
                yield from path.nodes if path else ()


# -------------------------------------------------------------------- the program


class _Program:
    """Columns and rows. A term is a column with a coefficient; a constant stands for a certain value."""

    def __init__(
        self, problem: Problem, network: _Network, only: Mapping[OperatorId, frozenset[NodeId]], *, stay: bool
    ) -> None:
        self.problem, self.network, self.only, self.stay = problem, network, only, stay
        self.cost: list[float] = []
        self.whole: list[bool] = []
        self.rows = Rows()
        total = sum(f.mbps for f in problem.flows)
        self.thin = {a: max(left, 0.0) for a in network.arcs if (left := problem.room.free_mbps(a)) < total}
        self.runs: dict[OperatorId, int | None] = {}
        """Whether an operator runs: a column, or None when it must."""
        self.place: dict[OperatorId, dict[NodeId, int]] = {}
        self.route: dict[Flow, dict[int, int]] = {}
        self.impossible = False
        self._operators()
        self._capacities()
        self._flows()

    def _column(self, cost: float, *, whole: bool) -> int:
        self.cost.append(cost)
        self.whole.append(whole)
        return len(self.cost) - 1

    def _row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        if terms:
            columns, factors = zip(*terms, strict=True)
            self.rows.add(np.array(columns, dtype=np.int64), np.array(factors, dtype=np.float64), lower, upper)
        elif not lower <= 0.0 <= upper:
            self.impossible = True

    def _operators(self) -> None:
        problem, network = self.problem, self.network
        reward = -float(len(problem.free) + 1)
        for operator in (*problem.pinned, *problem.free):
            optional = self.stay and operator in problem.waiting
            self.runs[operator] = self._column(reward, whole=True) if optional else None
        for operator, need in problem.free.items():
            former = problem.former.get(operator) if self.stay else None
            only = self.only.get(operator)
            places = {
                n: self._column(float(former is not None and n != former), whole=True)
                for n in network.nodes
                if (only is None or n in only) and problem.room.fits(n, need.slots, need.load_tps, need.memory_mb)
            }
            self.place[operator] = places
            self._balance([(c, 1.0) for c in places.values()], operator)
            readers = [f.reader for f in problem.outputs[operator]]
            own = self.runs[operator]
            if own is not None and readers and all(self.runs[r] is not None for r in readers):
                some = [(c, -1.0) for r in readers if (c := self.runs[r]) is not None]
                self._row([(own, 1.0), *some], -np.inf, 0.0)

    def _balance(self, terms: list[tuple[int, float]], operator: OperatorId) -> None:
        """The terms add up to one if the operator runs, and to zero if it does not."""
        runs = self.runs[operator]
        if runs is None:
            self._row(terms, 1.0, 1.0)
        else:
            self._row([*terms, (runs, -1.0)], 0.0, 0.0)

    def _capacities(self) -> None:
        problem = self.problem
        used: dict[NodeId, list[tuple[int, Need]]] = {}
        for operator, places in self.place.items():
            for node, column in places.items():
                used.setdefault(node, []).append((column, problem.free[operator]))
        room = problem.room
        for node, takers in used.items():
            self._row([(c, float(n.slots)) for c, n in takers], -np.inf, float(room.free_slots(node)))
            for left, amounts in (
                (room.free_tps(node), [(c, n.load_tps) for c, n in takers]),
                (room.free_mb(node), [(c, n.memory_mb) for c, n in takers]),
            ):
                if left < sum(amount for _, amount in amounts):
                    self._row(amounts, -np.inf, left)

    def _flows(self) -> None:
        problem, topology = self.problem, self.problem.topology
        latency = topology.arcs.latency_ms
        scale = self._scale()
        carried: dict[int, list[tuple[int, float]]] = {a: [] for a in self.thin}
        for flow in problem.flows:
            columns = self.route[flow] = {}
            for arc in self.network.arcs:
                left = self.thin.get(arc)
                if left is not None and flow.mbps > left:
                    continue
                column = self._column(scale * weight(flow) * float(latency[arc]), whole=left is not None)
                columns[arc] = column
                if left is not None:
                    carried[arc].append((column, flow.mbps))
            self._conserve(flow, columns)
        for arc, terms in carried.items():
            if sum(amount for _, amount in terms) > self.thin[arc]:
                self._row(terms, -np.inf, self.thin[arc])

    def _scale(self) -> float:
        """Makes all traffic x latency together count less than one move."""
        latency = self.problem.topology.arcs.latency_ms
        longest = sum(float(latency[a]) for a in self.network.arcs)
        return 0.5 / max(longest * sum(weight(f) for f in self.problem.flows), 1e-12)

    def _conserve(self, flow: Flow, columns: dict[int, int]) -> None:
        """Adds conservation of flow: a node sends on all that enters it, except where the upstream puts the flow in and
        the reader takes it out.

        A reader that waits runs only if its input does; beside one that runs anyway, the upstream decides.
        """
        upstream, reader = flow.upstream, flow.reader
        by_reader = self.runs[reader] is not None
        if by_reader and (above := self.runs[upstream]) is not None:
            below = self.runs[reader]
            assert below is not None
            self._row([(below, 1.0), (above, -1.0)], -np.inf, 0.0)
        decides = reader if by_reader else upstream
        supply = self._ends(upstream, decides)
        demand = self._ends(reader, decides)
        topology = self.problem.topology
        balance: list[list[tuple[int, float]]] = [[] for _ in self.network.nodes]
        certain = [0.0] * len(balance)
        for arc, column in columns.items():
            balance[self.network.index[NodeId(int(topology.arcs.tail[arc]))]].append((column, 1.0))
            balance[self.network.index[NodeId(int(topology.arcs.tip[arc]))]].append((column, -1.0))
        for ends, sign in ((supply, -1.0), (demand, 1.0)):
            for node, end in ends.items():
                at = self.network.index.get(node)
                if at is None:
                    self.impossible = True
                elif end is None:
                    certain[at] -= sign
                else:
                    balance[at].append((end, sign))
        for terms, constant in zip(balance, certain, strict=True):
            if terms or constant:
                self._row(_merged(terms), constant, constant)

    def _ends(self, operator: OperatorId, decides: OperatorId) -> dict[NodeId, int | None]:
        """By node, whether the flow begins or ends there: a column, or None for certain."""
        node = self.problem.pinned.get(operator)
        if node is not None:
            return {node: self.runs[decides]}
        places = self.place[operator]
        if operator == decides or self.runs[decides] is None:
            return dict(places)
        ends: dict[NodeId, int | None] = {}
        for where, column in places.items():
            end = ends[where] = self._column(0.0, whole=False)
            self._row([(end, 1.0), (column, -1.0)], -np.inf, 0.0)
        self._balance([(e, 1.0) for e in ends.values() if e is not None], decides)
        return ends

    def solution(self) -> list[float] | None:
        """A value per column, or None when nothing fits or nothing was found in time."""
        if self.impossible or not self.cost:
            return None if self.impossible else []
        import highspy

        solver = highs(LIMITS)
        solver.setOptionValue("mip_max_nodes", MOST_BRANCHES)
        model = self.rows.model(np.array(self.cost), np.ones(len(self.cost)), 0)
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.whole]
        solver.passModel(model)
        solver.run()
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        return list(solver.getSolution().col_value)

    def read(self, values: list[float]) -> tuple[dict[OperatorId, NodeId], dict[tuple[OperatorId, OperatorId], Path]]:
        """The solver's values as nodes and routes."""
        nodes = {
            operator: node
            for operator, places in self.place.items()
            for node, column in places.items()
            if values[column] > 0.5
        }
        where = {**self.problem.pinned, **nodes}
        routes: dict[tuple[OperatorId, OperatorId], Path] = {}
        for flow, columns in self.route.items():
            start, goal = where.get(flow.upstream), where.get(flow.reader)
            if start is None or goal is None or start == goal:
                continue
            path = self._path(start, goal, [a for a, column in columns.items() if values[column] > PRESENT])
            if path is not None:
                routes[flow.upstream, flow.reader] = path
        return nodes, routes

    def _path(self, start: NodeId, goal: NodeId, arcs: list[int]) -> Path | None:
        """The cheapest path over the arcs that the solver chose; there are several only where links are wide."""
        columns = self.problem.topology.arcs
        leaving: dict[NodeId, list[int]] = {}
        for arc in arcs:
            leaving.setdefault(NodeId(int(columns.tail[arc])), []).append(arc)
        queue: list[tuple[float, tuple[NodeId, ...], tuple[int, ...]]] = [(0.0, (start,), ())]
        done: set[NodeId] = set()
        while queue:
            latency, nodes, taken = heapq.heappop(queue)
            if nodes[-1] == goal:
                return Path(nodes, taken, latency)
            if nodes[-1] in done:
                continue
            done.add(nodes[-1])
            for arc in leaving.get(nodes[-1], ()):
                tip = NodeId(int(columns.tip[arc]))
                heapq.heappush(queue, (latency + float(columns.latency_ms[arc]), (*nodes, tip), (*taken, arc)))
        return None


def _merged(terms: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Terms of one column added up."""
    total: dict[int, float] = {}
    for column, factor in terms:
        total[column] = total.get(column, 0.0) + factor
    return [(c, f) for c, f in total.items() if f]
