"""The times at which a source is polled: when something came, when its next tuple is due, or now and then."""

from __future__ import annotations

from collections.abc import Callable

from meander.run.connectors.base import Announcing, Scheduled, SourceConnector

SELDOM = 10
"""So many intervals pass between polls of a source that says itself when it has something."""


class PollTimes:
    """Of one source. Announcements come from any thread, everything else from one."""

    def __init__(self, source: SourceConnector) -> None:
        self._source = source
        self._schedule = source if isinstance(source, Scheduled) else None
        self._tells = isinstance(source, Scheduled | Announcing)
        self._announced = False
        self._due_ms = 0
        """The time from which a poll may give something, unless something is announced before."""

    def announce(self, arrived: Callable[[], None]) -> None:
        """Lets the source say when something has come, if it can."""
        if isinstance(self._source, Announcing):

            def noted() -> None:
                self._announced = True
                arrived()

            self._source.announce(noted)

    def are_due(self, now_ms: int) -> bool:
        """Whether a poll may give something now, as far as is known."""
        return self._announced or now_ms >= self._due_ms

    def polled(self, now_ms: int) -> None:
        """The source is being polled: whatever comes from here on is announced once more."""
        self._announced, self._due_ms = False, now_ms

    def reset(self) -> None:
        """It is due at once."""
        self._due_ms = 0

    def again(self, now_ms: int, at_ms: int | None, interval_ms: int = 0, *, seldom: bool = False) -> int:
        """The time of the next poll: the one that is given, or by the source itself, and now and then."""
        if now_ms >= self._due_ms:
            self._due_ms = self._next_ms(now_ms, interval_ms, seldom) if at_ms is None else at_ms
        return now_ms if self._announced else self._due_ms

    def _next_ms(self, now_ms: int, interval_ms: int, seldom: bool) -> int:
        due = None if self._schedule is None else self._schedule.next_ms()
        later = now_ms + interval_ms * (SELDOM if self._tells and seldom else 1)
        return later if due is None else min(due, later)
