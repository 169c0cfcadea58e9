"""Sequence: a left tuple, then strictly later a right one within a time.

Nothing is consumed: every left tuple is paired with every right tuple that follows it in time, which is the only policy
that does not depend on the order in which tuples arrive.
"""

from __future__ import annotations

from meander.model.operators import Sequence
from meander.model.schema import Schema
from meander.run.operators.pairs import Pairs, after
from meander.run.operators.state import Stateful


def prepare(operator: Sequence, inputs: tuple[Schema, ...]) -> Stateful:
    left, right = inputs
    return Pairs((left, right), after(operator.within_ms), (), operator.condition, operator.lateness_ms)
