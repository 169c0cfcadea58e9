"""The question over all live nodes, from one latency row per node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.model.ids import NodeId, OperatorId
from meander.place.mechanisms.solvers.exact import Assignment
from meander.place.mechanisms.solvers.objective import weight
from meander.place.mechanisms.solvers.question import fitted
from meander.place.problem import Problem


def everywhere(problem: Problem, operators: Sequence[OperatorId]) -> tuple[Assignment, list[NodeId]]:
    """The arrays for these free operators on all nodes that have any room, and those nodes."""
    topology, room, needs = problem.topology, problem.room, [problem.free[o] for o in operators]
    least = min(n.slots for n in needs), min(n.load_tps for n in needs), min(n.memory_mb for n in needs)
    candidates = [n for n in topology.ids() if room.fits(n, *least)]
    columns = np.array(candidates, dtype=np.int64)
    rows = {n: topology.adjacency.latencies_from(n) for n in candidates}
    matrix = np.array([row[columns] for row in rows.values()]).reshape(len(candidates), len(candidates))
    index = {o: i for i, o in enumerate(operators)}
    unary = np.zeros((len(index), len(candidates)))
    edges: list[tuple[int, int]] = []
    weights: list[float] = []
    for flow in problem.flows:
        upstream, reader = index.get(flow.upstream), index.get(flow.reader)
        if upstream is not None and reader is not None:
            edges.append((upstream, reader))
            weights.append(weight(flow))
        elif reader is not None:
            start = problem.pinned[flow.upstream]
            if start not in rows:
                rows[start] = topology.adjacency.latencies_from(start)
            unary[reader] += weight(flow) * rows[start][columns]
        elif upstream is not None:
            goal = problem.pinned[flow.reader]
            unary[upstream] += weight(flow) * np.array([rows[c][goal] for c in candidates])
    return fitted(problem, operators, candidates, unary, matrix, edges, weights), candidates
