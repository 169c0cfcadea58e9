"""The same question as `exact`, as a mixed-integer program for HiGHS: for sizes where branching by hand gives up.

Binary x[i, c] says that operator i runs on candidate c. Each flow between free operators is a unit of flow through the
candidates' network, from where its upstream runs to where its reader runs, at weight x latency per arc. The network
keeps only arcs that no other arcs can replace, so it has about as many arcs as the paths have links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meander.place.mechanisms.solvers.exact import Answer, Assignment, Floats, Ints

if TYPE_CHECKING:
    import highspy  # takes long to load

REPLACED = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """The conditions under which the solver may stop."""

    time_s: float = 10.0
    gap: float = 1e-6
    """Relative distance between the best choice and the proven bound."""


def solve(question: Assignment, limits: Limits, start: Ints | None = None) -> Answer:
    """Solves with HiGHS, from a known choice if there is one."""
    operators, candidates = question.unary.shape
    tails, tips = network(question.latency_ms)
    flows, arcs = len(question.edges), len(tails)
    choices = operators * candidates
    columns = choices + flows * arcs
    forbidden = ~np.isfinite(question.unary)
    forbidden |= question.need_slots[:, None] > question.free_slots
    forbidden |= question.need_tps[:, None] > question.free_tps
    forbidden |= question.need_mb[:, None] > question.free_mb
    scale = _scale(question, forbidden)

    cost = np.zeros(columns)
    cost[:choices] = np.where(forbidden, 0.0, question.unary).ravel()
    arc_ms = question.latency_ms[tails, tips]
    cost[choices:] = (question.weights[:, None] * arc_ms).ravel()
    upper = np.ones(columns)
    upper[:choices][forbidden.ravel()] = 0.0

    grid = np.arange(choices).reshape(operators, candidates)
    rows = Rows()
    rows.add_block(grid, np.ones(grid.shape), np.ones(operators), np.ones(operators))
    for need, free in (
        (question.need_slots, question.free_slots), (question.need_tps, question.free_tps),
        (question.need_mb, question.free_mb),
    ):  # fmt: skip
        limited = np.flatnonzero(np.isfinite(free))
        amount = np.broadcast_to(need.astype(np.float64), (len(limited), operators))
        rows.add_block(grid.T[limited], amount, np.full(len(limited), -np.inf), free[limited].astype(np.float64))
    rows.add_flows(question.edges, grid, tails, tips)

    solver = highs(limits)
    solver.passModel(rows.model(cost * scale, upper, choices))
    if start is not None and len(start):
        chosen = np.zeros(choices)
        chosen[grid[np.arange(operators), start]] = 1.0
        solver.setSolution(choices, np.arange(choices, dtype=np.int32), chosen)
    solver.run()
    return _answer(solver, question, scale, start)


def network(latency_ms: Floats) -> tuple[Ints, Ints]:
    """Arcs between candidates whose shortest paths have the given latencies: those that no detour replaces.

    A detour counts only when both of its halves are shorter than the arc, so that arcs of no latency cannot replace
    each other in a cycle.
    """
    count = len(latency_ms)
    needed = np.isfinite(latency_ms) & ~np.eye(count, dtype=bool)
    for via in range(count):
        into, out = latency_ms[:, via, None], latency_ms[None, via, :]
        shorter = (into > 0) & (out > 0) & (into < latency_ms) & (out < latency_ms)
        needed &= ~(shorter & (into + out <= latency_ms * REPLACED))
    tails, tips = np.nonzero(needed)
    return tails.astype(np.int64), tips.astype(np.int64)


class Rows:
    """Constraints as arrays of entries, added one by one or in blocks. Building them holds Python's lock."""

    def __init__(self) -> None:
        self.count = 0
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        """Row, column and value of each."""
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []

    def add(self, index: NDArray[np.int64], value: Floats, lower: float, upper: float) -> None:
        """One constraint."""
        self.add_block(index[None], value, np.array([lower]), np.array([upper]))

    def add_block(self, columns: Ints, values: Floats, lower: Floats, upper: Floats) -> None:
        """One constraint for each row of columns and values."""
        row = self._rows(lower, upper)
        self.entries.append((np.repeat(row, columns.shape[1]), columns.ravel(), values.ravel()))

    def add_flows(self, edges: Ints, grid: Ints, tails: Ints, tips: Ints) -> None:
        """For each flow and candidate: what leaves less what arrives is where the upstream is less where the reader is.

        A flow's columns, one for each arc, come after the grid, flow by flow.
        """
        flows, candidates, arcs = len(edges), grid.shape[1], len(tails)
        row = self._rows(np.zeros(flows * candidates), np.zeros(flows * candidates)).reshape(flows, candidates)
        column = grid.size + np.arange(flows * arcs).reshape(flows, arcs)
        for rows, columns, value in (
            (row[:, tails], column, 1.0), (row[:, tips], column, -1.0),
            (row, grid[edges[:, 0]], -1.0), (row, grid[edges[:, 1]], 1.0),
        ):  # fmt: skip
            self.entries.append((rows.ravel(), columns.ravel(), np.full(rows.size, value)))

    def _rows(self, lower: Floats, upper: Floats) -> Ints:
        self.lower.append(lower)
        self.upper.append(upper)
        self.count += len(lower)
        return np.arange(self.count - len(lower), self.count)

    def model(self, cost: Floats, upper: Floats, integers: int) -> highspy.HighsLp:
        import highspy
        from scipy.sparse import coo_array

        row, column, value = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = coo_array((value, (row, column)), shape=(self.count, len(cost))).tocsr()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), self.count
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
        lp.row_lower_, lp.row_upper_ = np.concatenate(self.lower), np.concatenate(self.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indices.astype(np.int32), matrix.data
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger] * integers + [kinds.kContinuous] * (len(cost) - integers)
        return lp


