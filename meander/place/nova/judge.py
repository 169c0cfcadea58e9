"""The quality of a placement: latencies of tuples from source to sink, against sending them directly; and overload.

A source's latency is its way to a node and on to the sink, averaged over its replicas; the 90th percentile and the mean
over all sources are compared with those of direct transmission, which no placement can beat in a metric space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.running.joins import Joins

Floats = NDArray[np.float64]


class TupleLatencies(Protocol):
    """A table of latencies between nodes: placed joins, or a problem."""

    def latency_ms(self, a: NDArray[np.integer[Any]], b: NDArray[np.integer[Any]]) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Latencies in ms; shares between 0 and 1."""

    p90_ms: float
    mean_ms: float
    direct_p90_ms: float
    direct_mean_ms: float
    overloaded: float
    """Share of the nodes in use that take in more than they can."""
    used: int
    """Nodes that run joins."""
    replicas: int
    unplaced: int
    traffic_tps: float

    @property
    def p90_delta_ms(self) -> float:
        return self.p90_ms - self.direct_p90_ms

    @property
    def mean_delta_ms(self) -> float:
        return self.mean_ms - self.direct_mean_ms


def latencies(joins: Joins, by: TupleLatencies) -> tuple[Floats, Floats]:
    """Per side of each placed join (all lefts, then all rights) its latency through its replicas, and directly."""
    board, rows = joins.board, joins.rows()
    owner, node = board.replicas["join"][rows], board.replicas["node"][rows]
    sinks = board.joins["sink"]
    onward = by.latency_ms(node, sinks[owner])
    count = np.bincount(owner, minlength=len(sinks))
    through, direct = [], []
    placed = np.flatnonzero(joins.placed & (count > 0))
    for side in range(2):
        source = board.sources["node"][board.joins["ends"][:, side]]
        total = np.bincount(owner, by.latency_ms(source[owner], node) + onward, minlength=len(sinks))
        through.append(total[placed] / count[placed])
        direct.append(by.latency_ms(source[placed], sinks[placed]))
    return np.concatenate(through), np.concatenate(direct)


def judge(joins: Joins, by: TupleLatencies | None = None) -> Quality:
    """A verdict by the latencies the joins were placed by, or by others, such as a problem with a measured matrix."""
    through, direct = latencies(joins, joins if by is None else by)
    in_use = np.flatnonzero(joins.board.nodes["load"] > 0)
    over = np.intersect1d(joins.overloaded(), in_use)
    return verdict(
        through, direct, len(over) / max(len(in_use), 1), len(in_use), len(joins.rows()), len(joins.unplaced),
        joins.traffic_tps(),
    )  # fmt: skip


def verdict(
    through: Floats, direct: Floats, overloaded: float, used: int, replicas: int, unplaced: int, traffic: float
) -> Quality:
    if not len(through):
        return Quality(0.0, 0.0, 0.0, 0.0, overloaded, used, replicas, unplaced, traffic)
    return Quality(
        float(np.percentile(through, 90)), float(through.mean()), float(np.percentile(direct, 90)),
        float(direct.mean()), overloaded, used, replicas, unplaced, traffic,
    )  # fmt: skip
