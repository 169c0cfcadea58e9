"""Ranges of channels in transit: records that were read from a log, as they are appended to a copy of it elsewhere.

A range says which sequence numbers it covers, where its watermarks and markers are, and carries the tuples between them
as one Arrow batch. It checks itself: what arrives damaged is recognised and asked for again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, Chunk
from meander.run.channels.flight.untrusted import UntrustedError, checked, read_untrusted
from meander.run.store.incarnations import Incarnation, Lineage
from meander.run.store.payloads import one_batch

RANGES = pa.schema(
    [
        pa.field("channel", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
        pa.field("control", pa.string()),
        pa.field("body", pa.large_binary()),
        pa.field("checksum", pa.uint32()),
    ]
)


LARGEST = 2**63
"""Positions and times are smaller."""


class DamagedError(Exception):
    """A range did not arrive as it was sent."""


@dataclass(frozen=True, slots=True)
class ChannelRange:
    """The records of one channel from `start` up to, not including, `stop`; or why there are none."""

    channel: ChannelId
    start: int
    stop: int
    control: str
    body: bytes | pa.Buffer
    checksum: int

    @staticmethod
    def of(chunk: Chunk, lineage: Lineage = ()) -> ChannelRange:
        """`lineage` has the incarnations of the log, of which the last wrote the newest records."""
        told = {"lineage": lineage} if lineage else {}
        control = json.dumps(
            {
                "rows": len(chunk.table),
                "watermarks": [list(w) for w in chunk.watermarks],
                "markers": [[position, marker.to_json()] for position, marker in chunk.markers],
                **told,
            },
            separators=(",", ":"),
        )
        body = one_batch(chunk.table, "a range").serialize() if len(chunk.table) else pa.py_buffer(b"")
        return ChannelRange(chunk.channel, chunk.start, chunk.stop, control, body, checksum(control, body))

    @staticmethod
    def refusal(channel: ChannelId, problem: str, **facts: Any) -> ChannelRange:
        """The reason why a channel gives nothing."""
        control = json.dumps({"problem": problem, **facts})
        return ChannelRange(channel, 0, 0, control, b"", checksum(control, b""))

    def checked(self) -> dict[str, Any]:
        """The content of `control`; raises DamagedError when the range differs from the one that was sent."""
        if checksum(self.control, self.body) != self.checksum:
            raise DamagedError(f"records {self.start} to {self.stop} of channel {self.channel} arrived damaged")
        try:
            found: dict[str, Any] = json.loads(self.control)
            if "problem" not in found:
                _check_control(found)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            told = f"records {self.start} to {self.stop} of channel {self.channel} are not described as they should be"
            raise UntrustedError(f"{told}: {error}") from None
        return found

    def after(self, first: int, schema: pa.Schema) -> ChannelRange:
        """The rest of a range from a number on."""
        control = self.checked()
        watermarks = [(int(p), int(value)) for p, value in control["watermarks"]]
        markers = [(int(p), Marker.from_json(m)) for p, m in control["markers"]]
        gone = first - self.start - len({p for p, _ in (*watermarks, *markers) if p < first})
        table = schema.empty_table()
        if control["rows"]:
            table = pa.Table.from_batches([read_untrusted(self.body, schema, control["rows"])])[gone:]
        left = (tuple(w for w in watermarks if w[0] >= first), tuple(m for m in markers if m[0] >= first))
        return ChannelRange.of(Chunk(self.channel, first, self.stop, table, *left), lineage_in(control))

    @property
    def size(self) -> int:
        return len(self.control) + (len(self.body) if isinstance(self.body, bytes) else int(self.body.size))

    def append(self, schema: pa.Schema) -> ChannelAppend:
        """The append that makes a copy hold these records, under the same sequence numbers."""
        control = self.checked()
        table = None
        if control["rows"]:
            table = read_untrusted(self.body, schema, control["rows"])
        lengths: list[int] = []
        watermarks: list[int] = []
        markers: dict[int, Marker] = {}
        told = {int(p): int(value) for p, value in control["watermarks"]}
        marked = {int(p): Marker.from_json(m) for p, m in control["markers"]}
        between = {*told, *marked}
        if not all(self.start <= p < self.stop for p in between) or (
            self.stop - self.start != int(control["rows"]) + len(between)
        ):
            raise UntrustedError(f"records {self.start} to {self.stop} of channel {self.channel} do not add up")
        at = self.start
        for position in sorted({*told, *marked}):
            lengths.append(position - at)
            watermarks.append(told.get(position, NO_WATERMARK))
            if position in marked:
                markers[len(lengths) - 1] = marked[position]
            at = position + 1
        if self.stop > at:
            lengths.append(self.stop - at)
            watermarks.append(NO_WATERMARK)
        return ChannelAppend.sliced(table, np.full(len(lengths), self.channel), lengths, watermarks, markers)


def _check_control(found: Mapping[str, Any]) -> None:
    """Raises for a description that is not one, so that nothing else has to."""
    numbers = [found["rows"], *(n for pair in (*found["watermarks"], *found.get("lineage", ())) for n in pair)]
    numbers += [position for position, _ in found["markers"]]
    if not all(isinstance(n, int) and abs(n) < LARGEST for n in numbers) or found["rows"] < 0:
        raise ValueError("a number is none")
    for _, marker in found["markers"]:
        Marker.from_json(marker)


def lineage_in(control: Mapping[str, Any]) -> Lineage:
    """The incarnations of a range's log; a sender of the version before names none."""
    return tuple(Incarnation(int(number), int(base)) for number, base in control.get("lineage", ()))


def checksum(control: str, body: bytes | pa.Buffer) -> int:
    return zlib.crc32(body, zlib.crc32(control.encode()))


def to_batch(ranges: Sequence[ChannelRange]) -> pa.RecordBatch:
    """Ranges as one batch of Arrow."""
    bodies = pa.array([r.body if isinstance(r.body, bytes) else r.body.to_pybytes() for r in ranges], pa.large_binary())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.channel for r in ranges], pa.int64()),
            pa.array([r.start for r in ranges], pa.int64()),
            pa.array([r.stop for r in ranges], pa.int64()),
            pa.array([r.control for r in ranges], pa.string()),
            bodies,
            pa.array([r.checksum for r in ranges], pa.uint32()),
        ],
        schema=RANGES,
    )


def from_batch(batch: pa.RecordBatch) -> list[ChannelRange]:
    """The inverse of `to_batch`, of a batch that may be anybody's; bodies are not copied."""
    checked(batch, RANGES)
    if any(batch.column(i).null_count for i in range(batch.num_columns)):
        raise UntrustedError("ranges came with fields that are missing")
    channels, starts, stops, controls, _, sums = (batch.column(i).to_pylist() if i != 4 else [] for i in range(6))
    bodies = batch.column(4)
    return [
        ChannelRange(ChannelId(channels[i]), starts[i], stops[i], controls[i], bodies[i].as_buffer(), sums[i])
        for i in range(batch.num_rows)
    ]
