"""The commits with which changes end on a host: the effect, or the abort. Each is one, whatever number of changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from meander.deploy.fragments import Channel
from meander.deploy.freezing import Fork
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.agent.in_flight import InFlightChange, drained_although_cut
from meander.reconfigure.agent.state.upstream_backup import has_state
from meander.reconfigure.messages import Positions
from meander.reconfigure.part import Part
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.frames import END
from meander.run.installation import OUTSIDE
from meander.run.step.backup_bases import base_of
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.commit import Commit, Passed, RemoveChannel, Rewire, StateCopy, StateDrop, StateRename
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    SerialisedFragmentRecord,
    SinkBindingRecord,
)
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.record import Change, forget_all
from meander.run.store.records.transport import CopyRecord, ReaderRecord
from meander.run.store.store import Store

BUFFERS = 1 << 61
"""Channels in which results wait are numbered from here on, by the channel that they are for."""
Begins = Mapping[ChannelId, tuple[int, int]]
"""The position and the watermark with which channels begin."""


def effect(
    changes: Sequence[InFlightChange],
    positions: Mapping[int, Positions],
    store: Store,
    delay_ms: Callable[[Channel], int],
    records: Iterable[Change],
    *,
    backed_up: bool,
) -> Commit:
    """All that changes when reconfigurations take effect; `backed_up` if senders keep what fragments consume.

    `positions` say where the fragments of each change have stopped, on all its hosts; `records` go along.
    """
    known = set(store.exchange.channels())
    add: dict[ChannelId, ChannelSpec] = {}
    rewire: list[Rewire] = []
    remove: list[RemoveChannel] = []
    forks: list[Fork] = []
    begins: dict[ChannelId, tuple[int, int]] = {}
    consumed: dict[ChannelId, int] = {}
    appends: list[ChannelAppend] = []
    renames: list[StateRename] = []
    drops: list[StateDrop] = []
    retire: list[FragmentId] = []
    told: list[Change] = []
    backed = [f for c in changes for f in c.installation.fragments if backed_up and has_state(f)]
    rewire += [Rewire(p, f.fragment, keeps=True) for f in backed for p in f.ports]
    for change in changes:
        part, new, at = change.part, change.new, positions[change.number]
        channels = part.local.channels_after.values()
        add.update((s.channel, s) for s in change.installation.channels if s.channel not in known)
        rewire += [Rewire(c.id, c.receiver, delay_ms(c), c.is_cut, c.sender) for c in channels]
        for f in new.values():
            rewire += [Rewire(p, f.fragment) for p in f.ports if p >= OUTSIDE and p in known]
            results = [w.channel for out in f.outputs for w in out if w.channel >= OUTSIDE]
            rewire += [Rewire(p, None, sender=f.fragment) for p in results if p in known]
        remove += [RemoveChannel(c.id, discard=True) for c in part.closed]
        remove += [RemoveChannel(p, discard=True) for p in change.gone_ports]
        forks += part.forked(at.frozen)
        own = buffers(part) if change.is_forked else {}
        appends += [found for c, buffer in own.items() if (found := _buffered(c, buffer, store)) is not None]
        remove += [RemoveChannel(buffer, discard=True) for buffer in own.values()]
        begins |= _begins(part, at, known)
        consumed |= _consumed(part, at, known, store)
        renames += _renames(change)
        drops += _drops(change, renames)
        retire += [f for f in change.old if f not in new]
        retire += [change.staging(h) for h in change.moves]
        retire += [base_of(f) for f in change.old if backed_up]
        told += [*wiring(part, channels, store), *_records(part, store)]
        told += [*_floors(part, at, store), *change.forgotten()]
    return Commit(
        add=tuple(add.values()),
        rewire=tuple(rewire),
        forks=tuple(forks),
        passed=starts(begins),
        remove=tuple(remove),
        consumed=consumed,
        appends=tuple(appends),
        state_drops=tuple(drops),
        state_renames=tuple(renames),
        retire=tuple(retire),
        state_copies=tuple(StateCopy(f.fragment, base_of(f.fragment)) for f in backed),
        forget=tuple(p for f in backed for p in f.ports),
        records=(*told, *records),
    )


def undo(changes: Iterable[InFlightChange], store: Store) -> Commit:
    """All that changes when reconfigurations are aborted: what began for them ends."""
    known = set(store.exchange.channels())
    rewire: list[Rewire] = []
    remove: dict[ChannelId, RemoveChannel] = {}
    retire: list[FragmentId] = []
    records: list[Change] = []
    for change in changes:
        gone = (*(c.id for c in begun(change, known)), *(c for c in change.added if c in known))
        remove |= {c: RemoveChannel(c, discard=True) for c in gone}
        rewire += to_be_drained(change.part, known, is_cut=True)
        retire += [change.staging(h) for h in change.moving]
        records += [*change.forgotten(), *forget_all(CopyRecord, change.added)]
    return Commit(rewire=tuple(rewire), remove=tuple(remove.values()), retire=tuple(retire), records=tuple(records))


def begun(change: InFlightChange, known: Collection[ChannelId]) -> list[Channel]:
    """Channels that were opened with the marker."""
    return [] if change.lets_senders_wait else [c for c in change.part.opened if c.id in known]


def to_be_drained(part: Part, known: Collection[ChannelId], *, is_cut: bool = False) -> list[Rewire]:
    """Opens channels that have to be emptied although there is no route, or cuts them again."""
    found = [] if part.overlaps else drained_although_cut(part.change)
    return [Rewire(c.id, c.receiver, is_cut=is_cut) for c in found if c.id in known and part.touches(c)]


# ---------------------------------------------------------------- where readers begin


def _begins(part: Part, at: Positions, known: Collection[ChannelId]) -> Begins:
    """Copies that begin here, where their former readers have stopped; a log that is forked here begins by itself."""
    mine = {f.channel for f in part.forked(at.frozen)}
    after = part.local.channels_after.values() if at.readers else ()
    here = [c.id for c in after if c.id not in known and c.id not in mine and part.is_here(c.receiver)]
    return {c: at.readers[c] for c in here if c in at.readers}


def _consumed(part: Part, at: Positions, known: Collection[ChannelId], store: Store) -> dict[ChannelId, int]:
    """Channels that are here already and whose readers begin further on."""
    after = part.local.channels_after.values() if at.readers else ()
    here = [c.id for c in after if c.id in known and c.id in at.readers and part.is_here(c.receiver)]
    return {c: max(store.exchange.start(c), at.readers[c][0]) for c in here}


def starts(begins: Begins) -> tuple[Passed, ...]:
    """Lets new channels begin at a position, with the watermark that was reached before it."""
    rows = [(c, at - (mark != NO_WATERMARK), mark) for c, (at, mark) in begins.items() if at > 0]
    if not rows:
        return ()
    channels, lengths, marks = zip(*rows, strict=True)
    return (Passed.of(list(channels), list(lengths), list(marks)),)


# ---------------------------------------------------------------- records


def _records(part: Part, store: Store) -> list[Change]:
    """Records of the fragments and channels here."""
    local, serialised = part.local, store.records(SerialisedFragmentRecord)
    return [
        *forget_all(FragmentRecord, part.before),
        *forget_all(ChannelRecord, (c.id for c in local.channels_before.values())),
        *forget_all(SerialisedFragmentRecord, (f for f in part.before if f in serialised)),
        *map(FragmentRecord, part.after.values()),
        *map(ChannelRecord, local.channels_after.values()),
        *(SerialisedFragmentRecord(f, tuple(rows)) for f, rows in part.serialised.items()),
        *(SinkBindingRecord(c, *names) for c, names in part.results.items()),
    ]


def wiring(part: Part, channels: Collection[Channel], store: Store) -> list[Change]:
    """Where copies come from and who may pull logs, when these are the channels here."""
    both = {c.id for c in (*part.local.channels_before.values(), *channels)}
    records = forget_all(CopyRecord, both & store.records(CopyRecord).keys())
    records += forget_all(ReaderRecord, both & store.records(ReaderRecord).keys())
    for channel in () if part.is_alone else channels:
        sender, receiver = part.where[channel.sender], part.where[channel.receiver]
        route = tuple(part.routes.channels.get(channel.id, ()))
        if sender != part.site:
            records.append(CopyRecord(channel.id, route))
        if receiver != part.site:
            records.append(ReaderRecord(channel.id, receiver, route[:-1]))
    return records


def _floors(part: Part, at: Positions, store: Store) -> list[Change]:
    """Floors go along with operators: a window that was closed without a missing input stays closed."""
    records = forget_all(FloorRecord, part.before.keys() & store.records(FloorRecord).keys())
    before = part.change.fragments_before
    for fragment in part.after.values() if at.floors else ():
        mine = set(fragment.operators)
        known = [v for f, v in at.floors.items() if f in before and mine & set(before[f].operators)]
        if known:
            records.append(FloorRecord(fragment.id, max(known)))
    return records


# ---------------------------------------------------------------- overlaps between hosts


def buffers(part: Part) -> dict[ChannelId, ChannelId]:
    """For channels that new fragments here will feed, where their results wait until the old fragments have ended."""
    if part.is_alone or not part.overlaps:
        return {}
    inside = part.change.fragments_after
    found = (c for c in part.local.channels_after.values() if c.receiver not in inside and part.is_here(c.sender))
    return {c.id: ChannelId(BUFFERS + c.id) for c in found}


def _buffered(channel: ChannelId, buffer: ChannelId, store: Store) -> ChannelAppend | None:
    """The tuples that have waited in a buffer, for the channel."""
    exchange = store.exchange
    if buffer not in exchange.channels():
        return None
    table = exchange.read(buffer, exchange.start(buffer), exchange.tail(buffer)).table
    mark = int(exchange.told([buffer])[0])
    has_rows = table is not None and len(table) > 0
    if not has_rows and mark == NO_WATERMARK:
        return None
    return ChannelAppend.one(channel, table if has_rows else None, None if mark == NO_WATERMARK else mark)


# ---------------------------------------------------------------- state


def _renames(change: InFlightChange) -> list[StateRename]:
    found: list[StateRename] = []
    travelling, part = set(change.moving), change.part
    for handover in part.handovers:
        for old, new in change.keys(handover).items() if part.is_here(handover.target) else ():
            if handover in travelling:
                found.append(StateRename(change.staging(handover), new, handover.target, new))
            elif (handover.source, old) != (handover.target, new):
                found.append(StateRename(handover.source, old, handover.target, new))
    return found


def _drops(change: InFlightChange, renames: Sequence[StateRename]) -> list[StateDrop]:
    """State of updated fragments that belongs to operators which ended or went elsewhere."""
    moved = {(r.fragment, r.operator) for r in renames}
    part, travelling = change.part, set(change.moving)
    staying = [h for h in part.handovers if part.is_here(h.target) and h not in travelling]
    stay = {(h.source, old) for h in staying for old in change.keys(h)}
    found: list[StateDrop] = []
    for fragment, installed in change.old.items():
        for stage in installed.bound.template.stages if fragment in change.new else ():
            keys = [stage.number * STATES_PER_STAGE + t for t in range(len(stage.states))]
            gone = [k for k in keys if (fragment, k) not in moved and (fragment, k) not in stay]
            found += [StateDrop.of(k, [fragment], [END], below=True) for k in gone]
    return found


# ---------------------------------------------------------------- other routes


def rerouted(
    channels: Mapping[ChannelId, tuple[Channel, list[str]]], store: Store, delay_ms: Callable[[Channel], int]
) -> Commit:
    """Channels that are here take another route, or none; those of others are not looked at."""
    known = set(store.exchange.channels())
    rewire: list[Rewire] = []
    records: list[Change] = []
    for channel, route in (found for c, found in channels.items() if c in known):
        rewire.append(Rewire(channel.id, channel.receiver, delay_ms(channel), channel.is_cut))
        records.append(ChannelRecord(channel))
        copy = store.record(CopyRecord, channel.id)
        if copy is not None and copy.route:
            records.append(CopyRecord(channel.id, tuple(route)))
        elif (log := store.record(ReaderRecord, channel.id)) is not None:
            records.append(replace(log, relays=tuple(route[:-1])))
    return Commit(rewire=tuple(rewire), records=tuple(records))
