"""The rights of other hosts at a host: to channels that they read or take over, and to state that goes to them."""

from __future__ import annotations

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.in_flight import keys_of
from meander.reconfigure.state.transfer import Export
from meander.run.channels.flight.server import Chunks
from meander.run.store.records.transport import ReaderRecord


class Access:
    """Looked at from any thread; it changes nothing."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._exports: dict[tuple[int, int], Export] = {}
        if agent.kafka is not None and agent.pulling is not None:
            agent.kafka.start(agent.pulling, self.may_pull)

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        """Whether a site reads a channel from here, or is about to take its log over, and may ask through `via`."""
        found = self.agent.host.store.record(ReaderRecord, channel)
        if found is not None and reader == found.reader and via in (found.reader, *found.relays):
            return True
        for change in list(self.agent.changes.values()):
            part = change.part
            if any(c.id == channel for c in part.given_away):
                takers = {c.id: part.where[c.sender] for c in part.change.channels_after.values()}
                return reader == takers[channel] and via in (reader, *part.routes.logs.get(channel, ()))
        return False

    def is_given_away(self, channel: ChannelId) -> bool:
        """Whether a log is about to be taken over: it has to stay as it was told."""
        changes = list(self.agent.changes.values())
        return any(c.id == channel for change in changes if change.has_logs_that_end for c in change.part.given_away)

    def state(self, reader: str, via: str, number: int, place: int) -> tuple[Chunks, list[int], int]:
        """State that a site fetches from here, perhaps through another one."""
        agent = self.agent
        with agent.changing:
            for key in [key for key in self._exports if key[0] not in agent.changes]:
                del self._exports[key]
            change = agent.changes.get(number)
            if change is None:
                raise InputError(f"change {number} is not under way here; it was never prepared, or has ended")
            part, handover = change.part, change.part.handovers[place]
            source, target = handover.source, part.where[handover.target]
            allowed = (target, *part.routes.state.get(place, ()))
            if target != reader or via not in allowed or not part.is_here(source):
                raise InputError(f"state {place} of change {number} is not for {reader!r}")
            if source not in agent.host.routing.drained:
                raise InputError(f"fragment {source} has not stopped yet")
            keys = keys_of(handover.operator, change.old[source].bound)
            export = self._exports.get((number, place))
            if export is None:
                export = self._exports[number, place] = Export(agent.host.store, source, operators=keys)
            return export, keys, export.digest
