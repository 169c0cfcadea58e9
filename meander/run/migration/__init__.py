"""Migration queries: state on its way from an operator's old place to its new one.

A source reads chunks, relays carry them hop by hop, a sink takes them in. `Migration` does this within one process,
`relay`, `sending` and `receiving` over sockets. `STATE_STRATEGIES` is the ordered table of ways to move state.
"""

from __future__ import annotations

from meander.model.errors import unknown
from meander.run.migration.hops import Forwarding, Hop
from meander.run.migration.in_process import Migration
from meander.run.migration.job import Job, MoveState, StateMove
from meander.run.migration.migration_query import MIGRATION_QUERY
from meander.run.migration.source import SourceOptions
from meander.run.migration.store_and_forward import STORE_AND_FORWARD
from meander.run.migration.strategy import StateStrategy

__all__ = [
    "STATE_STRATEGIES",
    "Forwarding",
    "Hop",
    "Job",
    "Migration",
    "MoveState",
    "SourceOptions",
    "StateMove",
    "StateStrategy",
    "state_strategy",
]

STATE_STRATEGIES: tuple[StateStrategy, ...] = (MIGRATION_QUERY, STORE_AND_FORWARD)


def state_strategy(name: str) -> StateStrategy:
    """The strategy of a name, or an error that names them all."""
    for candidate in STATE_STRATEGIES:
        if candidate.name == name:
            return candidate
    raise unknown("state strategy", name, (s.name for s in STATE_STRATEGIES), plural="state strategies")
