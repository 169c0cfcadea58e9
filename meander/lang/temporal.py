"""Constants of time in expressions: timestamps, dates, intervals, and the parts of a time that EXTRACT names."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from fractions import Fraction

from sqlglot import exp

from meander.model.errors import InputError, unknown
from meander.model.expressions.tree import Literal
from meander.model.schema import DATE, TIMESTAMP, DataType

MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
"""Units of an interval. Days have 24 hours, as the time zone is UTC."""

EXTRACTED = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}
"""Units of EXTRACT, and the functions that give them."""


_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,9})?")


def interval_of(node: exp.Interval) -> tuple[int, str]:
    """The amount and the unit of an interval: of days where it is whole days, otherwise of microseconds or larger.

    Written `INTERVAL 5 MINUTES`, `INTERVAL '5' MINUTE` or `INTERVAL '1 hour 30 minutes'`.
    """
    parts = (part.name for part in (node.this, node.args.get("unit")) if part is not None)
    words = " ".join(parts).lower().split()
    total = Fraction(0)
    for amount, unit in zip(words[::2], words[1::2], strict=False):
        name = unit.removesuffix("s")
        if name in ("month", "year", "quarter"):
            raise InputError("months differ in length; write add_months(date, n) instead of an INTERVAL")
        if name not in MICROS:
            raise unknown("unit of INTERVAL", unit, list(MICROS))
        if not _NUMBER.fullmatch(amount):
            raise InputError(f"{amount!r} is no number of {name}s; write for example INTERVAL 5 MINUTES")
        total += Fraction(amount) * MICROS[name]
    if len(words) % 2 or not words or total.denominator != 1:
        raise InputError("an INTERVAL is written like INTERVAL 5 MINUTES or INTERVAL '1 hour 30 minutes'")
    if abs(total) >= 2**63:
        raise InputError("this INTERVAL is too long")
    days, rest = divmod(int(total), MICROS["day"])
    return (int(total), "microsecond") if rest else (days, "day")


def temporal_literal(text: str, type_: DataType) -> Literal:
    """A timestamp (in UTC) or date, in one spelling.

    >>> temporal_literal("2026-03-01T12:00+01:00", TIMESTAMP).value
    '2026-03-01 11:00:00'
    """
    try:
        if type_ == DATE:
            return Literal(date.fromisoformat(text.strip()).isoformat(), DATE)
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        example = "2026-03-01" if type_ == DATE else "2026-03-01 12:30:00"
        raise InputError(f"{text!r} is not a {type_}; write it like '{example}'") from None
    utc = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return Literal(utc.isoformat(sep=" "), TIMESTAMP)
