"""The connections of the HTTP server: a request has to be sent within a time, and idle ones give way to new ones.

A client that says nothing, or sends a byte a second, would otherwise keep its place for ever; ten
thousand of them would keep everybody out.
"""

from __future__ import annotations

import asyncio
import resource
from heapq import nsmallest
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0
"""The time from the first byte of a request to its last one, and from a connection to its first request."""
IDLE, UNFINISHED = "IDLE", ("IDLE", "SEND_BODY")
"""States of a client, as h11 calls them: before or within a header, and within a body."""
MOST = 8_000
SHARE = 50
"""Of all connections, the part of idle ones that give way at the same time."""
SPARE_FILES = 512
"""Open files that are left for everything else."""


def most_connections() -> int:
    """As many as there may be, with what this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(MOST, soft - SPARE_FILES)) if soft != resource.RLIM_INFINITY else MOST


class BoundedConnection(H11Protocol):
    """One connection."""

    most = most_connections()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self.most:
            self._let_idle_go()
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if repr(self.conn.their_state) in UNFINISHED and not self._is_answering:
            self._wait()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return not self._is_answering

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._too_late)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if repr(self.conn.their_state) == IDLE and not self.conn.trailing_data[0] and self.cycle is not None:
            return  # between two requests: the server's own time for that counts
        self.transport.abort()

    def _let_idle_go(self) -> None:
        """Ends the connections that have been idle longest: several, so that they need not be looked for each time. If
        all are answered, the new one is one too many."""
        idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.is_idle]
        for connection in nsmallest(max(1, self.most // SHARE), idle, key=lambda c: c.since):
            connection.transport.abort()
