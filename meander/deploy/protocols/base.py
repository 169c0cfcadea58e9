"""The interface of deployment protocols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meander.deploy.fragments import Deployment, DeploymentChange
from meander.model.global_plan import GlobalPlan

Widening = Callable[[GlobalPlan, Deployment, DeploymentChange], DeploymentChange]
"""Makes a change touch more than it must."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The way of running queries from one deployment to the next."""

    name: str
    about: str
    widening: Widening | None = None
    state: str = "migration_query"
    """The strategy by which state gets to its new place."""
    one_by_one: bool = False
    """Whether fragments are redeployed one after the other, each when the one before is done."""
    overlaps: bool = False
    """Whether operators run at both places for a while instead of moving their state."""
