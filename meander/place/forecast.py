"""The time that a query's data would take, and how long it may become before operators follow a device.

The query is placed alone on the topology as it is. Queries that run, and the room that they take, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import OperatorId
from meander.model.operators import Source
from meander.model.plan import Query
from meander.place.amenders.routes import SLACK_MS, Route, Routes, limit_ms
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms.base import Mechanism


@dataclass(frozen=True, slots=True)
class RouteForecast:
    """Routes from producers to consumers, by the names of their nodes, and operators that would wait."""

    mechanism: str
    detour: float
    routes: dict[tuple[str, str], Route] = field(default_factory=dict)
    waiting: dict[OperatorId, str] = field(default_factory=dict)
    refused: str | None = None
    """The reason why the query cannot be placed on this topology at all."""

    def limit_ms(self, route: Route) -> float:
        """Up to this length only routes change."""
        return limit_ms(route.fresh_ms, self.detour)

    def lines(self, most: int) -> list[str]:
        """For people; so many routes at most."""
        if self.refused is not None:
            return [f"not placed: {self.refused}"]
        found = [f"{operator:>4}  waits: {reason}" for operator, reason in self.waiting.items()]
        for (start, goal), route in list(self.routes.items())[:most]:
            found.append(
                f"{start} to {goal}: {route.through_ms:.1f} ms through the operators, {route.fresh_ms:.1f} ms on the "
                f"cheapest path; operators follow beyond {self.limit_ms(route):.1f} ms"
            )
        if len(self.routes) > most:
            found.append(f"and {len(self.routes) - most} more")
        return [
            f"routes, as {self.mechanism} places it alone (detour {self.detour:g}, or {SLACK_MS:g} ms longer)",
            *found,
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "mechanism": self.mechanism,
            "detour": self.detour,
            "routes": [
                {
                    "from": start,
                    "to": goal,
                    "through_ms": round(route.through_ms, 3),
                    "fresh_ms": round(route.fresh_ms, 3),
                    "limit_ms": round(self.limit_ms(route), 3),
                }
                for (start, goal), route in self.routes.items()
            ],
            "waiting": {str(operator): reason for operator, reason in self.waiting.items()},
            "refused": self.refused,
        }


def forecast(catalog: Catalog, query: Query, mechanism: Mechanism) -> RouteForecast:
    """Places the query on a catalog on which nothing runs."""
    engine = Engine(catalog, mechanism)
    try:
        report = engine.run([QueryAdded(0, query)])
    except InputError as error:
        return RouteForecast(mechanism.name, catalog.detour, refused=error.message)
    finally:
        engine.close()
    plan, placed, name = catalog.plan, catalog.placement.nodes, catalog.topology.name
    routes, found = Routes(catalog), dict[tuple[str, str], Route]()
    for operator, record in plan.operators.items():
        if not isinstance(record.spec, Source) or operator not in placed:
            continue
        for reader in record.readers:
            for route in routes.over((operator, reader)) if reader in placed else ():
                ends = name(route.start), name(route.goal)
                if ends not in found or found[ends].through_ms < route.through_ms:
                    found[ends] = route
    return RouteForecast(mechanism.name, catalog.detour, found, dict(report.unplaced))
