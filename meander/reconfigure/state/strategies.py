"""The ordered table of state strategies."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.reconfigure.state.migration_query import MIGRATION_QUERY, STOP_AND_COPY
from meander.reconfigure.state.replay import REPLAY
from meander.reconfigure.state.store_and_forward import STORE_AND_FORWARD
from meander.reconfigure.state.strategy import StateStrategy

STATE_STRATEGIES: tuple[StateStrategy, ...] = (MIGRATION_QUERY, STOP_AND_COPY, STORE_AND_FORWARD, REPLAY)


def state_strategy(name: str) -> StateStrategy:
    """The strategy of a name, or an error that names them all."""
    for candidate in STATE_STRATEGIES:
        if candidate.name == name:
            return candidate
    raise unknown("state strategy", name, (s.name for s in STATE_STRATEGIES), plural="state strategies")
