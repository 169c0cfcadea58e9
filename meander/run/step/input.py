"""The input of a step: what waits in the channels of a group's fragments, up to the markers that they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId
from meander.run.channels.base import Int64s
from meander.run.fragments.routing import Group, Routing
from meander.run.fragments.stage_nodes import StageEdge
from meander.run.frames import BEGIN, END, FRAGMENT, HIDDEN, positions
from meander.run.step.barriers import NOTHING, Barriers
from meander.run.step.idle_timeout import IdleTimeout, WatermarkFloors
from meander.run.step.retries import Retries
from meander.run.step.work import GroupBatch, StepReport, Work
from meander.run.store.store import Store

LEAST_ROWS = 100
"""Records that a step reads from a channel at least, however many channels it has to read."""


class GroupReader:
    """Reads for any group of a host's fragments."""

    def __init__(
        self,
        store: Store,
        routing: Routing,
        idle_timeout: IdleTimeout,
        setbacks: Retries,
        most_rows: int,
    ) -> None:
        self._store, self._routing, self.most_rows = store, routing, most_rows
        self._idle_timeout, self._setbacks = idle_timeout, setbacks

    def has_input(self, groups: Sequence[Group]) -> bool:
        """Whether reading any of these groups would find something, or a marker at which its fragments act."""
        exchange = self._store.exchange
        if not self._routing.awaiting:
            starts, ends = exchange.bounds([c for g in groups for c in g.channels])
            return bool((ends > starts).any())
        for group in groups:
            bounds, barriers = self._bounds(group)
            if any((ends > starts).any() for starts, ends in bounds.values()):
                return True
            if any(barriers.are_reached(i, _starts(bounds, i)) for i in barriers.markers):
                return True
        return False

    def quiet(self, groups: Sequence[Group]) -> frozenset[int]:
        """The groups, by their places, whose channels have nothing to read; none where there may be other work.

        Found for all of them at once: a host may have hundreds of groups, of which few have something to do.
        """
        if self._routing.awaiting or self._routing.fresh or self._idle_timeout.is_limited or len(groups) < 2:
            return frozenset()
        counts = [len(g.channels) for g in groups]
        starts, ends = self._store.exchange.bounds([c for g in groups for c in g.channels])
        found = np.flatnonzero(ends > starts)
        owners = np.searchsorted(np.cumsum(counts), found, side="right")
        return frozenset(range(len(groups))).difference(owners.tolist())

    def _bounds(
        self, group: Group, passing: Mapping[ChannelId, Marker] = NOTHING
    ) -> tuple[dict[int, tuple[Int64s, Int64s]], Barriers]:
        """By port, from where to where the group's channels can be read; and the markers that limit that."""
        bounds = {p: self._store.exchange.bounds(channels) for p, channels in enumerate(group.ports)}
        barriers = Barriers(group, self._routing, self._store.exchange, passing)
        barriers.limit(bounds)
        return bounds, barriers

    def read(self, group: Group, work: Work, report: StepReport) -> GroupBatch | None:
        """The input that waits for the group's fragments, up to a marker that they wait for; None without any."""
        exchange = self._store.exchange
        ports = range(len(group.template.ports))
        bounds, barriers = self._bounds(group, work.passing)
        fresh = self._routing.fresh
        active = self._active(group, bounds, barriers, work)
        if not active.size:
            return None
        is_whole = active.size == len(group.fragments)
        fragments = group.fragments if is_whole else [group.fragments[i] for i in active.tolist()]
        numbers = group.numbers[active]
        before = np.full((len(ports), len(fragments)), END, np.int64)
        after = before.copy()
        edges: dict[StageEdge, pa.Table] = {}
        ends: dict[int, Int64s] = {}
        floors = WatermarkFloors(self._idle_timeout, fragments, len(ports)) if self._idle_timeout.is_limited else None
        most_rows = self._setbacks.most_rows(group.template.key, self.most_rows)
        share = max(LEAST_ROWS, most_rows // (active.size * max(1, len(ports))))
        for p in ports:
            channels = group.ports[p] if is_whole else [f.ports[p] for f in fragments]
            starts = bounds[p][0][active]
            stops = np.minimum(bounds[p][1][active], starts + share)
            held = exchange.watermarks(channels)
            before[p] = np.maximum(held, BEGIN)
            reading = exchange.read_many(channels, starts.tolist(), stops.tolist())
            reached = np.maximum(np.maximum(held, reading.watermarks), BEGIN)
            table = _as_frame(reading.table, numbers[reading.owners])
            read = reading.stops > starts
            found = channels if read.all() else compress(channels, read.tolist())
            work.consumed.update(zip(found, reading.stops[read].tolist(), strict=True))
            ends[p] = reading.stops
            table = self._with_handovers(table, channels, reached, work)
            if floors is not None:
                floors.read(p, channels)
                table = floors.late(table, np.searchsorted(numbers, table.column(FRAGMENT).to_numpy()))
            edges[StageEdge(port=p)] = table
            after[p] = reached
            report.tuples_in += len(edges[StageEdge(port=p)])
        if floors is not None:
            before, after, changes = floors.settle(before, after)
            work.records += changes
        acting: dict[int, Marker] = {}
        for i in barriers.markers:
            k = int(np.searchsorted(active, i))
            if k < active.size and active[k] == i and barriers.are_reached(i, {p: int(ends[p][k]) for p in ports}):
                acting[k] = barriers.markers[i]
                work.consumed.update(barriers.behind(i, fragments[k].ports))
                for channel in fragments[k].ports:
                    work.passing.pop(channel, None)
        if fresh:
            looked = [k for k, f in enumerate(fragments) if f.fragment in fresh]
            before[:, looked] = BEGIN
            work.looked.update(fragments[k].fragment for k in looked)
        work.versions.update(group.versions if is_whole else {f.fragment: f.version for f in fragments})
        report.fragments += len(fragments)
        return GroupBatch(group, active, fragments, numbers, before, after, edges, acting)

    def _active(
        self, group: Group, bounds: Mapping[int, tuple[Int64s, Int64s]], barriers: Barriers, work: Work
    ) -> Int64s:
        """Places of the fragments that have something to do."""
        nothing = np.zeros(len(group.fragments), np.bool_)  # also of fragments without readers, which have no ports
        waits = np.any([nothing, *(ends > starts for starts, ends in bounds.values())], axis=0)
        fresh, handed = self._routing.fresh, work.handed
        if not waits.all() and (fresh or handed or barriers.markers or self._idle_timeout.is_limited):
            for i in np.flatnonzero(~waits).tolist():
                f = group.fragments[i]
                waits[i] = (
                    f.fragment in fresh
                    or self._idle_timeout.is_due(f)
                    or any(c in handed for c in f.ports)
                    or barriers.are_reached(i, _starts(bounds, i))
                )
        return np.flatnonzero(waits)

    @staticmethod
    def _with_handovers(table: pa.Table, channels: Sequence[ChannelId], reached: Int64s, work: Work) -> pa.Table:
        """Adds what earlier groups of this step handed over, and raises the watermarks accordingly."""
        parts = [table]
        for i, channel in enumerate(channels if work.handed else ()):
            handed = work.handed.pop(channel, None)
            if handed is not None:
                parts.append(handed.table)
                reached[i] = max(reached[i], handed.watermark)
                work.passed.append((channel, len(handed.table), handed.watermark))
        return pa.concat_tables(parts) if len(parts) > 1 else table


def _starts(bounds: Mapping[int, tuple[Int64s, Int64s]], place: int) -> dict[int, int]:
    """By port, where the channel of a group's fragment begins."""
    return {port: int(starts[place]) for port, (starts, _) in bounds.items()}


def _as_frame(table: pa.Table, fragments: Int64s) -> pa.Table:
    """Tuples of channels as a step reads them: with their fragment, columns by position."""
    names = [*HIDDEN, *positions(table.num_columns - len(HIDDEN))]
    numbers = pa.array(fragments.astype(np.int32), pa.int32())
    return table.rename_columns(names).add_column(0, FRAGMENT, numbers)
