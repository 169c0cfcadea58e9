"""Markers go into the channels that lead into changes, and channels that are new are opened: one commit for all."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from meander.reconfigure.agent.effect import to_be_drained
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.wiring import with_channels
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.host import Host
from meander.run.installation import OUTSIDE
from meander.run.store.commit import Commit, Rewire
from meander.run.store.journal import JournalError
from meander.run.store.records.record import Change

_log = logging.getLogger(__name__)


def mark(changes: Sequence[InFlightChange], host: Host, failover: Failover) -> dict[int, str]:
    """Marks changes, each sender being between two steps; gives those for which that was impossible.

    Those that find no room have to be aborted: fragments wait for the markers already, and one whose channels are all
    cut may have stopped, before what it has to empty was opened.
    """
    found = [c for c in changes if not c.lets_senders_wait]
    for change in changes:
        if change.lets_senders_wait:  # nothing has to stop: what is new begins with the effect
            change.is_marked = True
    if found:
        try:
            _mark(found, host, failover)
        except JournalError as error:
            return {c.number: f"its markers could not be put in: {error}" for c in found}
    return {}


def arm(changes: Sequence[InFlightChange], host: Host) -> None:
    """Markers of other hosts may come from now on: fragments that run wait for them, also after a crash.

    A port that is cut counts as having met the marker, so those that have to be emptied are open from here on.
    """
    if not changes:
        return
    known = set(host.store.exchange.channels())
    with host.between_steps({f for c in changes for f in c.old}):
        rewire = tuple(r for c in changes for r in to_be_drained(c.part, known))
        host.store.commit(Commit(rewire=rewire, records=tuple(c.record for c in changes)))
        for change in changes:
            host.routing.wait_for(change.part.marker)
            change.is_armed = True


def _mark(changes: Sequence[InFlightChange], host: Host, failover: Failover) -> None:
    routing, known = host.routing, set(host.store.exchange.channels())
    appends: list[ChannelAppend] = []
    add: list[ChannelSpec] = []
    rewire: list[Rewire] = []
    records: list[Change] = []
    for change in changes:
        part = change.part
        ingest = [p for f in change.old.values() for p in f.ports if p >= OUTSIDE]
        appends += [ChannelAppend.one(c, marker=part.marker) for c in (*(c.id for c in part.entering), *ingest)]
        opened = {c.id: c for c in part.opened if c.id not in known}
        add += [s for s in change.installation.channels if s.channel in opened]
        rewire += [Rewire(c.id, c.receiver, is_cut=True) for c in opened.values() if c.is_cut]
        if not change.is_armed:
            rewire += to_be_drained(part, known)
        records.append(change.marked_record)
    opened_here = [c for change in changes for c in change.part.opened if c.sender not in change.part.change.fragments]
    senders = {c.sender for change in changes for c in change.part.entering} | with_channels(
        routing, opened_here
    ).keys()
    emptied = {r.receiver for r in rewire if r.receiver is not None}
    with host.between_steps(senders | emptied) as slots:
        for change in changes:
            if not change.is_armed:
                routing.wait_for(change.part.marker)
                change.is_armed = True
            failover.fail_over(change.old)
        host.store.commit(Commit(add=tuple(add), rewire=tuple(rewire), appends=tuple(appends), records=tuple(records)))
        wires = with_channels(routing, opened_here)
        if wires:
            routing.rewire(wires)
        for change in changes:
            change.is_marked = True
    host.wake(slots)
