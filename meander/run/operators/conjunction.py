"""Conjunction: pairs in one window or close to each other, in either order, without keys."""

from __future__ import annotations

from meander.model.operators import Conjunction
from meander.model.schema import Schema
from meander.run.operators.pairs import Pairs
from meander.run.operators.state import Stateful
from meander.run.operators.window_join import matching


def prepare(operator: Conjunction, inputs: tuple[Schema, ...]) -> Stateful:
    left, right = inputs
    return Pairs((left, right), matching(operator.window), (), operator.condition, operator.lateness_ms)
