"""Measures: the time of fragments per tuple, cheap enough to stay on.

A group runs many fragments as one frame, so the time of a single one is not known: each gets the share of the group's
time that it has of the group's tuples. The fixed cost of the frame belongs to none of them, and does not go away with
any: it is estimated (a line through the last runs' times over their tuples) and left out. Only about the last w tuples
of a fragment count: older ones fade as new ones come. Waiting tuples are not counted anew: channels know their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.run.channels.base import Int64s
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.fragments.loads import Floats, Loads, faded
from meander.run.fragments.routing import Installed, Routing
from meander.run.frames import FRAGMENT
from meander.run.step.work import GroupBatch

WINDOW = 10_000
"""Tuples of a fragment over which its time per tuple is taken."""


MEMORY = 0.95
"""The weight of a run of a frame after the next one."""


@dataclass(slots=True)
class Line:
    """The run time of a frame, as a line over the tuples in it; older runs fade."""

    weight: float = 0.0
    tuples: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, tuples: int, seconds: float) -> None:
        self.weight = MEMORY * self.weight + 1
        self.tuples = MEMORY * self.tuples + tuples
        self.seconds = MEMORY * self.seconds + seconds
        self.squares = MEMORY * self.squares + tuples * tuples
        self.products = MEMORY * self.products + tuples * seconds

    @property
    def fixed_s(self) -> float:
        """The run time without tuples; zero as long as all runs have been alike.

        >>> line = Line()
        >>> for n in (10, 30, 20): line.add(n, 0.5 + 0.01 * n)
        >>> round(line.fixed_s, 3)
        0.5
        """
        spread = self.weight * self.squares - self.tuples * self.tuples
        if spread <= 0.01 * self.tuples * self.tuples:
            return 0.0
        slope = (self.weight * self.products - self.tuples * self.seconds) / spread
        return max(0.0, (self.seconds - max(0.0, slope) * self.tuples) / self.weight)


class StepMeasures:
    """Columns by fragment; rows are given out as fragments are first seen."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self._lock = lock("step measures")
        self._rows: dict[int, int] = {}
        self._tuples = np.zeros(64)
        self._seconds = np.zeros(64)
        self._processed = np.zeros(64, np.int64)
        self._received = np.full(64, np.nan)
        self._arrived = np.full(64, np.nan)
        self._fresh = np.full(64, np.nan)
        self._lines: dict[Hashable, Line] = {}

    def note(self, fragments: Int64s, tuples: Int64s, seconds: float, frame: Hashable = None) -> None:
        """A group has taken so long for so many tuples of each of its fragments; `frame` is their common frame."""
        total = int(tuples.sum())
        with self._lock:
            if frame is not None:
                line = self._lines.setdefault(frame, Line())
                line.add(total, seconds)
                seconds = max(0.0, seconds - line.fixed_s)
            shares = tuples * (seconds / total) if total else np.full(tuples.size, seconds / max(1, tuples.size))
            rows = self._rows_of(fragments)
            kept = np.minimum(1.0, self.window / np.maximum(self._tuples[rows] + tuples, 1.0))
            self._tuples[rows] = (self._tuples[rows] + tuples) * kept
            self._seconds[rows] = (self._seconds[rows] + shares) * kept
            self._processed[rows] += tuples

    def note_batch(self, batch: GroupBatch, seconds: float) -> None:
        """As `note`, for a group's input."""
        tuples = np.zeros(len(batch.fragments), np.int64)
        for edge, table in batch.edges.items():
            if edge.port is not None and len(table):
                tuples += _counts(batch.numbers, table.column(FRAGMENT).to_numpy())
        self.note(batch.numbers, tuples, seconds, batch.template.key)

    def tuple_s(self, fragments: Int64s) -> Floats:
        """Time per tuple; those of which nothing is known take as long as the average one (eq. 2)."""
        with self._lock:
            rows = self._rows_of(fragments)
            tuples, seconds = self._tuples[rows], self._seconds[rows]
        known = tuples > 0
        usual = seconds[known].sum() / tuples[known].sum() if known.any() else 0.0
        return np.where(known, seconds / np.maximum(tuples, 1.0), usual)

    def look(self, routing: Routing, exchange: EmbeddedExchange) -> Loads:
        """The loads of all fragments that run now; arrivals are counted from reading to reading."""
        running = [
            f for n, f in routing.fragments.items() if n not in routing.paused and n not in routing.drained and f.ports
        ]
        running.sort(key=lambda f: f.fragment)
        numbers = np.array([f.fragment for f in running], np.int64)
        channels = [c for f in running for c in f.ports]
        owners = np.repeat(np.arange(len(running)), [len(f.ports) for f in running])
        starts, ends = exchange.bounds(channels)
        pending = np.bincount(owners, ends - starts, minlength=len(running)).astype(np.int64)
        with self._lock:
            rows = self._rows_of(numbers)
            received = (pending + self._processed[rows]).astype(np.float64)
            fresh = np.maximum(received - self._received[rows], 0.0)
            known = faded(self._arrived[rows], fresh)
            self._received[rows], self._arrived[rows] = received, known
            arrived = np.nan_to_num(known)
            backlog = np.nan_to_num(np.maximum(pending - fresh - self._fresh[rows], 0.0))
            self._fresh[rows] = fresh
            self._forget(set(routing.fragments))
            keys = {key: n for n, key in enumerate(dict.fromkeys(f.bound.template.key for f in running))}
            if len(self._lines) > 64 + 2 * len(keys):
                self._lines = {key: line for key, line in self._lines.items() if key in keys}
        templates = np.array([keys[f.bound.template.key] for f in running], np.int64)
        bound = np.array([f.slot for f in running], np.int64)
        below = _below(running)
        return Loads(numbers, bound, pending, arrived, self.tuple_s(numbers), templates, below, backlog)

    def _rows_of(self, fragments: Int64s) -> Sequence[int]:
        rows = self._rows
        found = [rows.setdefault(f, len(rows)) for f in fragments.tolist()]
        if len(rows) > self._tuples.size:
            more = max(len(rows), 2 * self._tuples.size) - self._tuples.size
            self._tuples = np.concatenate([self._tuples, np.zeros(more)])
            self._seconds = np.concatenate([self._seconds, np.zeros(more)])
            self._processed = np.concatenate([self._processed, np.zeros(more, np.int64)])
            self._received = np.concatenate([self._received, np.full(more, np.nan)])
            self._arrived = np.concatenate([self._arrived, np.full(more, np.nan)])
            self._fresh = np.concatenate([self._fresh, np.full(more, np.nan)])
        return found

    def _forget(self, living: set[FragmentId]) -> None:
        """Gives rows back when most of them belong to fragments that are gone."""
        if len(self._rows) > 64 and len(self._rows) > 2 * len(living):
            kept = [(f, row) for f, row in self._rows.items() if f in living]
            rows = [row for _, row in kept]
            self._rows = {f: i for i, (f, _) in enumerate(kept)}
            room = max(64, len(kept))
            for name in ("_tuples", "_seconds", "_processed", "_received", "_arrived", "_fresh"):
                old = getattr(self, name)
                new = np.full(room, np.nan if name in ("_received", "_arrived", "_fresh") else 0, old.dtype)
                new[: len(kept)] = old[rows]
                setattr(self, name, new)


def _below(running: Sequence[Installed]) -> Int64s:
    """For each fragment the row of the first one that reads its results."""
    reader = {channel: row for row, f in enumerate(running) for channel in f.ports}
    found = (next((reader[w.channel] for out in f.outputs for w in out if w.channel in reader), -1) for f in running)
    return np.fromiter(found, np.int64, len(running))


def _counts(numbers: Int64s, of_rows: Int64s) -> Int64s:
    """Rows per fragment; `numbers` ascend."""
    if numbers.size == 1:
        return np.array([of_rows.size], np.int64)
    span = int(numbers[-1] - numbers[0]) + 1
    if span <= 16 * (of_rows.size + numbers.size):
        found: Int64s = np.bincount(of_rows - numbers[0], minlength=span)[numbers - numbers[0]]
        return found
    return np.bincount(np.searchsorted(numbers, of_rows), minlength=numbers.size)
