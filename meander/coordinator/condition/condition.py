"""The condition of a query and of the service: one definition, for the API, the page, the commands and the metrics.

It is a function of plain facts: pauses, missing places and routes, waiting tuples, missed demands, and quiet sources.
`looking` gathers the facts; docs/operations.md has the same as a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from meander.model.demands import Demand

STALLED_MS = 10_000
"""A query stalls when something could be read for so long and nothing was."""
IDLE_MS = 10_000
"""A query is idle when none of its sources has given anything for so long."""
MOST_PROBLEMS = 50
"""So many are named, of queries and of all else; how many more there are is said."""
_SPANS = ((86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_STEPS = (1, 2, 5, 10, 20, 30)


class Status(StrEnum):
    """The condition of a query, the worst first."""

    STOPPING = "stopping"
    PAUSED = "paused"
    WAITING = "waiting"
    STALLED = "stalled"
    VIOLATING = "violating"
    IDLE = "idle"
    RUNNING = "running"

    @property
    def is_problem(self) -> bool:
        return self in (Status.PAUSED, Status.WAITING, Status.STALLED, Status.VIOLATING)

    @property
    def is_deployed(self) -> bool:
        """Whether its operators run, however well."""
        return self in (Status.RUNNING, Status.IDLE, Status.VIOLATING)


@dataclass(frozen=True, slots=True)
class Condition:
    status: Status
    reason: str | None = None


RUNNING = Condition(Status.RUNNING)
STOPPING = Condition(Status.STOPPING, "what is in flight is finished first")


@dataclass(frozen=True, slots=True)
class Stuck:
    """Tuples that could be read, and are not."""

    where: str
    """Before whom they wait."""
    tuples: int
    for_ms: int


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """The facts that decide a query's condition. Reasons are sentences without a full stop, the most important one
    first."""

    is_stopping: bool = False
    paused: tuple[str, ...] = ()
    """The reasons why its data, its sink or a stream is paused until a user resumes it."""
    waiting: tuple[str, ...] = ()
    """The things that it waits for: a place, a route, a node, the end of a change."""
    stuck: tuple[Stuck, ...] = ()
    missed: tuple[tuple[Demand, float], ...] = ()
    """Demands that apply now and are not met, with the measured values."""
    waits_for: str | None = None
    """The source that its windows wait for, in words, if their time stands still although other sources go on."""
    pending: int = 0
    """Tuples on their way."""
    quiet_ms: int | None = None
    """The time for which none of its sources has given anything; None when that is not known."""
    trouble: str | None = None
    """The reason why nothing runs on its host; None when all is well."""
    replicas: tuple[str, ...] = ()
    """The sites that are gone and go on as replicas with some of it, and the replicas that are not in step."""


def query_condition(facts: QueryFacts) -> Condition:
    """The worst that is known of a query, with the reason."""
    if facts.is_stopping:
        return STOPPING
    if facts.paused:
        return Condition(Status.PAUSED, _first(facts.paused))
    if facts.waiting:
        return Condition(Status.WAITING, _first(facts.waiting))
    stuck = [each for each in facts.stuck if each.for_ms >= STALLED_MS]
    if stuck:
        longest = max(stuck, key=lambda each: each.for_ms)
        what = f"{longest.tuples:,} {'tuple waits' if longest.tuples == 1 else 'tuples wait'} {longest.where}"
        why = f"; {facts.trouble}" if facts.trouble else ""
        return Condition(Status.STALLED, f"{what}, and for more than {span(longest.for_ms)} none was taken{why}")
    if facts.missed:
        words = [missed(demand, value) for demand, value in facts.missed]
        return Condition(Status.VIOLATING, "; ".join([*words, *([facts.waits_for] if facts.waits_for else [])]))
    if facts.quiet_ms is not None and facts.quiet_ms >= IDLE_MS and not facts.pending:
        return Condition(Status.IDLE, f"its sources have given nothing for more than {span(facts.quiet_ms)}")
    return Condition(Status.RUNNING, "; ".join(facts.replicas)) if facts.replicas else RUNNING


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The facts that decide a coordinator's condition."""

    is_ready: bool = True
    is_stopping: bool = False
    problems: tuple[str, ...] = ()
    """Of the coordinator and its own host."""
    sites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The problems of each site."""
    queries: Mapping[str, Condition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceCondition:
    status: str
    """starting, ok, degraded or stopping."""
    problems: tuple[str, ...] = ()
    queries: Mapping[str, int] = field(default_factory=dict)
    """The number of queries in each condition."""


def service_condition(facts: ServiceFacts) -> ServiceCondition:
    """Ok only when nothing is wrong with the hosts, and no query is paused, waiting, stalled or violating."""
    counts = {status.value: 0 for status in Status}
    for condition in facts.queries.values():
        counts[condition.status.value] += 1
    problems = list(facts.problems)
    problems += [f"site {site}: {problem}" for site, found in facts.sites.items() for problem in found]
    bad = ((name, c) for name, c in facts.queries.items() if c.status.is_problem)
    worst = sorted(bad, key=lambda each: list(Status).index(each[1].status))
    suffering = [f"query {name} is {c.status.value}: {c.reason}" for name, c in worst]
    problems = [*_some(suffering, "queries"), *_some(problems, "problems")]
    status = "starting" if not facts.is_ready else "degraded" if problems else "ok"
    return ServiceCondition("stopping" if facts.is_stopping else status, tuple(problems), counts)


def _some(problems: list[str], what: str) -> list[str]:
    left = len(problems) - MOST_PROBLEMS
    return problems if left <= 0 else [*problems[:MOST_PROBLEMS], f"and {left} more {what}"]


def _first(reasons: tuple[str, ...]) -> str:
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more)"


def missed(demand: Demand, value: float) -> str:
    """By how much a demand is missed.

    >>> missed(Demand.of("latency", "<", "100 ms"), 1_734.0)
    'latency < 100 ms is missed: 1730 ms, 17 times as much'
    """
    shown = f"{demand.core} is missed: {demand.show(float(f'{value:.3g}'))}"
    if demand.comparison == "=" or not demand.bound or not value:
        return shown
    fold = demand.bound / value if demand.wants_more else value / demand.bound
    if fold < 1.1:
        return shown
    times = f"{fold:,.0f}" if fold >= 10 else f"{fold:.2g}"
    return f"{shown}, {times} times as {'little' if demand.wants_more else 'much'}"


def span(ms: float) -> str:
    """A time that has passed, in steps that grow: repeated messages need not change every second.

    >>> span(12_345), span(3_700_000)
    ('10 s', '1 h')
    """
    for size, unit in _SPANS:
        if ms >= size:
            count = max(step for step in _STEPS if step <= max(1, ms // size))
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
    return "0 s"


def without_numbers(text: str | None) -> str:
    """A reason in the words that stay the same while its figures change."""
    return re.sub(r"\d[\d,.]*", "#", text or "")


def conditions(queries: Iterable[Mapping[str, object]]) -> dict[str, Condition]:
    """Conditions of queries as the read model shows them."""
    found: dict[str, Condition] = {}
    for query in queries:
        reason = query.get("reason")
        found[str(query["id"])] = Condition(Status(str(query["status"])), None if reason is None else str(reason))
    return found
