"""The one commit in which a share takes effect: what happens on any host, and where channels come from afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from meander.deploy import freezing
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.effect import effect
from meander.reconfigure.part import Part
from meander.reconfigure.part_in_flight import PartInFlight
from meander.reconfigure.paths import Paths
from meander.run.channels.base import NO_WATERMARK
from meander.run.store.commit import Commit, Passed
from meander.run.store.records.deployment import SerialisedFragmentRecord, SinkBindingRecord
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.reconfigurations import PartRecord
from meander.run.store.records.record import Change, forget, forget_all
from meander.run.store.records.transport import CopyRecord, ReaderRecord
from meander.run.store.store import Store


def share_effect(
    course: PartInFlight, store: Store, paths: Paths, told: Mapping[str, Any], extra: Iterable[Change]
) -> Commit:
    """All that changes here; `told` is what all sites said, `extra` are records that go along."""
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
    records = [*base.records, forget(PartRecord, course.number), *_wiring(share), *_floors(share, told)]
    records += forget_all(SerialisedFragmentRecord, share.before)
    records += [SerialisedFragmentRecord(f, tuple(rows)) for f, rows in share.made.items()]
    records += [*(SinkBindingRecord(c, *names) for c, names in share.outlets.items()), *extra]
    return replace(base, forks=tuple(forks), passed=starts(begins), consumed=consumed, records=tuple(records))


def _wiring(share: Part) -> list[Change]:
    """Where copies come from and who may pull logs, afterwards."""
    records: list[Change] = []
    for channel in (*share.local.channels_before.values(), *share.local.channels_after.values()):
        records += [forget(CopyRecord, channel.id), forget(ReaderRecord, channel.id)]
    for channel in share.local.channels_after.values():
        sender, receiver = share.where[channel.sender], share.where[channel.receiver]
        way = share.ways["channels"].get(str(channel.id), [])
        if sender != share.site:
            records.append(CopyRecord(channel.id, tuple(way)))
        if receiver != share.site:
            records.append(ReaderRecord(channel.id, receiver, tuple(way[:-1])))
    return records


def _floors(share: Part, told: Mapping[str, Any]) -> list[Change]:
    """Windows that were closed without a missing input stay closed, wherever their operators came from."""
    floors = {FragmentId(int(f)): value for f, value in told.get("floors", {}).items()}
    records: list[Change] = []
    for fragment in share.after.values() if floors else ():
        mine = set(fragment.operators)
        before = share.change.fragments_before
        known = [v for f, v in floors.items() if f in before and mine & set(before[f].operators)]
        if known:
            records.append(FloorRecord(fragment.id, max(known)))
    return records


def starts(begins: Mapping[ChannelId, list[int]]) -> tuple[Passed, ...]:
    """Lets new channels begin at a position, with the watermark that was reached before it."""
    rows = [(c, at - (mark != NO_WATERMARK), mark) for c, (at, mark) in begins.items() if at > 0]
    if not rows:
        return ()
    channels, lengths, marks = zip(*rows, strict=True)
    return (Passed.of(list(channels), list(lengths), list(marks)),)
