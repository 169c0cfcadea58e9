"""Who was refused at a door, in the log: each asker and reason at most once a minute, so that nobody can fill it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
EVERY_S = 60.0
MOST = 1_000
LONGEST = 100


class Refusals:
    """From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], float] = {}
        self.count = 0

    def note(self, asker: str, reason: str) -> None:
        key, now = (asker[:LONGEST], reason[: 3 * LONGEST]), self._clock()
        with self._lock:
            self.count += 1
            if now - self._told.get(key, -EVERY_S) < EVERY_S:
                return
            if len(self._told) >= MOST:
                self._told = {k: at for k, at in self._told.items() if now - at < EVERY_S}
            if len(self._told) >= MOST:
                return
            self._told[key] = now
        _log.warning("%r was refused at the door: %s", *key)
