"""How far channels are at a host: asked for when the site at their other end is given up with all that it knew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meander.model.ids import ChannelId
from meander.run.store.store import Store


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """What is kept of one channel at one of its ends."""

    start: int
    end: int
    consumed_ms: int
    """The watermark before the start."""
    told_ms: int
    """The watermark before the end."""


def positions_of(store: Store, channels: Iterable[int]) -> dict[str, list[int]]:
    """The positions of those channels that are here, for another process."""
    exchange, known = store.exchange, set(store.exchange.channels())
    found: dict[str, list[int]] = {}
    for channel in (ChannelId(int(c)) for c in channels):
        if channel in known:
            marks = int(exchange.watermarks([channel])[0]), int(exchange.told([channel])[0])
            found[str(channel)] = [exchange.start(channel), exchange.tail(channel), *marks]
    return found
