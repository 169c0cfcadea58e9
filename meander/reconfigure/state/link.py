"""An outgoing link: a bounded buffer and a thread that sends, as fast as the link would carry it.

A block leaves when a link of that bandwidth, busy with the earlier blocks, would have carried it. When this process or
the one before it wakes up late, the loss is made up for, so the rate is right for small blocks and on busy machines;
from the first block on, the link never carries more than its bandwidth. Who puts blocks in waits while the buffer is
full: that is the back-pressure.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.wire import WireError

BLOCK_BYTES, MOST_BLOCK_BYTES = 1 << 16, 1 << 20
"""What is passed on at once. A hop adds the time of one block, not of one chunk."""
BLOCK_MS = 1.0
"""Fast links carry larger blocks, up to what they carry in that time: each block costs the same to pass on."""
BUFFER_BYTES = 1 << 20
MADE_UP_S = 0.02
"""How late a block may come and still count as having come in time."""


def block_bytes(hop: Hop) -> int:
    """How large the blocks of a link are.

    >>> [block_bytes(Hop(0.0, mbps)) for mbps in (100.0, 1_000.0, 10_000.0, None)]
    [65536, 125000, 1048576, 1048576]
    """
    if hop.bandwidth_mbps is None:
        return MOST_BLOCK_BYTES
    return int(min(MOST_BLOCK_BYTES, max(BLOCK_BYTES, hop.bandwidth_mbps * BLOCK_MS * 1000 / 8)))


class Pace:
    """When a link of a hop's bandwidth and latency lets blocks out."""

    def __init__(self, hop: Hop) -> None:
        self._hop = hop
        self._free_s: float | None = None

    def leaves_s(self, ready_s: float, size: int) -> float:
        """When a block that was ready then has been carried."""
        free_s = ready_s if self._free_s is None else max(self._free_s, ready_s - MADE_UP_S)
        self._free_s = free_s + self._hop.busy_ms(size) / 1000
        return self._free_s + self._hop.latency_ms / 1000


class PacedLink:
    """Sends blocks over a socket in the order in which they were put in."""

    def __init__(
        self,
        sock: socket.socket,
        hop: Hop,
        *,
        clock_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.sent_bytes = 0
        self.block_bytes = block_bytes(hop)
        self._sock, self._pace = sock, Pace(hop)
        self._clock_s, self._sleep = clock_s, sleep
        flying = (hop.bandwidth_mbps or 0) * hop.latency_ms * 1000 / 8
        self._limit = max(BUFFER_BYTES, 4 * self.block_bytes) + int(2 * flying)
        self._blocks: deque[tuple[float, bytes | memoryview]] = deque()
        self._waiting_bytes = 0
        self._problem: str | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    def put(self, block: bytes | memoryview) -> None:
        """Takes a block; waits while too much waits already. Raises WireError once the link is broken."""
        ready = self._clock_s()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting_bytes < self._limit or self._ended)
            if self._ended:
                raise WireError(self._problem or "the link is closed")
            self._blocks.append((ready, block))
            self._waiting_bytes += len(block)
            self._changed.notify_all()

    @property
    def _ended(self) -> bool:
        return self._closing or self._problem is not None

    def close(self) -> None:
        """Sends what waits, then ends; a broken link just ends."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def abandon(self, why: str) -> None:
        """Ends without sending what waits."""
        with self._changed:
            self._problem = self._problem or why
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._blocks or self._ended)
                if self._problem is not None or not self._blocks:
                    return
                ready, block = self._blocks[0]
            ahead = self._pace.leaves_s(ready, len(block)) - self._clock_s()
            if ahead > 0:
                self._sleep(ahead)
            try:
                self._sock.sendall(block)
            except OSError as problem:
                self.abandon(f"sending broke off: {problem}")
                return
            self.sent_bytes += len(block)
            with self._changed:
                self._blocks.popleft()
                self._waiting_bytes -= len(block)
                self._changed.notify_all()
