"""The partition function: a hash of the whole tuple, seen as a position in a ring of slots.

Every tuple has one position, computed from the tuple alone, at its source and again at the node that joins it. A part
is a range of positions. Nova's fractions become ranges by rounding down, so parts that touch as fractions touch as
ranges: nothing is between them, and nothing is in two.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model.expressions.functions import call
from meander.model.expressions.tree import Call, Column, Expression, Literal
from meander.model.schema import BIGINT, Schema

SLOTS = 1 << 16
"""Positions that a tuple can have."""

Slots = tuple[int, int]
"""A range of positions: from, up to but not including."""

EVERYTHING: tuple[Slots, ...] = ((0, SLOTS),)


def slots_of(cells: range, parts: int) -> Slots:
    """The positions of some of a stream's partitions.

    >>> slots_of(range(1, 2), 2)
    (32768, 65536)
    """
    return cells.start * SLOTS // parts, cells.stop * SLOTS // parts


def together(ranges: Iterable[Slots]) -> tuple[Slots, ...]:
    """The positions that some ranges cover, as few ranges as possible.

    >>> together([(5, 9), (0, 2), (2, 6)])
    ((0, 9),)
    """
    found: list[Slots] = []
    for low, high in sorted(r for r in ranges if r[0] < r[1]):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def predicate(schema: Schema, ranges: tuple[Slots, ...]) -> Expression:
    """Whether a tuple's position is in one of the ranges."""
    whole = call("xxhash64", _number(0), *(Column(f.name, f.type) for f in schema))
    position = call("pmod", whole, _number(SLOTS))
    inside = [call("between", position, _number(low), _number(high - 1)) for low, high in ranges]
    return inside[0] if len(inside) == 1 else call("or", *inside)


def share_of(expression: Expression) -> float | None:
    """The share of a stream that passes a predicate made here; None for any other predicate."""
    tests = expression.args if isinstance(expression, Call) and expression.function == "or" else (expression,)
    total = 0
    for test in tests:
        match test:
            case Call("between", (Call("pmod", (Call("xxhash64"), Literal(value=found))), low, high)) if found == SLOTS:
                assert isinstance(low, Literal)
                assert isinstance(high, Literal)
                total += int(high.value or 0) - int(low.value or 0) + 1
            case _:
                return None
    return total / SLOTS


def _number(value: int) -> Literal:
    return Literal(value, BIGINT)
