"""The forecast of each mechanism for a query, held against the query's demands. Nothing has to run for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meander.adapt.mechanism_forecasts import CatalogForesight, Refusal
from meander.local.placement_replay import Setting, engine_of
from meander.model.demands import Demand, Metric
from meander.model.events import QueryAdded
from meander.model.plan import Query
from meander.place.mechanisms import MECHANISMS, mechanism

FORECAST = (Metric.LATENCY, Metric.HOPS, Metric.NETWORK_USAGE, Metric.LOAD, Metric.OVERHEAD)
"""The metrics that can be forecast. Overhead is that of placing once; output frequency has to be measured."""
WINDOWED = frozenset({Metric.OVERHEAD, Metric.FREQUENCY})
"""Metrics whose demands cannot be held against a forecast."""


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """One mechanism: its values, or why it has none."""

    mechanism: str
    values: dict[Metric, float] = field(default_factory=dict)
    refusal: str = ""

    def misses(self, demands: Sequence[Demand]) -> list[Demand]:
        """Demands that the forecast violates."""
        return [d for d in judged(demands) if d.metric in self.values and not d.met(self.values[d.metric])]


@dataclass(frozen=True, slots=True)
class Table:
    """All mechanisms for one query."""

    query: Query
    rows: tuple[ForecastRow, ...]

    def infeasible(self) -> list[tuple[Demand, float, str]]:
        """Demands that no forecast meets, with the best value and its mechanism."""
        found: list[tuple[Demand, float, str]] = []
        for demand in judged(self.query.demands):
            values = [(row.values[demand.metric], row.mechanism) for row in self.rows if demand.metric in row.values]
            if values and not any(demand.met(value) for value, _ in values):
                best, name = min(values, key=lambda pair: demand.shortfall(pair[0]))
                found.append((demand, best, name))
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "query": str(self.query.id),
            "demands": [str(d) for d in self.query.demands],
            "mechanisms": [
                {
                    "mechanism": row.mechanism,
                    **{metric.value: value for metric, value in row.values.items()},
                    "misses": [d.core for d in row.misses(self.query.demands)],
                    **({"refusal": row.refusal} if row.refusal else {}),
                }
                for row in self.rows
            ],
            "infeasible": [{"demand": d.core, "best": best, "by": name} for d, best, name in self.infeasible()],
        }


def judged(demands: Sequence[Demand]) -> list[Demand]:
    """Demands that a forecast can say something about."""
    return [d for d in demands if d.metric not in WINDOWED]


def forecast(setting: Setting, seed: int = 0) -> list[Table]:
    """Places all queries, then asks every mechanism about each of them, the others staying where they are."""
    library = {m.name: mechanism(m.name) for m in MECHANISMS}
    engine = engine_of(setting, library["bottom_up"], amenders=1, control="optimistic", seed=seed)
    engine.run([QueryAdded(0, query) for query in setting.queries])
    foresight = CatalogForesight(engine.catalog, library, seed=seed, time_limit_s=60)
    tables: list[Table] = []
    for query in setting.queries:
        rows: list[ForecastRow] = []
        for name in foresight.mechanisms(query.id):
            found = foresight.forecast(query.id, name)
            if isinstance(found, Refusal):
                rows.append(ForecastRow(name, refusal=found.reason))
            else:
                rows.append(
                    ForecastRow(name, {metric: found.values[metric] for metric in FORECAST if metric in found.values})
                )
        tables.append(Table(query, tuple(rows)))
    return tables
