"""Durations, sizes and rates as people write them: "10s", "1.5 min", "64MB", "1kHz"."""

from __future__ import annotations

import re

from meander.model.errors import InputError

DURATION_UNITS_MS: dict[str, float] = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "seconds": 1000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
SIZE_UNITS_BYTES: dict[str, float] = {"b": 1, "byte": 1, "bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
RATE_UNITS_HZ: dict[str, float] = {"hz": 1, "khz": 1e3, "mhz": 1e6, "/s": 1, "/min": 1 / 60, "/h": 1 / 3600}
_QUANTITY = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*$")


def quantity(text: str, units: dict[str, float], kind: str, default: str | None = None) -> float:
    """The number in base units.

    >>> quantity("1.5 min", DURATION_UNITS_MS, "duration")
    90000.0
    """
    match = _QUANTITY.match(text)
    if not match:
        raise InputError(f"{text!r} is not a {kind}; write a number and a unit, such as {_example(units)}")
    number, unit = float(match.group(1)), match.group(2).lower() or default
    if unit is None:
        raise InputError(f"{kind} {text!r} has no unit; write one of {_listed(units)}")
    if unit not in units:
        raise InputError(f"unknown {kind} unit {match.group(2)!r} in {text!r}; known units: {_listed(units)}")
    return number * units[unit]


def duration_ms(text: str) -> int:
    """A positive duration in whole milliseconds."""
    value = quantity(text, DURATION_UNITS_MS, "duration")
    if value < 1 or value != int(value):
        raise InputError(f"duration {text!r} must be a whole number of milliseconds, at least 1 ms")
    return int(value)


def size_bytes(text: str) -> int:
    """A size in bytes; MB are millions of bytes."""
    value = quantity(text, SIZE_UNITS_BYTES, "size")
    if value < 0:
        raise InputError(f"size {text!r} must not be negative")
    return int(value)


def show_duration(ms: int) -> str:
    """The shortest exact text for a duration.

    >>> show_duration(90000), show_duration(120000)
    ('90 s', '2 min')
    """
    for unit in ("d", "h", "min", "s"):
        size = int(DURATION_UNITS_MS[unit])
        if ms % size == 0 and ms:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def _listed(units: dict[str, float]) -> str:
    return ", ".join(units)


def _example(units: dict[str, float]) -> str:
    return "10 s" if units is DURATION_UNITS_MS else f"10 {list(units)[-1]}"
