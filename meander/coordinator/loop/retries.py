"""The pace of retries: changes that would fail again at once are tried less and less often."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_DOUBLINGS = 1.0, 30.0, 6


class RetryPace:
    """One pause that doubles with every failure in a row."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._not_before = 0.0

    def put_off(self) -> None:
        """A change failed that would fail again at once."""
        self._failures += 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures - 1, MOST_DOUBLINGS))
        self._not_before = self._clock() + pause_s

    def succeed(self) -> None:
        self._failures, self._not_before = 0, 0.0

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._not_before
