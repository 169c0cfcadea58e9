"""How long a query's data would be on its way, and how long it may become before operators follow a device.

The query is placed alone on the topology as it is. Queries that run, and the room that they take, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import OperatorId
from meander.model.operators import Source
from meander.model.plan import Query
from meander.place.amenders.detour import SLACK_MS, Route, Ways, limit_ms
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms.base import Mechanism


@dataclass(frozen=True, slots=True)
class Forecast:
    """Ways from producers to consumers, by the names of their nodes, and operators that would wait."""

    mechanism: str
    detour: float
    ways: dict[tuple[str, str], Route] = field(default_factory=dict)
    waiting: dict[OperatorId, str] = field(default_factory=dict)
    refused: str | None = None
    """Why the query cannot be placed on this topology at all."""

    def limit_ms(self, way: Route) -> float:
        """Up to this length only routes change."""
        return limit_ms(way.fresh_ms, self.detour)

    def lines(self, most: int) -> list[str]:
        """For people; so many ways at most."""
        if self.refused is not None:
            return [f"not placed: {self.refused}"]
        found = [f"{operator:>4}  waits: {reason}" for operator, reason in self.waiting.items()]
        for (start, goal), way in list(self.ways.items())[:most]:
            found.append(
                f"{start} to {goal}: {way.through_ms:.1f} ms through the operators, {way.fresh_ms:.1f} ms on the "
                f"cheapest path; operators follow beyond {self.limit_ms(way):.1f} ms"
            )
        if len(self.ways) > most:
            found.append(f"and {len(self.ways) - most} more")
        return [
            f"ways, as {self.mechanism} places it alone (detour {self.detour:g}, or {SLACK_MS:g} ms longer)",
            *found,
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "mechanism": self.mechanism,
            "detour": self.detour,
            "ways": [
                {
                    "from": start,
                    "to": goal,
                    "through_ms": round(way.through_ms, 3),
                    "fresh_ms": round(way.fresh_ms, 3),
                    "limit_ms": round(self.limit_ms(way), 3),
                }
                for (start, goal), way in self.ways.items()
            ],
            "waiting": {str(operator): reason for operator, reason in self.waiting.items()},
            "refused": self.refused,
        }


def forecast(catalog: Catalog, query: Query, mechanism: Mechanism) -> Forecast:
    """Places the query on a catalog on which nothing runs."""
    engine = Engine(catalog, mechanism)
    try:
        report = engine.run([QueryAdded(0, query)])
    except InputError as error:
        return Forecast(mechanism.name, catalog.detour, refused=error.message)
    finally:
        engine.close()
    plan, placed, name = catalog.plan, catalog.placement.nodes, catalog.topology.name
    ways, found = Ways(catalog), dict[tuple[str, str], Route]()
    for operator, record in plan.operators.items():
        if not isinstance(record.spec, Source) or operator not in placed:
            continue
        for reader in record.readers:
            for way in ways.over((operator, reader)) if reader in placed else ():
                ends = name(way.start), name(way.goal)
                if ends not in found or found[ends].through_ms < way.through_ms:
                    found[ends] = way
    return Forecast(mechanism.name, catalog.detour, found, dict(report.unplaced))
