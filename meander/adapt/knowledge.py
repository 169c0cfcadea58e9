"""Knowledge that the parts of the loop share: running mechanisms and their start, lessons learned, and mechanisms in
quarantine.

Lessons survive restarts as a JSON file. Demands are not in it: they belong to the queries, which are given anew when
the loop starts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meander.adapt.decisions import Transition, Trigger
from meander.adapt.fitness import Fitness, tallies_json, tallies_of
from meander.model.conditions import Fact
from meander.model.demands import Demand, Metric
from meander.model.durable_files import FILES
from meander.model.errors import InputError
from meander.model.ids import QueryId

VERSION = 1


@dataclass(slots=True)
class Watched:
    """A query that the loop looks after."""

    mechanism: str
    since_ms: int
    """The time at which the mechanism began to run."""
    demands: tuple[Demand, ...] = ()
    has_results: bool = False
    """Whether it has given a result since it was watched."""
    fitness: Fitness = field(default_factory=Fitness)
    active: tuple[Demand, ...] | None = None
    """The demands that applied in the last round."""
    context: str | None = None
    """The environment in which it was last planned or seen."""
    violated: int = 0
    """Rounds in a row with a violated demand."""
    asked_ms: int = 0
    """The time at which it was last planned."""
    not_before_ms: int = 0
    """The time from which a violation is planned for again."""
    backoff_ms: int = 0
    pending: Trigger | None = None
    """A trigger that fired while nothing could be done."""
    transition: Transition | None = None
    infeasible: dict[str, float] = field(default_factory=dict)
    """Demands that nothing can meet, and the best value that could be reached."""
    added: dict[Metric, dict[str, float]] = field(default_factory=dict)
    """By metric and mechanism, how much more was read than predicted in the present environment."""
    seen: dict[str, dict[Metric, float]] = field(default_factory=dict)
    """By mechanism, the last readings in the present environment."""
    why: str = ""
    """The reason why it has its mechanism."""
    hopes: str = ""
    """The reason of the transition that runs, or ran last."""
    told: tuple[str, str] = ("", "")
    """The last decision that was logged, so that it is not repeated every round."""


@dataclass(slots=True)
class MechanismQuarantine:
    """A mechanism that is not asked until a time; of one query when a transition failed, otherwise of all."""

    until_ms: int
    times: int
    reason: str


@dataclass(slots=True)
class Knowledge:
    """All of it. Only the loop writes it."""

    round: int = 0
    queries: dict[QueryId, Watched] = field(default_factory=dict)
    quarantines: dict[tuple[str, QueryId | None], MechanismQuarantine] = field(default_factory=dict)
    levels: dict[Fact, int] = field(default_factory=dict)
    """The level of each fact of the environment."""

    def quarantine(
        self, mechanism: str, query: QueryId | None, now_ms: int, length_ms: int, reason: str
    ) -> MechanismQuarantine:
        """Each time in a row is twice as long."""
        before = self.quarantines.get((mechanism, query))
        times = before.times + 1 if before else 1
        found = MechanismQuarantine(now_ms + length_ms * 2 ** min(times - 1, 6), times, reason)
        self.quarantines[mechanism, query] = found
        return found

    def barred(self, mechanism: str, query: QueryId, now_ms: int) -> MechanismQuarantine | None:
        """The quarantine that keeps a query from a mechanism at this time."""
        for key in ((mechanism, None), (mechanism, query)):
            found = self.quarantines.get(key)
            if found is not None and found.until_ms > now_ms:
                return found
        return None

    def release(self, mechanism: str) -> None:
        """The mechanism works again: the next quarantine begins short."""
        self.quarantines.pop((mechanism, None), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "round": self.round,
            "levels": {fact.value: level for fact, level in self.levels.items()},
            "queries": {
                query: {
                    "mechanism": w.mechanism,
                    "since_ms": w.since_ms,
                    "infeasible": w.infeasible,
                    "tallies": tallies_json(w.fitness.tallies),
                }
                for query, w in self.queries.items()
            },
            "quarantines": [
                {"mechanism": m, "query": q, "until_ms": k.until_ms, "times": k.times, "reason": k.reason}
                for (m, q), k in self.quarantines.items()
            ],
        }

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Knowledge:
        if value.get("version") != VERSION:
            raise InputError(f"knowledge of version {value.get('version')}, but only version {VERSION} can be read")
        known = Knowledge(int(value["round"]))
        known.levels = {Fact(fact): int(level) for fact, level in value["levels"].items()}
        for query, w in value["queries"].items():
            known.queries[QueryId(query)] = Watched(
                str(w["mechanism"]),
                int(w["since_ms"]),
                fitness=Fitness(tallies_of(w["tallies"])),
                infeasible={str(demand): float(best) for demand, best in w["infeasible"].items()},
            )
        for q in value["quarantines"]:
            key = str(q["mechanism"]), None if q["query"] is None else QueryId(q["query"])
            known.quarantines[key] = MechanismQuarantine(int(q["until_ms"]), int(q["times"]), str(q["reason"]))
        return known

    def save(self, path: Path) -> None:
        """The path holds either all of it or its former content."""
        FILES.replace(path, json.dumps(self.as_json(), indent=1).encode())

    @staticmethod
    def load(path: Path) -> Knowledge:
        """The saved knowledge; none when there is no file."""
        if not path.exists():
            return Knowledge()
        try:
            return Knowledge.of_json(json.loads(path.read_text(encoding="utf-8")))
        except InputError as error:
            raise error.inside(str(path)) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"this is not the knowledge of an adaptation loop ({error}); remove it to learn anew"
            raise InputError(reason, str(path)) from None
