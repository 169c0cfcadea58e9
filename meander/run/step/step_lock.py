"""The lock of a slot: held while a step runs. A waiting thread gets it before the next step, in order of asking."""

from __future__ import annotations

import threading
from types import TracebackType


class StepLock:
    """A lock that is fair: a slot that takes it again and again does not starve others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = self._serving = 0

    def locked(self) -> bool:
        return self._next != self._serving

    def __enter__(self) -> None:
        with self._changed:
            mine = self._next
            self._next += 1
            self._changed.wait_for(lambda: self._serving == mine)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def try_enter(self) -> bool:
        """Enters if the lock is free and no thread waits; returns whether it did. To be left with `leave`."""
        with self._changed:
            free = self._next == self._serving
            self._next += free
            return free

    def leave(self) -> None:
        with self._changed:
            self._serving += 1
            self._changed.notify_all()
