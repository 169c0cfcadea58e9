"""A site without any replica, begun again with nothing: its fragments with empty state, its channels where they are.

Other sites know how far they have sent to it and read from it, so its channels go on there; what was inside it is lost.
What comes of it is an ordinary store, so that operators leave it, and end, by ordinary changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meander.model.ids import ChannelId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.effect import starts
from meander.reconfigure.messages import Effect, Positions, Prepare
from meander.reconfigure.part import Part
from meander.run.channels.base import ChannelSpec
from meander.run.host import Host
from meander.run.store.commit import Commit
from meander.run.store.store import Store


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """The records of one channel that are kept at one of its ends."""

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


@dataclass(frozen=True, slots=True)
class LostSite:
    """A site as others know it: its fragments and channels, and how far these are at their other ends."""

    part: Part
    """A change that begins all fragments of the site."""
    ends: Mapping[ChannelId, ChannelPosition]

    def begin(self, host: Host) -> None:
        """Begins the fragments on an empty host, which nobody has started."""
        part, agent = self.part, Agent(host)
        channels = part.local.channels_after.values()
        inward = {c.id: self.ends[c.id] for c in channels if c.id in self.ends and not part.is_here(c.sender)}
        outward = {c.id: self.ends[c.id] for c in channels if c.id in self.ends and part.is_here(c.sender)}
        add = [ChannelSpec(c.id, part.schemas[c.id], c.sender, c.receiver) for c in channels if c.id in outward]
        begins = {c: (at.end, at.told_ms) for c, at in outward.items()}
        host.store.commit(Commit(add=tuple(add), passed=starts(begins)))
        agent.prepare(Prepare((part,), ()))
        readers = {c: (at.start, at.consumed_ms) for c, at in inward.items()}
        agent.effect(Effect({part.number: Positions(readers)}))
        agent.stop()
