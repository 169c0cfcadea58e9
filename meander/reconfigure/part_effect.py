"""The one commit in which a share takes effect: what happens on any host, and where channels come from afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meander.deploy import freezing
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.effect import effect
from meander.reconfigure.part import Part
from meander.reconfigure.part_in_flight import PartInFlight, share_note
from meander.reconfigure.paths import Paths
from meander.run.channels.base import NO_WATERMARK
from meander.run.channels.flight.puller import copy_note
from meander.run.step.idle_timeout import floor_note
from meander.run.store.commit import Commit, Passed
from meander.run.store.store import Store


def log_note(channel: ChannelId) -> str:
    """Under which name the store remembers who may pull a channel."""
    return f"log {channel}"


def share_effect(
    course: PartInFlight, store: Store, paths: Paths, told: Mapping[str, Any], extra: Mapping[str, Any]
) -> Commit:
    """All that changes here; `told` is what all sites said, `extra` are notes that go along."""
    share = course.of
    base = effect([course], store, paths, backed_up=False)
    known, added = set(store.exchange.channels()), {s.channel for s in base.add}
    readers = {ChannelId(int(c)): found for c, found in told.get("readers", {}).items()}
    frozen = [FragmentId(int(f)) for f in told.get("frozen", {})]
    forks = share.forked(frozen)
    passed = {c.id for c in freezing.skipped(share.change, frozen)}
    mine = {c.id for c in share.readings if c.id not in passed} | {f.channel for f in forks}
    begins, consumed = dict[ChannelId, list[int]](), dict[ChannelId, int]()
    for channel in share.local.channels_after.values():
        if not share.is_here(channel.receiver) or channel.id not in readers or channel.id in mine:
            continue
        if channel.id in added:
            begins[channel.id] = readers[channel.id]
        elif channel.id in known:
            consumed[channel.id] = max(store.exchange.start(channel.id), readers[channel.id][0])
    notes = {**base.notes, share_note(course.number): None, **_wiring(share), **_floors(share, told)}
    notes |= {f"made {f}": None for f in share.before} | {f"made {f}": rows for f, rows in share.made.items()}
    notes |= {f"outlet {c}": list(names) for c, names in share.outlets.items()} | dict(extra)
    return replace(base, forks=tuple(forks), passed=starts(begins), consumed=consumed, notes=notes)


def _wiring(share: Part) -> dict[str, Any]:
    """Where copies come from and who may pull logs, afterwards."""
    notes: dict[str, Any] = {}
    for channel in share.local.channels_before.values():
        notes |= {copy_note(channel.id): None, log_note(channel.id): None}
    for channel in share.local.channels_after.values():
        sender, receiver = share.where[channel.sender], share.where[channel.receiver]
        way = share.ways["channels"].get(str(channel.id), [])
        is_copy, is_log = sender != share.site, receiver != share.site
        notes[copy_note(channel.id)] = way if is_copy else None
        notes[log_note(channel.id)] = [receiver, *way[:-1]] if is_log else None
    return notes


def _floors(share: Part, told: Mapping[str, Any]) -> dict[str, Any]:
    """Windows that were closed without a missing input stay closed, wherever their operators came from."""
    floors = {FragmentId(int(f)): value for f, value in told.get("floors", {}).items()}
    notes: dict[str, Any] = {}
    for fragment in share.after.values() if floors else ():
        mine = set(fragment.operators)
        before = share.change.fragments_before
        known = [v for f, v in floors.items() if f in before and mine & set(before[f].operators)]
        if known:
            notes[floor_note(fragment.id)] = max(known)
    return notes


def starts(begins: Mapping[ChannelId, list[int]]) -> tuple[Passed, ...]:
    """Lets new channels begin at a position, with the watermark that was reached before it."""
    rows = [(c, at - (mark != NO_WATERMARK), mark) for c, (at, mark) in begins.items() if at > 0]
    if not rows:
        return ()
    channels, lengths, marks = zip(*rows, strict=True)
    return (Passed.of(list(channels), list(lengths), list(marks)),)
