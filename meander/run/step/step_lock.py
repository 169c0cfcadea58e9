"""The lock of a slot: held while a step runs. A waiting thread gets it before the next step, in order of asking."""

from __future__ import annotations

from types import TracebackType

from meander.model.locks import condition, given_back, taken, taking

NAME = "slot step"


class StepLock:
    """A lock that is fair: a slot that takes it again and again does not starve others."""

    def __init__(self) -> None:
        self._changed = condition("step lock turn")
        self._next = self._serving = 0

    def locked(self) -> bool:
        return self._next != self._serving

    def __enter__(self) -> None:
        taking(NAME)
        with self._changed:
            mine = self._next
            self._next += 1
            self._changed.wait_for(lambda: self._serving == mine)
        taken(NAME)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def try_enter(self) -> bool:
        """Enters if no thread is there or waits; says whether it did. To be left with `leave`."""
        with self._changed:
            free = self._next == self._serving
            self._next += free
        if free:
            taken(NAME)
        return free

    def leave(self) -> None:
        given_back(NAME)
        with self._changed:
            self._serving += 1
            self._changed.notify_all()
