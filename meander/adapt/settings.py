"""The settings of the loop: how it chooses, its exploration, its tolerance and its caution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.adapt.monitors.churn import Churn
from meander.adapt.monitors.mobility import Mobility
from meander.adapt.monitors.workload import Workload
from meander.model.conditions import Fact

BY_DEMANDS = "by_demands"
"""Instead of a first mechanism: it is chosen from the demands of each query."""


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """All times in ms. The names, values and checks for users are in `setting_layers.SETTINGS`."""

    act: bool = True
    """Whether decisions are carried out; otherwise they are only logged."""
    first: str = BY_DEMANDS
    """The mechanism that a query begins with."""
    selector: str = "linear_ranking"
    exploration: float = 0.05
    """The share of periodic looks at which linear ranking draws a mechanism by rank; at 0 nothing is tried out."""
    try_early: bool = False
    """Whether another mechanism may be tried out before a query has given its first result."""
    mechanisms: tuple[str, ...] = ()
    """The mechanisms that may be chosen; empty for all."""
    protocol: str = "auto"
    """The protocol of automatic transitions."""
    stay_ms: int = 5_000
    """A mechanism stays at least this long, so that it can be judged and queries do not oscillate."""
    period_ms: int = 30_000
    """The interval of planning a query when nothing happens."""
    violated_rounds: int = 2
    """Rounds in a row with a violated demand before something is done about it."""
    margin: float = 0.1
    """Hysteresis: the share of demands that a switch must be expected to win."""
    payback_ms: int = 300_000
    """A switch must be expected to make up for its transition within so long."""
    retry_ms: int = 5_000
    """After a violation that nothing can be done about, the time until the next try; doubles each time up to
    `longest_retry_ms`."""
    longest_retry_ms: int = 60_000
    quarantine_ms: int = 60_000
    """A mechanism that raised or took too long is not asked for this time; doubles each time."""
    churn_levels: tuple[float, ...] = Churn.levels
    mobility_levels: tuple[float, ...] = Mobility.levels
    workload_levels: tuple[float, ...] = Workload.levels
    plans_per_round: int = 50
    """Queries that are planned in one round, as planning may ask every mechanism."""
    zone: str = "UTC"
    """The time zone of `hour` and `weekday` in conditions."""

    @property
    def levels(self) -> Mapping[Fact, tuple[float, ...]]:
        """Values at which the environment counts as a different one."""
        return {
            Fact.CHURN: self.churn_levels,
            Fact.MOBILITY: self.mobility_levels,
            Fact.WORKLOAD: self.workload_levels,
        }
