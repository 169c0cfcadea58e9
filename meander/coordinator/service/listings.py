"""Listings: the parts of the service's state that clients ask for, as JSON values."""

from __future__ import annotations

from typing import Any

from meander.coordinator.mobility.move_outcomes import MoveOutcomes
from meander.coordinator.problems import not_found
from meander.coordinator.service.service import Service
from meander.model.demands import Metric
from meander.model.errors import unknown
from meander.place.mechanisms import MECHANISMS
from meander.place.nova.queries.partitioned_queries import NOVA


def query(service: Service, name: str) -> dict[str, Any]:
    """A query with its operators and edges."""
    views = service.views
    if name not in views.queries:
        raise not_found(unknown("query", name, views.queries, "queries"))
    return {**views.queries[name], "dag": views.dag(name)}


def results(service: Service, name: str, limit: int) -> dict[str, Any]:
    views, newest = service.views, service.core.sink_bindings.newest.get(name)
    if name not in views.queries:
        raise not_found(unknown("query", name, views.queries, "queries"))
    return {"rows": newest.rows(limit) if newest else [], "total": views.queries[name]["results"]}


def placements(service: Service) -> list[dict[str, Any]]:
    keys = ("label", "kind", "queries", "node", "pinned", "why")
    found = service.views.operators.values()
    return [{"operator": each["id"], **{key: each[key] for key in keys}} for each in found]


def predictions(service: Service) -> dict[str, Any]:
    """Mobile nodes with their expected moves; none where nothing is predicted."""
    prediction = service.core.prediction
    nothing = {"mode": "off", **MoveOutcomes().as_json(), "trials": 0, "trial_s": 0.0}
    return {**nothing, "nodes": []} if prediction is None else prediction.shown


def mechanisms(service: Service) -> list[dict[str, Any]]:
    """The mechanisms, with the bytes that each has exchanged since the coordinator started."""
    sent = service.core.adaptation.meter.exchanged.by_mechanism.copy()
    found = [
        {
            "name": m.name,
            "optimises": [metric.value for metric in m.metadata.optimises],
            "needs": {"cost_space": m.metadata.needs_cost_space, "most_operators": m.metadata.most_operators},
            "summary": m.metadata.summary,
        }
        for m in MECHANISMS
    ] + [
        {
            "name": NOVA,
            "optimises": [Metric.LATENCY.value],
            "needs": {"cost_space": True, "most_operators": None},
            "summary": "joins of two streams in parts near the cheapest nodes with room, and keeps them there",
        }
    ]
    return [each | {"exchanged_bytes": dict(sent.get(str(each["name"]), {}))} for each in found]


def streams(service: Service) -> list[dict[str, Any]]:
    return [
        {
            "name": s.name,
            "schema": {f.name: str(f.type) for f in s.schema},
            "event_time": s.event_time,
            "nodes": list(s.nodes),
            "rate_tps": s.rate_tps,
        }
        for s in service.reader.streams.values()
    ]


def sinks(service: Service) -> list[dict[str, Any]]:
    return [{"name": s.name, "node": s.node} for s in service.reader.sinks.values()]
