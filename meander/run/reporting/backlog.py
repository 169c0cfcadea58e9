"""The waiting time of tuples in channels, from counters that are read now and then.

A channel is read in order. So when more was appended by a moment than is consumed by now, the oldest tuple that waits
was there at that moment at the latest: the result is never more than the truth, and exact to one reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelCounters
from meander.run.channels.embedded import EmbeddedExchange

MOST_MOMENTS = 64
"""Of each channel; older ones are thinned out, so that a channel that stands still for days costs nothing."""


@dataclass(frozen=True, slots=True)
class ChannelFlow:
    """The flow of one channel at one moment, all in milliseconds."""

    waits_ms: int = 0
    """The lower bound of the waiting time of the oldest tuple that is not consumed; 0 when there is none."""
    stuck_ms: int = 0
    """So long there was something to read, and nothing was consumed."""
    quiet_ms: int = 0
    """So long nothing was appended."""
    pending: int = 0


@dataclass(slots=True)
class _Track:
    """The readings of one channel."""

    appended: int
    consumed: int
    fed_ms: int
    """The time of the last append."""
    moved_ms: int
    """The time at which something was last consumed, or there was nothing to read."""
    moments: list[tuple[int, int]] = field(default_factory=list)
    """The times of readings, with the number of records appended by then, as far as they are not consumed yet."""


class Backlog:
    """Compares counters with those of earlier readings. Times are any clock's, as long as it is the same one."""

    def __init__(self) -> None:
        self._tracks: dict[ChannelId, _Track] = {}

    def read(self, now_ms: int, counters: Mapping[ChannelId, ChannelCounters]) -> dict[ChannelId, ChannelFlow]:
        """All channels as of now; those that are gone are forgotten."""
        self._tracks = {c: track for c, track in self._tracks.items() if c in counters}
        return {channel: self._flow(channel, now_ms, found) for channel, found in counters.items()}

    def _flow(self, channel: ChannelId, now_ms: int, found: ChannelCounters) -> ChannelFlow:
        track = self._tracks.get(channel)
        if track is None or found.appended_tuples < track.appended or found.consumed_tuples < track.consumed:
            track = self._tracks[channel] = _Track(found.appended_tuples, found.consumed_tuples, now_ms, now_ms)
        if found.appended_tuples > track.appended:
            track.fed_ms = now_ms
        if found.consumed_tuples > track.consumed or not found.readable_tuples:
            track.moved_ms = now_ms
        track.appended, track.consumed = found.appended_tuples, found.consumed_tuples
        waiting = [(at, count) for at, count in track.moments if count > found.consumed_tuples]
        if found.pending_tuples and (not waiting or waiting[-1][1] < found.appended_tuples):
            waiting.append((now_ms, found.appended_tuples))
        if len(waiting) > MOST_MOMENTS:
            waiting = [waiting[0], *waiting[1:-1:2], waiting[-1]]
        track.moments = waiting if found.pending_tuples else []
        waits_ms = now_ms - track.moments[0][0] if track.moments else 0
        return ChannelFlow(waits_ms, now_ms - track.moved_ms, now_ms - track.fed_ms, found.pending_tuples)


def read_counters(exchange: EmbeddedExchange) -> dict[ChannelId, ChannelCounters]:
    """The counters of all channels; one may end between two looks."""
    found: dict[ChannelId, ChannelCounters] = {}
    for channel in exchange.channels():
        with suppress(InputError):
            found[channel] = exchange.counters(channel)
    return found
