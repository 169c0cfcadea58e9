"""The decisions of the loop, as plain records: a transition to start, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from meander.model.ids import NodeId, OperatorId, QueryId


class Trigger(Enum):
    """The reason why the loop planned a query."""

    VIOLATED = "demand violated"
    DEMAND = "demand changed"
    ENVIRONMENT = "environment changed"
    PERIODIC = "periodic"
    TRANSITION = "transition ended"
    ASKED = "asked for"
    SUBMITTED = "submitted"


class DecisionAction(Enum):
    """The action of a decision."""

    BEGIN = "begin"
    SWITCH = "switch"
    KEEP = "keep"
    WAIT = "wait"
    INFEASIBLE = "infeasible"
    QUARANTINE = "quarantine"
    ARRIVED = "arrived"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Transition:
    """A query switches from one mechanism to another; `nodes` is where its operators should run then."""

    query: QueryId
    source: str
    target: str
    nodes: Mapping[OperatorId, NodeId]
    moves: int
    """Operators whose node changes; the others are not to be touched."""
    also: frozenset[QueryId] = frozenset()
    """Queries that share operators with it, and must not change at the same time."""
    protocol: str = ""
    """How operators move; empty for the usual protocol of its executor."""


@dataclass(frozen=True, slots=True)
class TransitionOutcome:
    """The outcome of a transition. When it failed, the old placement is still running.

    The reason says why it failed, or where it differed from the protocol.
    """

    done: bool
    reason: str = ""
    seconds: float = 0.0
    bytes: float = 0.0
    took: Mapping[str, Any] = field(default_factory=dict)
    """Its record: times, bytes and operators, with what was predicted."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the log. All numbers that led to it are kept, by metric or mechanism."""

    at_ms: int
    query: QueryId
    trigger: Trigger
    action: DecisionAction
    mechanism: str
    reason: str
    target: str | None = None
    transition: Transition | None = None
    """To be started; None in a dry run."""
    exploring: bool = False
    dry_run: bool = False
    readings: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    """The share of demands that each mechanism is expected to meet."""
    forecasts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    predicted: Mapping[str, Any] = field(default_factory=dict)
    """The predicted effort of the transition."""
    took: Mapping[str, Any] = field(default_factory=dict)
    """The measured effort of the transition, with the predicted one."""
