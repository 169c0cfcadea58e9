"""Keys and bounds of a join, as ON says them: equalities of both sides, and how far apart in time tuples may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.expressions.functions import call, cast
from meander.model.expressions.tree import TRUE, Call, Column, Expression, Literal, Named, columns, conjuncts, renamed
from meander.model.schema import Schema, common_type, fresh
from meander.model.windows import Between, PairWindow, Within

_MICROS_A_MS = 1_000
_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass
class KeySides:
    """The keys of a join so far, and the columns that its sides get for them."""

    left: Schema
    right: Schema
    taken: set[str]
    keys: dict[tuple[str, str], None] = field(default_factory=dict)
    added: tuple[list[Named], list[Named]] = field(default_factory=lambda: ([], []))

    def take(self, part: Expression, originals: Mapping[str, str]) -> bool:
        """Whether a condition is a key; `originals` are the names of right columns on their own side."""
        match part:
            case Call("=", (one, other)):
                read = [columns(each) for each in (one, other)]
                if not all(read) or not any(each <= originals.keys() for each in read):
                    return False
                mine, theirs = (other, one) if read[0] <= originals.keys() else (one, other)
                if columns(mine) & originals.keys():
                    return False
                self._add(mine, renamed(theirs, originals))
                return True
        return False

    def _add(self, mine: Expression, theirs: Expression) -> None:
        if not (isinstance(mine, Column) and isinstance(theirs, Column)):
            common = common_type(mine.type, theirs.type)
            if common is not None:
                mine, theirs = cast(mine, common), cast(theirs, common)
        self.keys[self._column(0, mine), self._column(1, theirs)] = None

    def _column(self, side: int, key: Expression) -> str:
        if isinstance(key, Column):
            return key.name
        known = next((n.name for n in self.added[side] if n.expression == key), None)
        if known is not None:
            return known
        (name,) = fresh([f"key_{len(self.added[side]) + 1}"], self.taken)
        self.taken.add(name)
        self.added[side].append(Named(name, key))
        return name


def bound_of(on: Expression, left_time: str | None, right_time: str | None) -> tuple[PairWindow | None, Expression]:
    """How far apart in time the tuples of a join are, if ON says it, and what else it asks.

    Names are those in the pair. Both a least and a most distance must be there: a tuple cannot wait for ever.
    """
    if left_time is None or right_time is None:
        return None, on
    low: list[int] = []
    high: list[int] = []
    rest: list[Expression] = []
    for part in conjuncts(on):
        limits = _limits(part, left_time, right_time)
        if limits is None:
            rest.append(part)
        for at_least, ms in limits or ():
            (low if at_least else high).append(ms)
    if not low or not high:
        return None, on
    first, last = max(low), min(high)
    window: PairWindow = Within(last) if first == -last and last > 0 else Between(first, last)
    return window, TRUE if not rest else rest[0] if len(rest) == 1 else call("and", *rest)


def _limits(part: Expression, left: str, right: str) -> list[tuple[bool, int]] | None:
    """Limits of the right side's time less the left side's: whether it is the least, and the ms."""
    match part:
        case Call("between", (value, low, high)):
            limits = [_limit(">=", value, low, left, right), _limit("<=", value, high, left, right)]
        case Call(comparison, (value, other)) if comparison in _MIRROR:
            limits = [_limit(comparison, value, other, left, right)]
        case _:
            return None
    found = [limit for limit in limits if limit is not None]
    return found if len(found) == len(limits) else None


def _limit(comparison: str, value: Expression, other: Expression, left: str, right: str) -> tuple[bool, int] | None:
    one, two = _moment(value), _moment(other)
    if one is None or two is None or {one[0], two[0]} != {left, right}:
        return None
    if one[0] == left:
        one, two, comparison = two, one, _MIRROR[comparison]
    micros = two[1] - one[1]  # right (comparison) left + micros
    if micros % _MICROS_A_MS:
        raise InputError("event times have milliseconds; write a distance of whole milliseconds")
    ms = micros // _MICROS_A_MS
    strict = comparison in ("<", ">")
    return (True, ms + strict) if comparison.startswith(">") else (False, ms - strict)


def _moment(expression: Expression) -> tuple[str, int] | None:
    """A column and how many microseconds later."""
    match expression:
        case Column(name):
            return name, 0
        case Call("timestamp_micros", (Call("+", (Call("unix_micros", (Column(name),)), Literal(int() as micros))),)):
            return name, micros
        case Call("+" | "-" as sign, (Column(name), Literal(int() as ms))) if not isinstance(ms, bool):
            return name, (ms if sign == "+" else -ms) * _MICROS_A_MS  # an event time that is a number of milliseconds
    return None
