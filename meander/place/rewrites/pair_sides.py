"""The two sides of a pair: which conditions concern one of them alone, and so can be asked before the pair is made."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.expressions.tree import Column, Expression, columns
from meander.model.operators import Conjunction, JoinKind, Sequence, WindowJoin
from meander.model.schema import Kind, Schema, beside
from meander.place.rewrites.draft import substituted

Pair = WindowJoin | Conjunction | Sequence
Split = tuple[list[Expression], list[Expression], list[Expression]]
PAIRS = (WindowJoin, Conjunction, Sequence)
_INEXACT = (Kind.FLOAT, Kind.DOUBLE, Kind.ARRAY)
"""Types whose equal values are not all the same: there are two zeros."""


@dataclass(frozen=True)
class PairSides:
    """Columns of a pair, by side: their names in the pair, and what these are in the side's own schema."""

    left: dict[str, Expression]
    right: dict[str, Expression]
    equal: tuple[dict[str, Expression], dict[str, Expression]]
    """Keys by their name in the pair: the left side's as columns of the right one, and the other way."""

    @staticmethod
    def of(operator: Pair, left: Schema, right: Schema) -> PairSides:
        names = beside(left, right).names[len(left) :]
        numbered = dict(zip(right.names, names, strict=True))
        keys = operator.keys if isinstance(operator, WindowJoin) else ()
        exact = [(a, b) for a, b in keys if left.type_of(a).kind not in _INEXACT]
        return PairSides(
            {n: Column(n, left.type_of(n)) for n in left.names},
            {numbered[n]: Column(n, right.type_of(n)) for n in right.names},
            (
                {a: Column(b, right.type_of(b)) for a, b in exact},
                {numbered[b]: Column(a, left.type_of(a)) for a, b in exact},
            ),
        )

    def split(self, parts: tuple[Expression, ...], may: tuple[bool, bool]) -> Split:
        """Conditions over the left side, over the right side, and the others; `may` says on which sides a condition may
        be asked. Where it may on both, what is asked of a key of one side holds for the other side's as well."""
        left: list[Expression] = []
        right: list[Expression] = []
        both: list[Expression] = []
        for part in parts:
            read = columns(part)
            if may[0] and read and read <= self.left.keys():
                left.append(part)
                right += [substituted(part, self.equal[0])] if read <= self.equal[0].keys() and may[1] else []
            elif may[1] and read and read <= self.right.keys():
                right.append(substituted(part, self.right))
                left += [substituted(part, self.equal[1])] if read <= self.equal[1].keys() and may[0] else []
            else:
                both.append(part)
        return left, right, both


def above(operator: Pair) -> tuple[bool, bool]:
    """On which sides conditions on the results may be asked before: where a side may be missing, nulls come in."""
    kind = operator.kind if isinstance(operator, WindowJoin) else JoinKind.INNER
    return kind not in (JoinKind.RIGHT, JoinKind.FULL), kind in (JoinKind.INNER, JoinKind.RIGHT)


def inside(operator: Pair) -> tuple[bool, bool]:
    """On which sides conditions of the pair itself may be asked before: where no tuple is given without a partner."""
    kind = operator.kind if isinstance(operator, WindowJoin) else JoinKind.INNER
    return (
        kind in (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI),
        kind not in (JoinKind.RIGHT, JoinKind.FULL),
    )
