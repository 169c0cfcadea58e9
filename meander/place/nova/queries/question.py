"""From a query to Nova's question and back: pairs of sources that join, capacities of nodes, and the parts that
follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from meander.model.errors import InputError
from meander.model.expressions.tree import Column
from meander.model.ids import NodeId
from meander.model.operators import Map, WindowJoin
from meander.model.streams import Stream
from meander.place.catalog import Catalog
from meander.place.costspace.maintenance import follow
from meander.place.nova.problem import JoinProblem, all_pairs, pairs_by_key
from meander.place.nova.queries.join_parts import JoinPart
from meander.place.nova.queries.shape import JoinShape, Side
from meander.place.nova.queries.split import slots_of
from meander.place.nova.running.joins import Joins

ONLY = "only."
"""Begins a stream's option that says which value of a column each producer has: `only.region: p1=north, p2=south`."""

Pairs = Sequence[tuple[int, int]]
"""The sources that join, by their numbers on the left and on the right."""


def pairs_of_query(shape: JoinShape, streams: Mapping[str, Stream]) -> list[tuple[int, int]]:
    """The join matrix: by a key of which each producer has only one value, if both streams say so; else all pairs."""
    if isinstance(shape.join, WindowJoin):
        for left, right in shape.join.keys:
            known = [_values(side, key, streams) for side, key in ((shape.left, left), (shape.right, right))]
            if known[0] is not None and known[1] is not None:
                rows = pairs_by_key(known[0], known[1])
                if not len(rows[0]):
                    raise InputError(f"no producers of both streams have the same {left!r}; look at {ONLY}{left}")
                return list(zip(rows[0].tolist(), rows[1].tolist(), strict=True))
    rows = all_pairs(*(1 if side.below is not None else len(side.nodes) for side in shape.sides))
    return list(zip(rows[0].tolist(), rows[1].tolist(), strict=True))


def _values(side: Side, key: str, streams: Mapping[str, Stream]) -> list[str] | None:
    """For each producer the value that it has in a column, if the stream says so and the column is only handed on."""
    column = key
    for operator in reversed(side.chain):
        if isinstance(operator, Map):
            made = next(c.expression for c in operator.columns if c.name == column)
            if not isinstance(made, Column):
                return None
            column = made.name
    text = None if side.below is not None else streams[side.source.stream].options.get(ONLY + column)
    if text is None:
        return None
    entries = dict(entry.split("=", 1) for entry in text.replace(",", " ").split() if "=" in entry)
    missing = [n for n in side.nodes if n not in entries]
    if missing:
        raise InputError(
            f"stream {side.source.stream!r}: option '{ONLY}{column}' has no value for node {missing[0]!r}; "
            "write node=value for each of its nodes"
        )
    return [entries[n] for n in side.nodes]


def problem_of_query(catalog: Catalog, shape: JoinShape, pairs: Pairs) -> JoinProblem:
    """Nova's question: nodes are the topology's, capacities what others leave of them."""
    producers = [(side, node) for side, each in enumerate((shape.left, shape.right)) for node in each.nodes]
    return problem_of_sources(catalog, shape, producers, numbered(shape, pairs))


def numbered(shape: JoinShape, pairs: Pairs) -> list[tuple[int, int]]:
    """Pairs of sources that are numbered through, the left side's first."""
    lefts = 1 if shape.left.below is not None else len(shape.left.nodes)
    return [(left, right + lefts) for left, right in pairs]


def problem_of_sources(
    catalog: Catalog,
    shape: JoinShape,
    producers: Sequence[tuple[int, str]],
    ends: Pairs,
    *,
    fits: bool = False,
    derived_tps: Mapping[int, float] = MappingProxyType({}),
) -> JoinProblem:
    """The same for sources by side and node, and pairs of their numbers. With `fits`, the sink can take everything;
    `derived_tps` are the rates of sides that read another join.

    A source whose node is away is where its results are wanted, until it has a place of its own again.
    """
    if catalog.space is None:
        follow(catalog, ())
    assert catalog.space is not None
    topology = catalog.topology
    count = topology.nodes.count
    points = catalog.space.coordinates[:count].copy()
    points[~topology.nodes.alive[:count]] = np.nan
    heights = catalog.space.heights[:count].copy()
    free = topology.nodes.capacity_tps[:count].astype(np.float64) - catalog.ledger.load_tps[:count]
    streams = (shape.left.source.stream, shape.right.source.stream)
    nodes = np.array([topology.known_id(node) for _, node in producers], dtype=np.int32)
    rates = [
        derived_tps[side] if side in derived_tps else catalog.source_rate_tps(streams[side], node)
        for side, node in producers
    ]
    sink = topology.known_id(shape.sink_node)
    if np.isnan(points[sink]).any():
        points[sink], heights[sink], free[sink] = np.nanmean(points, axis=0), 0.0, 0.0
    away = nodes[np.isnan(points[nodes]).any(axis=1)]
    points[away], heights[away], free[away] = points[sink], heights[sink], 0.0
    free[sink] = np.inf if fits else free[sink]
    pairs = np.array(ends, dtype=np.int32).reshape(-1, 2)
    return JoinProblem(
        points, heights, np.maximum(free, 0.0), nodes, np.array(rates), pairs[:, 0].copy(), pairs[:, 1].copy(),
        np.full(len(pairs), sink, dtype=np.int32), names=tuple(topology.name(NodeId(n)) for n in range(count)),
    )  # fmt: skip


def parts_of(joins: Joins) -> list[JoinPart]:
    """The parts of all placed joins."""
    ends = joins.board.joins["ends"]
    return [
        JoinPart(
            int(ends[r.join][0]),
            int(ends[r.join][1]),
            slots_of(r.left, r.left_parts),
            slots_of(r.right, r.right_parts),
            NodeId(r.node),
        )
        for r in joins.replicas()
    ]


def whole_parts(problem: JoinProblem, hosts: Sequence[int]) -> list[JoinPart]:
    """Every join whole at one node: what baselines decide."""
    everything = slots_of(range(1), 1)
    ends = zip(problem.join_left.tolist(), problem.join_right.tolist(), strict=True)
    return [
        JoinPart(left, right, everything, everything, NodeId(h)) for (left, right), h in zip(ends, hosts, strict=True)
    ]
