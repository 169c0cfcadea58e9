"""Random numbers that are functions: of a producer's key, a salt and a tuple's index. Nothing has to be remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def key(*parts: object) -> np.uint64:
    """A key from names and seeds, the same on every machine."""
    return np.uint64(int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest(), "big"))


def keys(names: Iterable[str], *parts: object) -> Keys:
    """A key for each name."""
    return np.array([key(*parts, name) for name in names], np.uint64)


def bits(keys: Keys, index: Int64s, salt: np.uint64) -> Keys:
    """64 random bits for each key and index (splitmix64)."""
    with np.errstate(over="ignore"):
        value = (keys ^ salt) + (index.astype(np.uint64) + np.uint64(1)) * _STEP
        value = (value ^ (value >> _30)) * _FIRST
        value = (value ^ (value >> _27)) * _SECOND
        result: Keys = value ^ (value >> _31)
        return result


def uniform(keys: Keys, index: Int64s, salt: np.uint64) -> Floats:
    """A number in [0, 1) for each key and index."""
    result: Floats = (bits(keys, index, salt) >> _11).astype(np.float64) * 2.0**-53
    return result


def whole(keys: Keys, index: Int64s, salt: np.uint64, below: int) -> Int64s:
    """A whole number in [0, below) for each key and index."""
    return (uniform(keys, index, salt) * below).astype(np.int64)
