"""A source that gives tuples at an even rate while it is open, and all of a past time at once when it is opened.

Numbers follow from time alone, so the n-th tuple of two taps is due at the same moment. Keys are spread over a range.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model.streams import Stream
from meander.run.connectors.base import Polled
from meander.run.frames import arrow_schema

ROADS = 10
MIXER = np.uint64(0x9E3779B97F4A7C15)


class Tap:
    """Implements `SourceConnector`, `Scheduled` and `Announcing`. Nothing can be read again: for measuring only."""

    def __init__(self, stream: Stream, keys: int) -> None:
        self.stream, self.keys = stream, keys
        self._salt = np.uint64(sum(stream.name.encode()))
        self._rate_tps = 0.0
        self._taken = 0
        self._lock = threading.Lock()
        self._arrived: Callable[[], None] = lambda: None

    def turn_on(self, rate_tps: float, past_s: float, now_s: float) -> None:
        """From now on, and of a past time as well."""
        with self._lock:
            self._rate_tps, self._taken = rate_tps, int((now_s - past_s) * rate_tps)
        self._arrived()

    def turn_off(self) -> None:
        with self._lock:
            self._rate_tps = 0.0

    def announce(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """Begins when it is turned on."""

    def next_ms(self) -> int | None:
        with self._lock:
            return int(np.ceil((self._taken + 1) / self._rate_tps * 1000)) if self._rate_tps else None

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        with self._lock:
            if not self._rate_tps:
                return None
            due = int(time.time() * self._rate_tps)
            numbers = np.arange(self._taken, min(due, self._taken + most_rows), dtype=np.int64) + 1
            if not numbers.size:
                return None
            self._taken = int(numbers[-1])
            table = self._table(numbers, (numbers / self._rate_tps * 1e6).astype(np.int64))
            return Polled(table, np.zeros(len(table), np.int64), self._taken, more=self._taken < due)

    def _table(self, numbers: npt.NDArray[np.int64], times_us: npt.NDArray[np.int64]) -> pa.Table:
        mixed = (numbers.astype(np.uint64) + self._salt) * MIXER >> np.uint64(24)
        values: dict[str, Any] = {
            "ts": times_us,
            "id": (mixed % np.uint64(self.keys)).astype(np.int64),
            "road": numbers % ROADS,
            "speed": (numbers % 40).astype(np.float64),
            "mm": (numbers % 8).astype(np.float64),
        }
        schema = arrow_schema(self.stream.schema)
        return pa.table([pa.array(values[f.name]).cast(f.type) for f in schema], schema=schema)

    def committed(self) -> None:
        """Does nothing: no sender waits for it."""

    def close(self) -> None:
        """Nothing is open."""
