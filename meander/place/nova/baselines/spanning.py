"""Minimum spanning trees over nodes, and where ways along a tree meet: shared by the tree baselines.

With coordinates, the tree is found among each node's nearest neighbours (and joined up where it falls apart), so it
takes many nodes; with a matrix, it is found among all pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from meander.place.nova.problem import JoinProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEIGHBOURS = 16
LEAST_MS = 1e-9


def spanning_parents(problem: JoinProblem, nodes: Ints, root: int) -> Ints:
    """Per node its parent on the way to the root along the minimum spanning tree of `nodes`; -1 for the root."""
    position = np.full(problem.nodes, -1, dtype=np.int64)
    position[nodes] = np.arange(len(nodes))
    graph = _candidates(problem, nodes)
    forest = minimum_spanning_tree(graph)
    parts, label = connected_components(forest, directed=False)
    if parts > 1:
        forest = _joined_up(problem, nodes, forest, label.astype(np.int64), int(position[root]))
    _, before = breadth_first_order(forest, int(position[root]), directed=False, return_predecessors=True)
    parents = np.full(problem.nodes, -1, dtype=np.int64)
    found = before >= 0
    parents[nodes[found]] = nodes[before[found]]
    return parents


def _candidates(problem: JoinProblem, nodes: Ints) -> csr_array:
    count = len(nodes)
    if problem.matrix_ms.size:
        i, j = np.triu_indices(count, 1)
    else:
        near = np.asarray(cKDTree(problem.points[nodes]).query(problem.points[nodes], k=min(NEIGHBOURS, count))[1])
        i, j = np.repeat(np.arange(count), near.reshape(count, -1).shape[1]), near.ravel()
        i, j = i[i != j], j[i != j]
    latency = np.maximum(problem.latency_ms(nodes[i], nodes[j]), LEAST_MS)
    graph = csr_array(coo_array((latency, (i, j)), shape=(count, count)))
    graph.sum_duplicates()
    return graph


def _joined_up(problem: JoinProblem, nodes: Ints, forest: csr_array, label: Ints, root: int) -> csr_array:
    """Links every part to the root's part by its first node: far apart clusters see each other through the root."""
    first = np.unique(label, return_index=True)[1]
    apart = first[label[first] != label[root]]
    i, j = forest.nonzero()
    i, j = np.concatenate((i, apart)), np.concatenate((j, np.full(len(apart), root)))
    latency = np.maximum(problem.latency_ms(nodes[i], nodes[j]), LEAST_MS)
    return csr_array(coo_array((latency, (i, j)), shape=forest.shape))


def path_up(parents: Ints, node: int) -> list[int]:
    """The way from a node to the root."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(int(parents[path[-1]]))
    return path


def meeting(parents: Ints, left: int, right: int) -> int:
    """The first node that the ways of two nodes to the root have in common."""
    seen = set(path_up(parents, left))
    node = right
    while node not in seen and parents[node] >= 0:
        node = int(parents[node])
    return node
