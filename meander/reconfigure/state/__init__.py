"""Migration queries: state on its way from an operator's old place to its new one.

A source reads chunks, a sink takes them in. `in_process` does this within one host, `pull` between sites. Names are
loaded when they are first used: a process that only takes state in needs none of the steps by which it is replayed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meander.reconfigure.state.hops import Forwarding, Hop
    from meander.reconfigure.state.in_process import Migration
    from meander.reconfigure.state.job import Job, MoveState, StateMove
    from meander.reconfigure.state.source import SourceOptions
    from meander.reconfigure.state.strategies import STATE_STRATEGIES, state_strategy
    from meander.reconfigure.state.strategy import StateStrategy

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

_MODULES = ("hops", "in_process", "job", "source", "strategies", "strategy")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
