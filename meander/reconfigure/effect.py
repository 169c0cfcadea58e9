"""The one commit in which reconfigurations take effect: channels, state, fragments, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meander.deploy.freezing import Fork
from meander.deploy.records import channel_to_json, fragment_to_json
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.in_flight import InFlightChange, gone_ports
from meander.reconfigure.paths import Paths
from meander.reconfigure.upstream_backup import has_state
from meander.run.frames import END
from meander.run.installation import OUTSIDE
from meander.run.step.bases import base_of
from meander.run.step.idle_timeout import floor_note
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.step.work import drained_note
from meander.run.store.commit import Commit, RemoveChannel, Rewire, StateCopy, StateDrop, StateRename
from meander.run.store.store import Store


def effect(courses: Sequence[InFlightChange], store: Store, paths: Paths, *, backed_up: bool) -> Commit:
    """All that changes when reconfigurations take effect; `backed_up` if senders keep what fragments consume."""
    known = set(store.exchange.channels())
    notes: dict[str, Any] = {}
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
        notes |= {f"fragment {f}": None for f in change.fragments_before}
        notes |= {f"channel {c.id}": None for c in change.channels_before.values()}
        notes |= {f"fragment {f.id}": fragment_to_json(f) for f in change.fragments_after.values()}
        notes |= {f"channel {c.id}": channel_to_json(c) for c in change.channels_after.values()}
        notes |= _floors(course, store)
        notes |= forgotten(course)
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
        notes=notes,
    )


def _floors(course: InFlightChange, store: Store) -> dict[str, Any]:
    """Floors go along with operators: a window that was closed without a missing input stays closed."""
    change = course.reconfiguration.change
    floors = {f: store.note(floor_note(f)) for f in change.fragments_before}
    notes: dict[str, Any] = {floor_note(f): None for f, floor in floors.items() if floor is not None}
    for fragment in change.fragments_after.values() if notes else ():
        mine = set(fragment.operators)
        known = [floors[f] for f, old in change.fragments_before.items() if floors[f] and mine & set(old.operators)]
        if known:
            notes[floor_note(fragment.id)] = max(known)
    return notes


def forgotten(course: InFlightChange) -> dict[str, Any]:
    """Notes about what was under way: they are of no use afterwards."""
    if not course.old:
        return {}
    return {reconfiguration_note(course.number): None, **{drained_note(course.number, f): None for f in course.old}}


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


def reconfiguration_note(number: int) -> str:
    """Under which name the store remembers what is under way."""
    return f"reconfiguration {number}"
