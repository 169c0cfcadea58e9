"""The one commit in which reconfigurations take effect: channels, state, fragments, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meander.deploy.freezing import Fork
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.in_flight import InFlightChange, gone_ports
from meander.reconfigure.paths import Paths
from meander.reconfigure.upstream_backup import has_state
from meander.run.frames import END
from meander.run.installation import OUTSIDE
from meander.run.step.bases import base_of
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.commit import Commit, RemoveChannel, Rewire, StateCopy, StateDrop, StateRename
from meander.run.store.records.deployment import ChannelRecord, FragmentRecord
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.reconfigurations import DrainedRecord, ReconfigurationRecord
from meander.run.store.records.record import Change, forget, forget_all
from meander.run.store.store import Store


def effect(courses: Sequence[InFlightChange], store: Store, paths: Paths, *, backed_up: bool) -> Commit:
    """All that changes when reconfigurations take effect; `backed_up` if senders keep what fragments consume."""
    known = set(store.exchange.channels())
    records: list[Change] = []
    add: dict[ChannelId, Any] = {}
    rewire: list[Rewire] = []
    remove: list[RemoveChannel] = []
    forks: list[Fork] = []
    consumed: dict[ChannelId, int] = {}
    renames: list[StateRename] = []
    drops: list[StateDrop] = []
    retire: list[FragmentId] = []
    backed = [f for c in courses for f in c.installation.fragments if backed_up and has_state(f)]
    rewire += [Rewire(p, f.fragment, keeps=True) for f in backed for p in f.ports]
    for course in courses:
        change, new = course.reconfiguration.change, course.new
        add.update((s.channel, s) for s in course.installation.channels if s.channel not in known)
        rewire += [
            Rewire(c.id, c.receiver, paths.delay_ms(c), c.is_cut, c.sender) for c in change.channels_after.values()
        ]
        for f in new.values():
            rewire += [Rewire(p, f.fragment) for p in f.ports if p >= OUTSIDE and p in known]
            results = [w.channel for out in f.outputs for w in out if w.channel >= OUTSIDE]
            rewire += [Rewire(p, None, sender=f.fragment) for p in results if p in known]
        remove += [RemoveChannel(c.id, discard=True) for c in course.reconfiguration.closed.values()]
        remove += [RemoveChannel(p, discard=True) for p in gone_ports(course)]
        forks += course.forks
        consumed |= {c.id: store.exchange.behind_marker(c.id, course.number) for c in course.skipped}
        renames += _renames(course)
        drops += _drops(course, renames)
        retire += [f for f in course.old if f not in new]
        retire += [course.staging(h) for h in course.moves]
        retire += [base_of(f) for f in course.old if backed_up]
        records += forget_all(FragmentRecord, change.fragments_before)
        records += forget_all(ChannelRecord, (c.id for c in change.channels_before.values()))
        records += map(FragmentRecord, change.fragments_after.values())
        records += map(ChannelRecord, change.channels_after.values())
        records += _floors(course, store)
        records += forgotten(course)
    return Commit(
        add=tuple(add.values()),
        rewire=tuple(rewire),
        forks=tuple(forks),
        remove=tuple(remove),
        consumed=consumed,
        state_drops=tuple(drops),
        state_renames=tuple(renames),
        retire=tuple(retire),
        state_copies=tuple(StateCopy(f.fragment, base_of(f.fragment)) for f in backed),
        forget=tuple(p for f in backed for p in f.ports),
        records=tuple(records),
    )


def _floors(course: InFlightChange, store: Store) -> list[Change]:
    """Floors go along with operators: a window that was closed without a missing input stays closed."""
    change = course.reconfiguration.change
    found = {f: store.record(FloorRecord, f) for f in change.fragments_before}
    floors = {f: record.watermark_ms for f, record in found.items() if record is not None}
    records = forget_all(FloorRecord, floors)
    for fragment in change.fragments_after.values() if floors else ():
        mine = set(fragment.operators)
        known = [floor for f, floor in floors.items() if mine & set(change.fragments_before[f].operators)]
        if known:
            records.append(FloorRecord(fragment.id, max(known)))
    return records


def forgotten(course: InFlightChange) -> list[Change]:
    """Forgets what was under way: it is of no use afterwards."""
    if not course.old:
        return []
    drained = forget_all(DrainedRecord, ((course.number, f) for f in course.old))
    return [forget(ReconfigurationRecord, course.number), *drained]


def _renames(course: InFlightChange) -> list[StateRename]:
    found: list[StateRename] = []
    for handover in course.reconfiguration.handovers:
        for old, new in course.keys(handover).items():
            if handover.travels:
                found.append(StateRename(course.staging(handover), new, handover.target, new))
            elif (handover.source, old) != (handover.target, new):
                found.append(StateRename(handover.source, old, handover.target, new))
    return found


def _drops(course: InFlightChange, renames: Sequence[StateRename]) -> list[StateDrop]:
    """State of updated fragments that belongs to operators which ended or went elsewhere."""
    moved = {(r.fragment, r.operator) for r in renames}
    stay = {(h.source, old) for h in course.reconfiguration.handovers if not h.travels for old in course.keys(h)}
    found: list[StateDrop] = []
    for fragment, installed in course.old.items():
        for stage in installed.bound.template.stages if fragment in course.new else ():
            keys = [stage.number * STATES_PER_STAGE + t for t in range(len(stage.states))]
            gone = [k for k in keys if (fragment, k) not in moved and (fragment, k) not in stay]
            found += [StateDrop.of(k, [fragment], [END], below=True) for k in gone]
    return found
