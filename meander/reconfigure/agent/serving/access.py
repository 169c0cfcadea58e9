"""The rights of other hosts at a host: to channels that they read or take over, and to state that goes to them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.in_flight import keys_of
from meander.reconfigure.part import Part
from meander.reconfigure.state.manifest import Manifest, missing_bytes
from meander.reconfigure.state.precopy import SMALL_BYTES
from meander.reconfigure.state.transfer import Export
from meander.run.channels.flight.server import StateAnswer, StateRequest
from meander.run.store.records.transport import ReaderRecord

MOST_SENT = 1_000


class Access:
    """Looked at from any thread; it changes nothing."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._exports: dict[tuple[int, int, bool], Export] = {}
        """By change, place, and whether it was sent while the operator ran."""
        self._sent: dict[tuple[OperatorId, str], dict[int, Manifest]] = {}
        """Manifests of states that sites were sent ahead, by operator, site and export."""
        if agent.remote_channels.kafka is not None and agent.remote_channels.pulling is not None:
            agent.remote_channels.kafka.start(agent.remote_channels.pulling, self.may_pull)

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

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        """State that a site fetches from here, perhaps through another one."""
        agent = self.agent
        with agent.changing:
            self._forget()
            part = self._part(asked)
            handover = part.handovers[asked.handover]
            source, target = handover.source, part.where[handover.target]
            allowed = (target, *part.routes.state.get(asked.handover, ()))
            if target != reader or via not in allowed or not part.is_here(source):
                raise InputError(f"state {asked.handover} of change {asked.number} is not for {reader!r}")
            routing = agent.host.routing
            if not asked.is_ahead and source not in routing.drained:
                raise InputError(f"fragment {source} has not stopped yet")
            if source not in routing.fragments:
                raise InputError(f"fragment {source} does not run here any more")
            keys = sorted(keys_of(handover.operator, routing.fragments[source].bound))
            sent = self._sent.setdefault((handover.operator, reader), {})
            return self._ahead(asked, source, keys, sent) if asked.is_ahead else self._rest(asked, source, keys, sent)

    def _part(self, asked: StateRequest) -> Part:
        change = self.agent.changes.get(asked.number)
        if change is None and asked.is_ahead:
            change = self.agent.expected.changes.get(asked.number)
        if change is None:
            raise InputError(f"change {asked.number} is not under way here; it was never prepared, or has ended")
        return change.part

    def _forget(self) -> None:
        """Forgets what changes that have ended were given."""
        known = {*self.agent.changes, *self.agent.expected.changes}
        for key in [key for key in self._exports if key[0] not in known]:
            del self._exports[key]
        while len(self._sent) > MOST_SENT:
            del self._sent[next(iter(self._sent))]

    def _ahead(
        self, asked: StateRequest, source: FragmentId, keys: Sequence[int], sent: dict[int, Manifest]
    ) -> StateAnswer:
        """The pieces that a site lacks of a state that still changes; none if they are too few."""
        place, after = (asked.number, asked.handover, True), None if asked.after is None else sent.get(asked.after)
        export = self._exports.get(place)
        if export is None or asked.first == 0 or export.after != asked.after:
            store, is_expected = self.agent.host.store, asked.most_bytes < math.inf
            least = self.agent.mover.precopies.least(is_expected=is_expected)
            least = least if after is None else min(SMALL_BYTES, least)
            if not least <= missing_bytes(store, source, keys, after) <= asked.most_bytes:
                return StateAnswer(NOTHING, keys, 0)
            export = self._exports[place] = Export(store, source, operators=keys, after=after)
            for digest in [d for d in sent if d != asked.after]:
                del sent[digest]
            sent[export.digest] = export.manifest
        return StateAnswer(export, keys, export.digest, export.after)

    def _rest(
        self, asked: StateRequest, source: FragmentId, keys: Sequence[int], sent: dict[int, Manifest]
    ) -> StateAnswer:
        """All that a site lacks of a state that does not change any more."""
        place, after = (asked.number, asked.handover, False), None if asked.after is None else sent.get(asked.after)
        export = self._exports.get(place)
        if export is None or export.after not in (None, asked.after):
            export = self._exports[place] = Export(self.agent.host.store, source, operators=keys, after=after)
        return StateAnswer(export, keys, export.digest, export.after)


class _Nothing:
    def __len__(self) -> int:
        return 0

    def chunk(self, number: int) -> bytes:
        raise IndexError(number)


NOTHING = _Nothing()
