"""Records of what was decided about queries: who is apart, which transition is under way, which streams there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from meander.model.ids import NodeId, OperatorId, QueryId
from meander.run.store.records.record import Record, Row, Upgrade


def _transition(row: Row) -> Row:
    query, data = row
    names = ("source", "target", "nodes", "moves", "also", "apart", "reasons", "moved", "step", "waiting", "held")
    return [query, *(data[n] for n in names), data["arrived"], data["returning"]]


def _groups(row: Row) -> Row:
    return [[[int(operator), group] for operator, group in row[0].items()]]


@dataclass(frozen=True, slots=True)
class QuarantineRecord(Record[None]):
    """Operators that are set apart because they failed, or beside such, with the names of their groups."""

    kind: ClassVar[str] = "quarantine"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (_groups,)
    groups: Mapping[OperatorId, str]

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class TransitionStep:
    """Operators that move together, and the protocol if it is a special one."""

    operators: tuple[OperatorId, ...]
    protocol: str | None


@dataclass(frozen=True, slots=True)
class TransitionRecord(Record[QueryId]):
    """A query on its way from one mechanism to another, and how far it is."""

    kind: ClassVar[str] = "transition"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (_transition,)
    query: QueryId
    source: str
    target: str
    nodes: Mapping[OperatorId, NodeId]
    moves: int
    also: frozenset[QueryId]
    apart: Mapping[OperatorId, str]
    reasons: Mapping[OperatorId, str]
    moved: tuple[OperatorId, ...]
    step: TransitionStep | None
    waiting: tuple[TransitionStep, ...]
    held: Mapping[OperatorId, NodeId]
    """Where operators stay that are to move in a later step."""
    has_arrived: bool
    returning: str | None

    @property
    def key(self) -> QueryId:
        return self.query


@dataclass(frozen=True, slots=True)
class StreamsAndSinksRecord(Record[None]):
    """The streams and sinks of the system, as the coordinator told them."""

    kind: ClassVar[str] = "streams and sinks"
    upgrades: ClassVar[tuple[Upgrade, ...]] = (lambda row: [row[0]["streams"], row[0]["sinks"]],)
    streams: Mapping[str, Any]
    sinks: Mapping[str, Any]

    @property
    def key(self) -> None:
        return None
