"""The ordered table of state strategies."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.run.migration.migration_query import MIGRATION_QUERY
from meander.run.migration.replay import REPLAY
from meander.run.migration.store_and_forward import STORE_AND_FORWARD
from meander.run.migration.strategy import StateStrategy

STATE_STRATEGIES: tuple[StateStrategy, ...] = (MIGRATION_QUERY, STORE_AND_FORWARD, REPLAY)


def state_strategy(name: str) -> StateStrategy:
    """The strategy of a name, or an error that names them all."""
    for candidate in STATE_STRATEGIES:
        if candidate.name == name:
            return candidate
    raise unknown("state strategy", name, (s.name for s in STATE_STRATEGIES), plural="state strategies")
