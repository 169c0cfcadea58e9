"""Each producer's newest event time, and the watermarks that follow from it, for all producers of a stream at once."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from meander.run.channels.base import Int64s
from meander.run.frames import BEGIN, END

_SAFE = 2**62


def newest_before(times: Int64s, counts: Int64s, newest: Int64s) -> tuple[Int64s, Int64s]:
    """The newest event time of its producer before each tuple, and that of each producer after all of them.

    Tuples lie by producer, `counts` each; `newest` is what the producers had before.

    >>> before, after = newest_before(np.array([5, 9, 7, 20]), np.array([3, 0, 1]), np.array([6, 8, 2]))
    >>> before.tolist(), after.tolist()
    ([6, 6, 9, 2], [9, 8, 20])
    """
    after = newest.copy()
    present = np.flatnonzero(counts)
    if not present.size:
        return np.empty(0, np.int64), after
    if present.size == 1:
        (only,) = present
        running = np.maximum(np.maximum.accumulate(times), newest[only])
        after[only] = running[-1]
        return np.concatenate([newest[present], running[:-1]]), after
    sizes = counts[present] + 1
    ends = np.cumsum(sizes)
    values = np.empty(int(ends[-1]), np.int64)
    first = np.zeros(values.size, bool)
    first[ends - sizes] = True
    base = int(times.min())
    values[~first] = times - base + 1
    values[first] = np.maximum(newest[present], base - 1) - base + 1
    span = int(values.max()) + 1
    if span < _SAFE // max(1, present.size):  # each producer on a level of its own: one pass for all of them
        level = np.repeat(np.arange(present.size, dtype=np.int64) * span, sizes)
        running = np.maximum.accumulate(values + level) - level
    else:
        running = np.concatenate([np.maximum.accumulate(part) for part in np.split(values, ends[:-1])])
    found = np.where(running > 0, running + base - 1, np.repeat(newest[present], sizes))
    after[present] = found[ends - 1]
    return found[np.flatnonzero(~first) - 1], after


def watermarks(newest: Int64s, disorder_ms: int) -> Int64s:
    """The watermark of a producer whose newest event time is given; END stays END."""
    return np.where(newest >= END, END, np.maximum(newest - disorder_ms, BEGIN))


def packed(newest: Int64s) -> str:
    """A short text for many times."""
    return base64.b64encode(zlib.compress(np.diff(newest, prepend=np.int64(0)).tobytes(), 1)).decode()


def unpacked(text: str) -> Int64s:
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), np.int64)).astype(np.int64)
