"""Change events: everything that can happen to queries and infrastructure, as plain records with their time."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.demands import Demand
from meander.model.ids import OperatorId, QueryId
from meander.model.plan import Query
from meander.model.topology.elements import Link, Node


@dataclass(frozen=True, slots=True)
class QueryAdded:
    at_ms: int
    query: Query
    mechanism: str = ""
    """The mechanism that is to place it; empty for the usual one."""


@dataclass(frozen=True, slots=True)
class QueryRemoved:
    at_ms: int
    query: QueryId


@dataclass(frozen=True, slots=True)
class NodeAdded:
    at_ms: int
    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node left with all its links: it failed, was switched off, or drove away."""

    at_ms: int
    node: str


@dataclass(frozen=True, slots=True)
class LinkAdded:
    at_ms: int
    link: Link


@dataclass(frozen=True, slots=True)
class LinkRemoved:
    """A link was cut, both ways unless `directed`."""

    at_ms: int
    source: str
    target: str
    directed: bool = False


@dataclass(frozen=True, slots=True)
class RateChanged:
    """One producer of a stream (or, without a node, each of them) now emits at another rate."""

    at_ms: int
    stream: str
    rate_tps: float
    node: str | None = None


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    at_ms: int
    node: str
    slots: int | None = None
    capacity_tps: float | None = None
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class PlacementChanged:
    """An operator of a query must run on this node from now on (by its number in the global query plan).

    Without a node it need not run anywhere in particular any more: its query's mechanism places it again.
    """

    at_ms: int
    operator: OperatorId
    node: str | None = None


@dataclass(frozen=True, slots=True)
class DemandChanged:
    at_ms: int
    query: QueryId
    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class JoinMatrixChanged:
    """From now on these producers of a query's two streams join, each pair by its left and its right node."""

    at_ms: int
    query: QueryId
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MechanismChanged:
    """From now on Nova places a query, or another mechanism one that Nova has placed so far."""

    at_ms: int
    query: QueryId
    mechanism: str


TopologyEvent = NodeAdded | NodeRemoved | LinkAdded | LinkRemoved | CapacityChanged
ChangeEvent = (
    QueryAdded
    | QueryRemoved
    | NodeAdded
    | NodeRemoved
    | LinkAdded
    | LinkRemoved
    | RateChanged
    | CapacityChanged
    | PlacementChanged
    | DemandChanged
    | JoinMatrixChanged
    | MechanismChanged
)
