"""Hashes of rows by their keys: equal keys have equal hashes, as Spark understands equal.

Others may have equal hashes too; the plan of the step sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UInt64s = npt.NDArray[np.uint64]

_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_BASE = np.uint64(0x100000001B3)
_SHIFT = np.uint64(32)

WHOLE = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_date)
TEXT = (pa.types.is_string, pa.types.is_binary)


def can_hash(type_: pa.DataType) -> bool:
    """Whether keys of a type can be hashed."""
    return any(is_kind(type_) for is_kind in (*WHOLE, *TEXT, pa.types.is_floating))


def key_hashes(keys: Sequence[pa.ChunkedArray]) -> UInt64s:
    """A hash for each row of all its keys. Null is a key like any other."""
    found = np.zeros(len(keys[0]), np.uint64)
    for key in keys:
        found = _mixed(found) ^ _values(key)
    return found


def owned(hashes: UInt64s, owners: npt.NDArray[np.integer]) -> UInt64s:
    """Hashes that are others for each owner."""
    return _mixed(_mixed(hashes) ^ owners.astype(np.uint64))


def _mixed(numbers: UInt64s) -> UInt64s:
    """Numbers that follow a pattern, spread over all numbers."""
    numbers = (numbers ^ (numbers >> _SHIFT)) * _FIRST
    numbers = (numbers ^ (numbers >> _SHIFT)) * _SECOND
    spread: UInt64s = numbers ^ (numbers >> _SHIFT)
    return spread


def _values(key: pa.ChunkedArray) -> UInt64s:
    whole = key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
    if isinstance(whole, pa.ChunkedArray):  # of no chunk at all
        whole = pa.array([], key.type)
    if pa.types.is_floating(whole.type):
        numbers = pc.fill_null(whole, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        bits: UInt64s = (np.where(np.isnan(numbers), np.nan, numbers) + 0.0).view(np.uint64)  # one NaN, no zero below 0
        return bits
    if any(is_kind(whole.type) for is_kind in TEXT):
        return _bytes(whole)
    if pa.types.is_date32(whole.type):
        whole = whole.cast(pa.int32())
    if whole.type != pa.int64() or whole.null_count:
        whole = pc.fill_null(whole.cast(pa.int64()), 0)
    found: UInt64s = whole.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return found


def _bytes(texts: pa.Array) -> UInt64s:
    """A polynomial of the bytes of each text, and a number of its own for null."""
    _, places, data = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint64)
    ends = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    lengths = np.diff(ends)
    letters = np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    place = np.arange(last - first) - np.repeat(ends[:-1] - first, lengths)
    weights = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _BASE))
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum((letters.astype(np.uint64) + np.uint64(1)) * weights[place])]
    )
    found: UInt64s = sums[ends[1:] - first] - sums[ends[:-1] - first] + lengths.astype(np.uint64)
    if texts.null_count:
        found = np.where(texts.is_null().to_numpy(zero_copy_only=False), _BASE, found)
    return found
