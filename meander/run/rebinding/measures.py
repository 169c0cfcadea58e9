"""Measures: how long fragments take per tuple, cheap enough to stay on.

A group runs many fragments as one frame, so nobody knows what one of them took: each gets the share of the group's time
that it has of the group's tuples. Only about the last w tuples of a fragment count: older ones fade as new ones come.
What waits is not counted anew: channels know it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from meander.model.ids import FragmentId
from meander.run.exchange.base import Exchange, Int64s
from meander.run.frames import FRAGMENT
from meander.run.rebinding.loads import Floats, Loads
from meander.run.routing import Installed, Routing
from meander.run.work import Batch

WINDOW = 10_000
"""Tuples of a fragment over which its time per tuple is taken."""


class Measures:
    """Columns by fragment; rows are given out as fragments are first seen."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self._lock = threading.Lock()
        self._rows: dict[int, int] = {}
        self._tuples = np.zeros(64)
        self._seconds = np.zeros(64)
        self._processed = np.zeros(64, np.int64)
        self._received: dict[FragmentId, int] = {}

    def note(self, fragments: Int64s, tuples: Int64s, seconds: float) -> None:
        """A group has taken so long for so many tuples of each of its fragments."""
        total = int(tuples.sum())
        shares = tuples * (seconds / total) if total else np.full(tuples.size, seconds / max(1, tuples.size))
        with self._lock:
            rows = self._rows_of(fragments)
            kept = np.minimum(1.0, self.window / np.maximum(self._tuples[rows] + tuples, 1.0))
            self._tuples[rows] = (self._tuples[rows] + tuples) * kept
            self._seconds[rows] = (self._seconds[rows] + shares) * kept
            self._processed[rows] += tuples

    def note_batch(self, batch: Batch, seconds: float) -> None:
        """As `note`, for what a group has read."""
        tuples = np.zeros(len(batch.fragments), np.int64)
        for edge, table in batch.edges.items():
            if edge.port is not None and len(table):
                tuples += _counts(batch.numbers, table.column(FRAGMENT).to_numpy())
        self.note(batch.numbers, tuples, seconds)

    def tuple_s(self, fragments: Int64s) -> Floats:
        """Time per tuple; those of which nothing is known take as long as the average one (eq. 2)."""
        with self._lock:
            rows = self._rows_of(fragments)
            tuples, seconds = self._tuples[rows], self._seconds[rows]
        known = tuples > 0
        usual = seconds[known].sum() / tuples[known].sum() if known.any() else 0.0
        return np.where(known, seconds / np.maximum(tuples, 1.0), usual)

    def look(self, routing: Routing, exchange: Exchange) -> Loads:
        """The loads of all fragments that run now; `arrived` counts from the look before."""
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
            received = pending + self._processed[rows]
            self._forget(set(routing.fragments))
        before = [self._received.get(f.fragment, int(r)) for f, r in zip(running, received, strict=True)]
        arrived = np.maximum(received - np.array(before, np.int64), 0)
        self._received = {f.fragment: int(r) for f, r in zip(running, received, strict=True)}
        keys = {key: n for n, key in enumerate(dict.fromkeys(f.bound.template.key for f in running))}
        templates = np.array([keys[f.bound.template.key] for f in running], np.int64)
        bound = np.array([f.slot for f in running], np.int64)
        below = _below(running)
        return Loads(numbers, bound, pending, arrived, self.tuple_s(numbers), templates, below)

    def _rows_of(self, fragments: Int64s) -> Sequence[int]:
        rows = self._rows
        found = [rows.setdefault(f, len(rows)) for f in fragments.tolist()]
        if len(rows) > self._tuples.size:
            more = max(len(rows), 2 * self._tuples.size) - self._tuples.size
            self._tuples = np.concatenate([self._tuples, np.zeros(more)])
            self._seconds = np.concatenate([self._seconds, np.zeros(more)])
            self._processed = np.concatenate([self._processed, np.zeros(more, np.int64)])
        return found

    def _forget(self, living: set[FragmentId]) -> None:
        """Gives rows back when most of them belong to fragments that are gone."""
        if len(self._rows) > 64 and len(self._rows) > 2 * len(living):
            kept = [(f, row) for f, row in self._rows.items() if f in living]
            rows = [row for _, row in kept]
            self._rows = {f: i for i, (f, _) in enumerate(kept)}
            room = max(64, len(kept))
            for name in ("_tuples", "_seconds", "_processed"):
                old = getattr(self, name)
                new = np.zeros(room, old.dtype)
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
