"""Window aggregate: one row for each window and key. How depends on the kind of window."""

from __future__ import annotations

from meander.model.operators import WindowAggregate
from meander.model.schema import Schema
from meander.model.windows import Count, Session, Sliding, Tumbling
from meander.run.operators.count_window import CountWindow
from meander.run.operators.session_window import SessionWindow
from meander.run.operators.state import Stateful
from meander.run.operators.time_window import TimeWindow


def prepare(operator: WindowAggregate, inputs: tuple[Schema, ...]) -> Stateful:
    match operator.window:
        case Tumbling() | Sliding() as window:
            return TimeWindow(operator, window)
        case Session() as window:
            return SessionWindow(operator, window)
        case Count() as window:
            return CountWindow(operator, window)
