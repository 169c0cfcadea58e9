"""The age of what waits in a channel is never more than the truth, and exact to one reading."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelCounters
from meander.run.reporting.backlog import MOST_MOMENTS, Backlog, ChannelFlow

C = ChannelId(1)


def counters(appended: int, consumed: int, readable: int | None = None) -> dict[ChannelId, ChannelCounters]:
    pending = appended - consumed
    return {C: ChannelCounters(appended, consumed, pending, pending if readable is None else readable, 0)}


@given(
    st.lists(
        st.tuples(st.integers(1, 3_000), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4 * MOST_MOMENTS
    )
)
def test_what_waits_has_waited_at_least_so_long(steps: list[tuple[int, int, int]]) -> None:
    backlog, now, since = Backlog(), 0, 0
    waiting: deque[int] = deque()
    appended = consumed = 0
    for span, came, taken in steps:
        earlier, now = now, now + span
        waiting.extend([now] * came)  # just before it is looked at: the latest that a tuple can come in a span
        appended += came
        for _ in range(min(taken, len(waiting))):
            waiting.popleft()
            consumed += 1
        found = backlog.read(now, counters(appended, consumed))[C]
        true_ms = now - waiting[0] if waiting else 0
        if len(steps) <= MOST_MOMENTS:
            assert found.waits_ms == true_ms
        assert found.waits_ms <= true_ms
        since = now if came or earlier == 0 else since
        assert found.quiet_ms == now - since


def test_a_channel_that_stands_still_is_stuck_and_one_that_is_held_back_is_not() -> None:
    backlog = Backlog()
    backlog.read(0, counters(5, 0))
    assert backlog.read(60_000, counters(9, 0))[C] == ChannelFlow(60_000, 60_000, 0, 9)
    assert backlog.read(61_000, counters(9, 1))[C] == ChannelFlow(61_000, 0, 1_000, 8)
    assert backlog.read(71_000, counters(9, 1, readable=0))[C] == ChannelFlow(
        71_000, 0, 11_000, 8
    )  # the latency of its path
    assert backlog.read(72_000, counters(9, 9))[C] == ChannelFlow(0, 0, 12_000, 0)


def test_a_channel_that_is_made_anew_has_no_past() -> None:
    backlog = Backlog()
    backlog.read(0, counters(5, 0))
    assert backlog.read(10_000, {}) == {}
    assert backlog.read(20_000, counters(3, 0))[C] == ChannelFlow(0, 0, 0, 3)
    assert backlog.read(30_000, counters(1, 0))[C] == ChannelFlow(0, 0, 0, 1)
