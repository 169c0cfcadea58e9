"""Jobs: state that is to be moved, its source and target, and the progress that every strategy shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from meander.model.ids import FragmentId
from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.manifest import Manifest
from meander.reconfigure.state.source import SourceOptions
from meander.run.store.store import Store

if TYPE_CHECKING:
    from meander.reconfigure.state.replay import ReplayInput


@dataclass(frozen=True)
class Job:
    """One fragment's state on its way to another fragment. Source and target may be the same store."""

    source: Store
    fragment: FragmentId
    target: Store
    into: FragmentId
    transfer: str
    """Names the transfer at the target: chunks of one name take effect once. Another attempt gets another name."""
    keys: Mapping[int, int] | None = None
    """Old state key -> new one; what is not named stays. None moves everything under the same keys."""
    hops: Sequence[Hop] = ()
    options: SourceOptions = field(default_factory=SourceOptions)
    replay: ReplayInput | None = None
    """For the strategy that needs it."""
    after: Manifest | None = None
    """The manifest of the pieces that the target has already of these keys; None if it has none."""


class MoveState(Enum):
    """How far a move is."""

    WAITING = "waiting"
    MOVING = "moving"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (MoveState.DONE, MoveState.CANCELLED, MoveState.FAILED)


class StateMove(Protocol):
    """State under way, however it goes: chunks over hops, or tuples replayed."""

    def start(self) -> None:
        """Begins, with the state of this moment."""

    def poll(self) -> float | None:
        """Does what is due by now; says in how many ms there is more to do, None after the end."""

    def cancel(self) -> bool:
        """Stops and removes what has arrived; False if the state is complete already."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; says whether the state is complete."""

    @property
    def state(self) -> MoveState: ...

    @property
    def done(self) -> bool:
        """Whether the state at the target is complete."""

    @property
    def progress(self) -> float:
        """0 to 1."""

    @property
    def bytes(self) -> int:
        """The bytes sent over each hop."""

    @property
    def seconds(self) -> float:
        """Since the start, until the end."""

    @property
    def error(self) -> str | None:
        """Why it failed."""


class TimedMove:
    """The part of a move that all strategies have: its state, and its time by a clock that is given."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._state = MoveState.WAITING
        self._started_ms = self._ended_ms = 0.0
        self.error: str | None = None

    @property
    def state(self) -> MoveState:
        return self._state

    @property
    def done(self) -> bool:
        return self._state is MoveState.DONE

    @property
    def seconds(self) -> float:
        if self._state is MoveState.WAITING:
            return 0.0
        end = self._ended_ms if self._state.ended else self._clock_ms()
        return (end - self._started_ms) / 1000
