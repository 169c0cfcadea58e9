"""Window join: pairs with equal keys, in one window or close to each other. Null keys equal nothing."""

from __future__ import annotations

from meander.model.operators import WindowJoin
from meander.model.schema import Schema
from meander.model.windows import PairWindow, Sliding, Tumbling, Within
from meander.run.operators.pairs import Matching, Pairs, in_windows, within
from meander.run.operators.state import Stateful


def prepare(operator: WindowJoin, inputs: tuple[Schema, ...]) -> Stateful:
    left, right = inputs
    return Pairs((left, right), matching(operator.window), operator.keys, operator.condition, operator.lateness_ms)


def matching(window: PairWindow) -> Matching:
    match window:
        case Within(span_ms):
            return within(span_ms)
        case Tumbling(size_ms):
            return in_windows(size_ms, size_ms)
        case Sliding(size_ms, slide_ms):
            return in_windows(size_ms, slide_ms)
