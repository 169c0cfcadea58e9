"""An outgoing link: its rate, its latency, and its bounded buffer."""

from __future__ import annotations

import math
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.link import MADE_UP_S, MOST_BLOCK_BYTES, Pace, PacedLink
from meander.reconfigure.state.wire import SOCKET_BUFFER_BYTES, WireError, tuned


@pytest.mark.parametrize("size", [1, 100, 65_536])
def test_blocks_of_any_size_leave_at_the_rate_of_the_link(size: int) -> None:
    pace = Pace(Hop(5.0, 8.0))  # a byte per microsecond
    leaves = [pace.leaves_s(0.0, size) for _ in range(10)]
    assert leaves == pytest.approx([(n + 1) * size / 1e6 + 0.005 for n in range(10)])
    assert pace.leaves_s(100.0, size) == pytest.approx(100 - MADE_UP_S + size / 1e6 + 0.005)


def test_a_link_without_limit_takes_no_time() -> None:
    assert Hop(2.0, math.inf) == Hop(2.0)
    assert Pace(Hop(2.0, math.inf)).leaves_s(1.0, 10**9) == pytest.approx(1.002)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 100_000)), min_size=1))
def test_a_link_never_carries_more_than_its_bandwidth(blocks: list[tuple[float, int]]) -> None:
    pace, now = Pace(Hop(0.0, 8.0)), 50.0
    first = now + blocks[0][0]
    total = 0
    for gap, size in blocks:
        now, total = now + gap, total + size
        assert pace.leaves_s(now, size) >= first + total / 1e6 - 1e-9


def test_a_late_wake_up_is_made_up_for_while_blocks_wait() -> None:
    now = [0.0]
    naps: list[float] = []

    def oversleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds + 0.3

    here, there = socket.socketpair()
    link = PacedLink(here, Hop(0, 8.0), clock_s=lambda: now[0], sleep=oversleep)
    for _ in range(4):
        link.put(bytes(10_000))
    link.close()
    assert link.sent_bytes == 40_000
    assert naps[0] == pytest.approx(0.01)
    assert len(naps) <= 2
    there.close()


def test_who_puts_in_waits_while_nobody_reads_and_hears_when_the_link_breaks() -> None:
    here, there = socket.socketpair()
    tuned_pair(here, there)
    link = PacedLink(here, Hop())
    accepted, ended = [0], threading.Event()

    def fill() -> None:
        try:
            while True:
                link.put(bytes(65_536))
                accepted[0] += 65_536
        except WireError:
            ended.set()

    threading.Thread(target=fill, daemon=True).start()
    assert not ended.wait(0.2)
    seen = accepted[0]
    assert 0 < seen <= 4 * MOST_BLOCK_BYTES + 6 * SOCKET_BUFFER_BYTES
    there.close()
    assert ended.wait(10)


def tuned_pair(*socks: socket.socket) -> None:
    for sock in socks:
        try:
            tuned(sock)
        except OSError:  # a socket pair is no TCP connection
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
