"""Window join: pairs with equal keys, in one window or close to each other. Null keys equal nothing."""

from __future__ import annotations

from meander.model.operators import JoinKind, WindowJoin
from meander.model.schema import Schema
from meander.model.windows import Between, PairWindow, Sliding, Tumbling, Within
from meander.run.operators.outer_pairs import OuterPairs
from meander.run.operators.pairs import Matching, Pairs, between, in_windows, within
from meander.run.operators.state import Stateful


def prepare(operator: WindowJoin, inputs: tuple[Schema, ...]) -> Stateful:
    left, right = inputs
    given = (left, right), matching(operator.window), operator.keys, operator.condition, operator.lateness_ms
    return Pairs(*given) if operator.kind is JoinKind.INNER else OuterPairs(*given, operator.kind)


def matching(window: PairWindow) -> Matching:
    match window:
        case Within(span_ms):
            return within(span_ms)
        case Between(low_ms, high_ms):
            return between(low_ms, high_ms)
        case Tumbling(size_ms):
            return in_windows(size_ms, size_ms)
        case Sliding(size_ms, slide_ms):
            return in_windows(size_ms, slide_ms)
