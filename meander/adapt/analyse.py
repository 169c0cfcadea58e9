"""From measures to findings: the reading of each metric, the state of the environment, and the trigger that fires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from meander.adapt.decisions import Trigger
from meander.adapt.knowledge import Watched
from meander.adapt.measure_history import MeasureHistory
from meander.adapt.monitors.base import EnvironmentMonitor, Monitor
from meander.adapt.settings import AdaptationSettings
from meander.model.conditions import Fact
from meander.model.demands import Demand, Metric
from meander.model.ids import QueryId

SLACK = 0.1
"""The distance beyond a level's border from which a value counts as on the other side."""


def readings(
    monitors: Mapping[Metric, Monitor], history: MeasureHistory, query: QueryId, since_ms: int, wanted: Iterable[Metric]
) -> dict[Metric, float]:
    """The readings of each wanted metric; metrics without measures are left out."""
    found: dict[Metric, float] = {}
    for metric in dict.fromkeys(wanted):
        monitor = monitors.get(metric)
        spans = history.spans(query, monitor.window_ms, since_ms) if monitor else []
        value = monitor.read(spans) if monitor and spans else None
        if value is not None:
            found[metric] = value
    return found


def unsettled(
    monitors: Mapping[Metric, Monitor], history: MeasureHistory, query: QueryId, since_ms: int, read: Iterable[Metric]
) -> frozenset[Metric]:
    """The metrics among the readings whose value is the time for which something has been waited for."""
    found: set[Metric] = set()
    for metric in read:
        spans = history.spans(query, monitors[metric].window_ms, since_ms)
        if spans and not monitors[metric].is_settled(spans):
            found.add(metric)
    return frozenset(found)


def facts_at(
    environment: Iterable[EnvironmentMonitor], history: MeasureHistory, now_ms: int, zone: str
) -> dict[Fact, float]:
    """The time and the facts of the environment."""
    clock = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone))
    found = {Fact.HOUR: float(clock.hour), Fact.WEEKDAY: float(clock.isoweekday())}
    for monitor in environment:
        spans = history.world(monitor.window_ms)
        value = monitor.read(spans) if spans else None
        if value is not None:
            found[monitor.fact] = value
    return found


def levels_of(
    environment: Iterable[EnvironmentMonitor],
    facts: Mapping[Fact, float],
    before: Mapping[Fact, int],
    borders: Mapping[Fact, tuple[float, ...]],
) -> dict[Fact, int]:
    """The level of each fact. A value near a border stays on the side where it was.

    Facts without borders in the settings have those of their monitor.
    """
    found: dict[Fact, int] = {}
    for monitor in environment:
        value = facts.get(monitor.fact)
        if value is None:
            continue
        was = before.get(monitor.fact)
        level = 0
        for number, border in enumerate(borders.get(monitor.fact, monitor.levels), 1):
            slack = 0.0 if was is None else SLACK if was < number else -SLACK
            level = number if value >= border * (1 + slack) else level
        found[monitor.fact] = level
    return found


def context_of(levels: Mapping[Fact, int]) -> str:
    """The environment as a key: facts that are not on their lowest level.

    >>> context_of({Fact.CHURN: 1, Fact.WORKLOAD: 0})
    'churn 1'
    """
    return ", ".join(f"{fact.value} {level}" for fact, level in levels.items() if level) or "calm"


def violated(active: Iterable[Demand], found: Mapping[Metric, float]) -> list[Demand]:
    return [d for d in active if d.metric in found and not d.met(found[d.metric])]


def trigger_of(
    watched: Watched, active: tuple[Demand, ...], context: str, now_ms: int, settings: AdaptationSettings
) -> Trigger | None:
    """The reason why this query should be planned now, or None. `watched` still holds the result of the last round."""
    if watched.active is not None and watched.active != active:
        return Trigger.DEMAND
    if watched.context is not None and watched.context != context:
        return Trigger.ENVIRONMENT
    if watched.violated >= settings.violated_rounds:
        return Trigger.VIOLATED if now_ms >= watched.not_before_ms else None
    return Trigger.PERIODIC if now_ms - watched.asked_ms >= settings.period_ms else None
