"""Refused requests in the log: each client and reason at most once a minute, so that no client can fill it.

Clients without a valid proof count as one, whatever name they give; all others are sites of this fleet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from meander.model.locks import lock

_log = logging.getLogger(__name__)
EVERY_S = 60.0
MOST = 1_000
LONGEST = 300


class Refusals:
    """From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = lock("refusals")
        self._told: dict[tuple[str | None, str], float] = {}
        self.count = 0

    def note(self, peer: str | None, reason: str, *, claimed: str = "", level: int = logging.WARNING) -> None:
        """`peer` is None for a client without a valid proof, which may have `claimed` a name."""
        key, now = (peer, reason[:LONGEST]), self._clock()
        with self._lock:
            self.count += 1
            if now - self._told.get(key, -EVERY_S) < EVERY_S:
                return
            if len(self._told) >= MOST:
                self._told = {k: at for k, at in self._told.items() if now - at < EVERY_S}
            self._told[key] = now
        who = repr(peer) if peer is not None else f"a client that says to be {claimed[:LONGEST]!r}"
        _log.log(level, "%s was refused: %s", who, key[1])
