"""Emitting: the outputs of a group, handed over to later groups of the step or appended to channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, Int64s
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.fragments.routing import Installed, Wire
from meander.run.fragments.stage_nodes import StageEdge
from meander.run.frames import FRAGMENT, HIDDEN, TS
from meander.run.step.work import GroupBatch, GroupHandover, StepReport, Work


@dataclass(frozen=True, slots=True)
class _Output:
    """The content of an output of a batch, sorted by fragment; arrays run in the order of the batch's fragments."""

    batch: GroupBatch
    number: int
    table: pa.Table
    counts: Int64s
    offsets: Int64s
    marks: Int64s
    """Watermarks, or NO_WATERMARK where there is nothing new to tell."""

    @staticmethod
    def of(batch: GroupBatch, number: int, edge: StageEdge) -> _Output:
        table, counts = _by_fragment(batch, batch.edges[edge])
        before, after = batch.passed(batch.template.ports_of(edge))
        marks = np.where(after > before, after - batch.template.lag_of(number), NO_WATERMARK)
        return _Output(batch, number, table, counts, np.cumsum(counts) - counts, marks)

    @property
    def places(self) -> Int64s:
        """The fragments that have something to say."""
        return np.flatnonzero((self.counts > 0) | (self.marks != NO_WATERMARK))

    def append(self, channels: Int64s, at: Int64s, columns: tuple[str, ...] | None, work: Work) -> None:
        """To a channel each what the fragments at these places give."""
        body = as_channel(self.table, columns)
        work.appends.append(ChannelAppend(body, channels, self.offsets[at], self.counts[at], self.marks[at]))


def emit(
    batch: GroupBatch, work: Work, exchange: EmbeddedExchange, downstream: frozenset[ChannelId], report: StepReport
) -> None:
    """Hands outputs over to later groups of the step, or appends them to channels."""
    for number, edge in enumerate(batch.template.outputs):
        output = _Output.of(batch, number, edge)
        row = batch.group.rows[number]
        if row is None or not row.known.isdisjoint(downstream):
            _emit_one_by_one(output, work, exchange, downstream, report)
        elif (at := output.places).size:
            report.tuples_out += len(output.table)
            output.append(row.channels[batch.places[at]], at, row.columns, work)
    for i, marker in batch.acting.items():
        _drain_at(batch.fragments[i], marker, work, exchange, downstream)


def _emit_one_by_one(
    output: _Output, work: Work, exchange: EmbeddedExchange, downstream: frozenset[ChannelId], report: StepReport
) -> None:
    """For fragments whose outputs go different ways."""
    named: dict[tuple[str, ...] | None, list[tuple[ChannelId, int]]] = {}
    passing: list[dict[int, tuple[ChannelId, int]]] = []
    at = output.places
    for i, count, watermark in zip(at.tolist(), output.counts[at].tolist(), output.marks[at].tolist(), strict=True):
        passed = 0
        for wire in output.batch.fragments[i].outputs[output.number]:
            report.tuples_out += count
            if wire.is_shared:
                work.appends += _share(output.table.slice(int(output.offsets[i]), count), wire, watermark, exchange)
            elif _may_pass(exchange, wire, downstream):
                if passed == len(passing):
                    passing.append({})
                passing[passed][i] = (wire.channel, watermark)
                passed += 1
            else:
                named.setdefault(wire.columns, []).append((wire.channel, i))
    for receivers in passing:
        _hand_over(output, receivers, work, exchange)
    for columns, entries in named.items():
        channels, places = zip(*entries, strict=True)
        output.append(np.array(channels, np.int64), np.array(places, np.int64), columns, work)


def _share(table: pa.Table, wire: Wire, watermark: int, exchange: EmbeddedExchange) -> list[ChannelAppend]:
    """The appends of one of two fragments that feed a channel together: its side of a time.

    The watermark is the older one's, up to that time, and then it says no more: the channel may go elsewhere. The
    younger one tells its own when it is alone.
    """
    if wire.before_ms is not None:
        mine = table.filter(pc.less(table.column(TS), wire.before_ms))
        own_watermark = min(watermark, wire.before_ms)
        if not len(mine) and int(exchange.told([wire.channel])[0]) >= own_watermark:
            return []
    else:
        mine = table.filter(pc.greater_equal(table.column(TS), wire.since_ms))
        own_watermark = watermark if wire.tells else NO_WATERMARK
    if not len(mine) and own_watermark == NO_WATERMARK:
        return []
    sent = None if own_watermark == NO_WATERMARK else own_watermark
    return [ChannelAppend.one(wire.channel, as_channel(mine, wire.columns), sent)]


def _drain_at(
    fragment: Installed, marker: Marker, work: Work, exchange: EmbeddedExchange, downstream: frozenset[ChannelId]
) -> None:
    """The fragment has done everything before the marker: it ends here and tells those behind it."""
    readers = {entry.fragment for entry in marker.entries}
    for wires in fragment.outputs:
        for wire in wires:
            if exchange.spec(wire.channel).receiver in readers:
                channel_markers = work.passing if _may_pass(exchange, wire, downstream) else work.markers
                channel_markers[wire.channel] = marker
    work.drained[fragment.fragment] = marker.reconfiguration


def _by_fragment(batch: GroupBatch, table: pa.Table) -> tuple[pa.Table, Int64s]:
    """The rows sorted by fragment, and how many each has."""
    if len(batch.fragments) == 1:
        return table, np.array([len(table)], np.int64)
    rows = batch.rows_of(table)
    if not (np.diff(rows) >= 0).all():
        table = table.take(pa.array(np.argsort(rows, kind="stable")))
    return table, np.bincount(rows, minlength=len(batch.fragments)).astype(np.int64)


def _may_pass(exchange: EmbeddedExchange, wire: Wire, downstream: frozenset[ChannelId]) -> bool:
    return not wire.is_shared and wire.channel in downstream and exchange.is_passable(wire.channel)


def _hand_over(
    output: _Output, passing: Mapping[int, tuple[ChannelId, int]], work: Work, exchange: EmbeddedExchange
) -> None:
    """Rows to their receivers, of each sender to one: all get their receiver's number at once."""
    table, counts = output.table, output.counts
    receivers = np.zeros(len(counts), np.int32)
    receivers[list(passing)] = [exchange.spec(channel).receiver or 0 for channel, _ in passing.values()]
    numbers = pa.array(np.repeat(receivers, counts), pa.int32())
    readdressed = table.set_column(table.column_names.index(FRAGMENT), FRAGMENT, numbers)
    for i, (channel, watermark) in passing.items():
        work.handed[channel] = GroupHandover(readdressed.slice(int(output.offsets[i]), int(counts[i])), watermark)


def as_channel(table: pa.Table, columns: tuple[str, ...] | None) -> pa.Table:
    """Tuples as channels carry them: without the fragment, under the channel's names."""
    body = table.drop_columns([FRAGMENT])
    return body if columns is None else body.rename_columns([*HIDDEN, *columns])


def append_waiting(work: Work) -> None:
    """Appends tuples for readers that came earlier in this step to their channels, for the next step.

    Markers come last, so that nothing of the step is behind them.
    """
    for channel, handed in work.handed.items():
        own_watermark = None if handed.watermark == NO_WATERMARK else handed.watermark
        work.appends.append(ChannelAppend.one(channel, as_channel(handed.table, None), own_watermark))
    waiting = work.passing | work.markers
    if waiting:
        channels, markers = list(waiting), dict(enumerate(waiting.values()))
        work.appends.append(ChannelAppend.sliced(None, channels, [0] * len(channels), markers=markers))
