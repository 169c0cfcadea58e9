"""Failed logins by the address they come from: the first of a minute are answered and written down, others wait.

A valid token is never kept out: many users may come through one proxy, and one of them may be a stranger.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass

from meander.model.locks import lock

WINDOW_S = 60.0
ANSWERED = 20
"""Failures of one address that are answered as such within a window; others are told to wait."""
WRITTEN = 5
"""Those that are written into the audit log."""
MOST_ADDRESSES = 10_000
OTHERS = "others"


@dataclass(slots=True)
class _Window:
    since: float
    failures: int = 0
    unwritten: int = 0


class FailedLogins:
    """From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = lock("failed logins")
        self._windows: dict[str, _Window] = {}

    def failed(self, address: str) -> int | None:
        """Counts one; gives how many before it were not written down, or None when it is not to be written either."""
        key, now = _network(address), self._clock()
        with self._lock:
            window = self._windows.get(key)
            if window is None and len(self._windows) >= MOST_ADDRESSES:
                self._windows = {k: w for k, w in self._windows.items() if now - w.since < WINDOW_S}
                key = OTHERS if len(self._windows) >= MOST_ADDRESSES else key
                window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = _Window(now)
            elif now - window.since >= WINDOW_S:
                window.since, window.failures = now, 0
            window.failures += 1
            if window.failures > WRITTEN:
                window.unwritten += 1
                return None
            unwritten, window.unwritten = window.unwritten, 0
            return unwritten

    def is_over(self, address: str) -> bool:
        """Whether an address has failed so often that it has to wait."""
        window = self._windows.get(_network(address)) or self._windows.get(OTHERS)
        return window is not None and window.failures > ANSWERED and self._clock() - window.since < WINDOW_S


def _network(address: str) -> str:
    """A client of IPv6 has as many addresses as it likes: its network counts."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(found) if found.version == 4 else str(ipaddress.ip_network((int(found), 64), strict=False))