def _scale(question: Assignment, forbidden: NDArray[np.bool_]) -> float:
    """Brings costs near one: the solver's tolerances are absolute."""
    finite = np.where(forbidden, 0.0, question.unary)
    reach = question.latency_ms[np.isfinite(question.latency_ms)].max(initial=0.0)
    largest = max(float(finite.max(initial=0.0)), float(question.weights.max(initial=0.0) * reach))
    return 1000.0 / largest if largest > 0 else 1.0


def highs(limits: Limits) -> highspy.Highs:
    import highspy

    solver: highspy.Highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False), ("threads", 1), ("random_seed", 0), ("time_limit", limits.time_s),
        ("mip_rel_gap", limits.gap), ("mip_abs_gap", 1e-9), ("mip_feasibility_tolerance", 1e-9),
    ):  # fmt: skip
        solver.setOptionValue(option, value)
    return solver


def _answer(solver: highspy.Highs, question: Assignment, scale: float, start: Ints | None) -> Answer:
    import highspy

    operators, candidates = question.unary.shape
    status = solver.getModelStatus()
    info = solver.getInfo()
    proven = status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        if start is not None and len(start):
            return Answer(start, cost_of(question, start), 0.0, False)
        return Answer(np.empty(0, dtype=np.int64), np.inf, np.inf if proven else 0.0, proven)
    values = np.array(solver.getSolution().col_value[: operators * candidates])
    choice = values.reshape(operators, candidates).argmax(axis=1).astype(np.int64)
    return Answer(choice, cost_of(question, choice), info.mip_dual_bound / scale, proven)


def cost_of(question: Assignment, choice: Ints) -> float:
    """The objective of a choice."""
    total = float(question.unary[np.arange(len(choice)), choice].sum())
    for (a, b), weight in zip(question.edges.tolist(), question.weights.tolist(), strict=True):
        total += weight * float(question.latency_ms[choice[a], choice[b]])
    return total
