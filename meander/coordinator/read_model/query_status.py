"""The status of queries as people see it: their condition, their demands with readings, and their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meander.adapt.analyse import readings
from meander.coordinator.adaptation.adaptation import Adaptation
from meander.coordinator.condition.condition import STALLED_MS, Condition, Status, query_condition, span
from meander.coordinator.condition.facts import NO_REPORTS, facts_of
from meander.coordinator.condition.progress import EventTimeProgress, SourceWatermarks, source_watermarks
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.read_model.measuring import Measured
from meander.coordinator.read_model.read_model import ReadModel
from meander.coordinator.sink_bindings import SinkBindings
from meander.model.demands import Demand
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import describe

Json = dict[str, Any]
SHARES = ("p50", "p95", "p99")


class QueryStatuses:
    """Those of all queries. Belongs to the core's thread."""

    def __init__(
        self, loop: PlacementLoop, adaptation: Adaptation, read_model: ReadModel, sink_bindings: SinkBindings
    ) -> None:
        self._loop, self._adaptation, self._read_model, self._sink_bindings = (
            loop,
            adaptation,
            read_model,
            sink_bindings,
        )
        self._measured: Measured | None = None
        self._progress = EventTimeProgress()
        self.still: dict[QueryId, tuple[int, OperatorId]] = {}
        """Queries whose time stands still: for how long, and the source that they wait for."""
        meter = adaptation.meter
        meter.flows = lambda: self._measured.flows if self._measured is not None else {}
        adaptation.transitions.predictor.state_bytes = lambda fragment: (
            self._measured.state_bytes.get(fragment, 0) if self._measured is not None else 0
        )
        meter.exchanged.queries_of = read_model.queries_of
        meter.held = self.held
        meter.waits_for = lambda query: self.waits_for(query, 1)
        meter.still_ms = lambda query: self.still.get(query, (0, None))[0]

    def measures(self, measured: Measured) -> None:
        """New measures, from which statuses are made from now on."""
        self._measured = measured
        self.still = self._progress.read(measured.at_ms, self._watermarks(measured))

    def show(self, name: str, text: str) -> Json:
        """A query as people see it."""
        query = QueryId(name)
        shape = self._read_model.views.shapes.get(name)
        operators = shape.operators if shape else ()
        sink_bindings = self._sink_bindings.names(name)
        watched = self._adaptation.mapek.knowledge.queries.get(query)
        running = self._loop.catalog.plan.queries.get(query)
        read = self._readings(query, running.query.demands if running else ())
        condition = self._condition(name, operators, sink_bindings, read)
        owner = self._loop.deployer.deployment.owner
        found: Json = {
            "id": name,
            "text": text,
            "status": condition.status.value,
            "mechanism": watched.mechanism if watched else self._adaptation.chosen.fallback,
            "chosen": watched.why if watched else "",
            "demands": [_demand(demand, value) for demand, value in read],
            "operators": len(operators),
            "fragments": len({owner[o] for o in operators if o in owner}),
            **self._results(name, sink_bindings),
        }
        return found if condition.reason is None else found | {"reason": condition.reason}

    def _results(self, name: str, sink_bindings: Sequence[str]) -> Json:
        measured = self._measured
        latency = measured.latency.get(name) if measured else None
        known = latency is not None and latency.count > 0
        rows = [measured.rows.get(o, 0) for o in sink_bindings] if measured else []
        rates = [measured.rows_tps.get(o, 0.0) for o in sink_bindings] if measured else []
        return {
            "results": max(rows, default=0),
            "rate_tps": round(max(rates, default=0.0), 2),
            "latency_ms": {share: getattr(latency, f"{share}_ms") if known else None for share in SHARES},
        }

    def _readings(self, query: QueryId, demands: Sequence[Demand]) -> list[tuple[Demand, float | None]]:
        """Each demand with its present reading."""
        mapek = self._adaptation.mapek
        watched = mapek.knowledge.queries.get(query)
        metrics = [d.metric for d in demands]
        read = readings(mapek.monitors, mapek.history, query, watched.since_ms, metrics) if watched else {}
        return [(demand, read.get(demand.metric)) for demand in demands]

    def _condition(
        self,
        name: str,
        operators: Sequence[OperatorId],
        sink_bindings: Sequence[str],
        read: Sequence[tuple[Demand, float | None]],
    ) -> Condition:
        """The condition of a query, from real flows and real backlogs."""
        measured = self._measured
        watched = self._adaptation.mapek.knowledge.queries.get(QueryId(name))
        active = None if watched is None else watched.active
        applying = [(d, v) for d, v in read if (not d.when if active is None else d in active)]
        facts = facts_of(
            self._loop,
            operators,
            sink_bindings,
            measured.reports if measured else NO_REPORTS,
            measured.flows if measured else None,
            [(demand, value) for demand, value in applying if value is not None and not demand.met(value)],
            self.waits_for(QueryId(name)),
            is_stopping=name in self._sink_bindings.stopping,
        )
        return query_condition(facts)

    def waits_for(self, query: QueryId, at_least_ms: int = STALLED_MS) -> str | None:
        """The source that the windows of a query wait for, if their time stands still."""
        still_ms, source = self.still.get(query, (0, None))
        if source is None or still_ms < at_least_ms or source not in self._loop.catalog.plan.operators:
            return None
        about = describe(self._loop.catalog.plan[source].spec)
        return f"its windows have waited for {about} for more than {span(still_ms)}"

    def held(self, query: QueryId) -> str:
        """The reason why a query is paused; empty when it is not: no placement would help it."""
        shown = self._read_model.views.queries.get(query, {})
        return str(shown.get("reason", "")) if shown.get("status") == Status.PAUSED else ""

    def _watermarks(self, measured: Measured) -> dict[QueryId, SourceWatermarks]:
        plan, shapes = self._loop.catalog.plan, self._read_model.views.shapes
        found = {
            QueryId(name): source_watermarks(plan, shape.operators, measured.counters) for name, shape in shapes.items()
        }
        return {query: watermarks for query, watermarks in found.items() if watermarks}


def _demand(demand: Demand, value: float | None) -> Json:
    """A demand with its reading, and whether that meets it."""
    one: Json = {"text": str(demand), "met": None if value is None else demand.met(value)}
    if value is not None and math.isfinite(value):
        one |= {"value": float(f"{value:.4g}"), "unit": demand.show(1.0).removeprefix("1").strip()}
    return one
