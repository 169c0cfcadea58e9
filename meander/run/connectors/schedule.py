"""The schedule of generators: tuple k of a producer is due at a fixed time, so a moment determines all tuples emitted
before.

The whole position of a generator is therefore one time, however many producers it has. Producers are shifted against
each other, so that slow ones do not all emit at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meander.run.connectors.noise import Floats, Int64s, Keys


@dataclass(frozen=True, slots=True)
class Due:
    """Tuples that are due, by producer and then by index."""

    producer: Int64s
    index: Int64s
    """Number of the tuple within its producer."""
    emitted_ms: Int64s
    elapsed_s: Floats
    """Time since the beginning of the stream."""
    keys: Keys
    """The key of each tuple's producer."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Producers that emit `rate_tps` tuples a second each, from `epoch_ms` on; at most `tuples` each."""

    epoch_ms: int
    rate_tps: float
    phases: Floats
    """The point in its period at which each producer emits, in [0, 1)."""
    keys: Keys
    tuples: int | None = None

    def due_before(self, time_ms: int) -> Int64s:
        """The number of tuples of each producer that are due up to and including a time."""
        periods = (time_ms - self.epoch_ms) * self.rate_tps / 1000 - self.phases
        counts = np.maximum(np.floor(periods).astype(np.int64) + 1, 0)
        return counts if self.tuples is None else np.minimum(counts, self.tuples)

    def between(self, after_ms: int, until_ms: int) -> Due:
        """The tuples due after one time, up to and including another."""
        first, last = self.due_before(after_ms), self.due_before(until_ms)
        counts = last - first
        producer = np.repeat(np.arange(counts.size), counts)
        starts = np.cumsum(counts) - counts
        index = np.arange(producer.size) - np.repeat(starts - first, counts)
        exact_ms = (index + self.phases[producer]) * (1000 / self.rate_tps)
        emitted = self.epoch_ms + np.floor(exact_ms).astype(np.int64)
        return Due(producer, index, emitted, exact_ms / 1000, self.keys[producer])

    def end_for(self, after_ms: int, until_ms: int, most_rows: int) -> int:
        """A time up to which at most about `most_rows` tuples are due; at least a millisecond goes by."""
        per_ms = self.rate_tps * max(1, self.phases.size) / 1000
        return min(until_ms, after_ms + max(1, int(most_rows / per_ms)))

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after another at which a tuple is due, or at which the last one was; None behind that."""
        last_ms = self.last_ms
        if last_ms is not None and after_ms >= last_ms:
            return None
        counts = self.due_before(after_ms)
        exact_ms = (counts + self.phases) * (1000 / self.rate_tps)
        open_ms = exact_ms if self.tuples is None else exact_ms[counts < self.tuples]
        if not open_ms.size:
            return last_ms
        return self.epoch_ms + max(int(np.ceil(open_ms.min())), after_ms + 1 - self.epoch_ms)

    @property
    def last_ms(self) -> int | None:
        """The time of the last tuple."""
        if self.tuples is None:
            return None
        return self.epoch_ms + int(np.ceil(self.tuples * 1000 / self.rate_tps)) + 1
