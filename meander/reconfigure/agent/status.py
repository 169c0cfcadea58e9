"""The status of a change on a host, and where its fragments have stopped."""

from __future__ import annotations

import logging

from meander.deploy import freezing
from meander.model.ids import ChannelId
from meander.reconfigure.agent.freezer import freeze
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.overlap import Overlaps
from meander.reconfigure.agent.split_times import entered, seen
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.messages import PartStatus, Positions
from meander.run.channels.base import NO_WATERMARK
from meander.run.failures import reason_of
from meander.run.host import Host
from meander.run.store.journal import JournalError
from meander.run.store.records.progress import FloorRecord

_log = logging.getLogger(__name__)
NO_MARKER = "a fragment did not reach its markers"
NO_LOG = "a log did not come from another site"


def status_of(change: InFlightChange, host: Host, mover: StateMover, overlaps: Overlaps) -> PartStatus:
    """Freezes paused fragments and starts moves of state on the way; what goes wrong is the change's problem alone."""
    try:
        return _status(change, host, mover, overlaps)
    except JournalError:
        raise
    except Exception as error:
        _log.exception("change %d cannot go on", change.number)
        return PartStatus(f"it could not go on: {reason_of(error)}", fails_again=True)


def _status(change: InFlightChange, host: Host, mover: StateMover, overlaps: Overlaps) -> PartStatus:
    if change.preparing is not None and not mover.background:
        change.preparing.exception()
    prepared = change.preparing is None or change.preparing.done()
    if change.is_forked:
        return _beside(change, host, overlaps)
    if not change.is_marked:
        return PartStatus(prepared=prepared and mover.is_ahead(change))
    routing, part = host.routing, change.part
    if not part.overlaps and not all(f in routing.drained for f in change.old):
        frozen, problem = freeze(host, part.change, part.marker, change.old)
        change.frozen |= frozen
        if problem is not None:
            return PartStatus(problem, fails_again=True)
    drained = all(f in routing.drained for f in change.old) and _have_settled(change, host)
    problem = mover.start(change)
    arrived = all(h in change.moves and change.moves[h].done for h in change.moving)
    waits_for = NO_MARKER if not drained else None if arrived else mover.waits_for(change)
    if arrived and not _logs_are_here(change, host):
        arrived, waits_for = False, NO_LOG
    moved = {h.operator: move.bytes + change.sent_ahead.get(h, 0) for h, move in change.moves.items()}
    positions = _positions(change, host) if drained else Positions()
    if part.overlaps and drained:
        store = host.store
        positions = Positions(floors=positions.floors, seen=seen(change, store), entered=entered(change, store))
    return PartStatus(problem, False, prepared, drained, False, arrived, waits_for, moved, positions)


def _beside(change: InFlightChange, host: Host, overlaps: Overlaps) -> PartStatus:
    """Old and new fragments run side by side; logs that end are told of when nobody can have forgotten any of them."""
    was_complete = change.is_complete and _have_settled(change, host)
    change.is_complete = change.is_complete or overlaps.is_complete(change)
    arrived, positions = _logs_are_here(change, host), _positions(change, host) if was_complete else Positions()
    is_over = was_complete or (change.part.is_alone and change.is_complete)
    return PartStatus(
        prepared=True,
        drained=True,
        complete=is_over,
        arrived=arrived,
        waits_for=None if arrived else NO_LOG,
        positions=positions,
        windows_s=change.windows_s,
    )


def _have_settled(change: InFlightChange, host: Host) -> bool:
    """Whether readers here have read all of logs that go elsewhere: what they let go of could not be taken over."""
    exchange, part = host.store.exchange, change.part
    beside = [c for c in part.given_away if part.is_here(c.receiver) and c.receiver not in part.before]
    waiting = [c for c in beside if exchange.start(c.id) < exchange.tail(c.id)]
    return all(exchange.is_cut(c.id) or c.receiver in host.routing.pauses for c in waiting)


def _logs_are_here(change: InFlightChange, host: Host) -> bool:
    if not change.part.taken_over:
        return True
    told = change.fetched
    return told is not None and all(
        host.store.exchange.tail(c.id) >= told.logs[c.id][2] for c in change.part.taken_over
    )


def _positions(change: InFlightChange, host: Host) -> Positions:
    """Where the fragments here have stopped, as far as others have to know."""
    part, exchange = change.part, host.store.exchange
    readers = {c.id: _reading(c.id, host) for c in part.read_elsewhere} | _frozen(change, host)
    logs = {c.id: (*_reading(c.id, host), exchange.tail(c.id)) for c in part.given_away}
    known = host.store.records(FloorRecord)
    floors = {f: known[f].watermark_ms for f in change.old if f in known}
    return Positions(readers, logs, floors, frozenset(change.frozen))


def _frozen(change: InFlightChange, host: Host) -> dict[ChannelId, tuple[int, int]]:
    """Where others begin to read what frozen fragments have not consumed, or behind that if it is for nobody."""
    if not change.frozen:
        return {}
    whole, exchange = change.part.change, host.store.exchange
    found = {f.channel: _reading(f.of, host) for f in freezing.forks(whole, change.frozen)}
    for channel in freezing.skipped(whole, change.frozen):
        behind = exchange.behind_marker(channel.id, change.number)
        marks = [mark for _, mark in exchange.read(channel.id, exchange.start(channel.id), behind).watermarks]
        found[channel.id] = behind, max(_reading(channel.id, host)[1], *marks, NO_WATERMARK)
    return found


def _reading(channel: ChannelId, host: Host) -> tuple[int, int]:
    """How far a channel is processed, and the watermark reached with that."""
    exchange = host.store.exchange
    return exchange.start(channel), int(exchange.watermarks([channel])[0])
