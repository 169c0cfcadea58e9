"""Metrics in Prometheus' text format. The names are documented in docs/operations.md."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from meander.coordinator.condition.condition import Status
from meander.coordinator.membership.records import MemberState
from meander.coordinator.service import listings
from meander.coordinator.service.service import Service
from meander.run.execution.stage_use import StageUse

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(service: Service) -> bytes:
    """All metrics as of now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(service))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, service: Service) -> None:
        self.service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        health = self.service.health()
        yield _gauge("meander_up", "1 when nothing is wrong, 0 otherwise.", float(health["status"] == "ok"))
        yield _gauge("meander_uptime_seconds", "Seconds since the process began to listen.", health["uptime_s"])
        yield _gauge("meander_problems", "Problems that `GET /health` names.", len(health["problems"]))
        yield _gauge("meander_watchers", "Clients of the live stream.", self.service.hub.watchers)
        yield _counter("meander_live_messages", "Messages on the live stream.", self.service.hub.last)
        if health["status"] not in ("starting", "stopping"):
            yield from self._decided()
            yield from self._shown()
            yield from self._measured()
            yield from self._predicted()
            yield from self._sites()

    def _decided(self) -> Iterator[Metric]:
        totals = self.service.core.publisher.totals
        yield _counter("meander_batches", "Batches of change events that were applied.", totals.batches)
        yield _counter("meander_events", "Change events that were applied.", totals.events)
        yield _counter("meander_refused_requests", "Requests whose changes did not fit.", totals.refused)
        yield _counter("meander_placement_moves", "Operators that were placed, moved or removed.", totals.moves)
        ended = CounterMetricFamily("meander_reconfigurations", "Reconfigurations that ended.", labels=["status"])
        ended.add_metric(["committed"], totals.reconfigurations - totals.aborted)
        ended.add_metric(["aborted"], totals.aborted)
        yield ended
        yield _counter("meander_reconfigured_fragments", "Fragments that reconfigurations touched.", totals.fragments)
        yield _counter("meander_moved_state_bytes", "State that reconfigurations moved.", totals.state_bytes)
        sent = CounterMetricFamily(
            "meander_mechanism_bytes",
            "Bytes that mechanisms exchanged: placement, cost_space, control, state.",
            labels=["mechanism", "part"],
        )
        for mechanism, parts in self.service.core.adaptation.meter.exchanged.by_mechanism.copy().items():
            for part, size in parts.copy().items():
                sent.add_metric([mechanism, part], size)
        yield sent
        yield _counter("meander_decisions", "Decisions of the adaptation loop.", totals.decisions)

    def _shown(self) -> Iterator[Metric]:
        views = self.service.views
        alive = sum(n["alive"] for n in views.nodes.values())
        yield _gauge("meander_nodes", "Nodes that are there.", alive)
        yield _gauge("meander_links", "Links.", sum(len(pair) for pair in views.links.values()))
        yield _gauge("meander_operators", "Operators of the global query plan.", len(views.operators))
        yield _gauge("meander_fragments", "Fragments that run.", len(views.deployment["fragments"]))
        queries = GaugeMetricFamily("meander_queries", "Queries by status.", labels=["status"])
        condition = GaugeMetricFamily(
            "meander_query_condition", "1 for the condition that a query is in.", labels=["query", "condition"]
        )
        for status in Status:
            queries.add_metric([status.value], sum(q["status"] == status for q in views.queries.values()))
            for name, query in views.queries.items():
                condition.add_metric([name, status.value], float(query["status"] == status))
        yield from (queries, condition)
        results = CounterMetricFamily("meander_query_results", "Rows that sinks have taken.", labels=["query"])
        latency = GaugeMetricFamily(
            "meander_query_latency_seconds", "Event-time latency of the last seconds.", labels=["query", "quantile"]
        )
        met = GaugeMetricFamily("meander_demand_met", "1 when a demand is met, 0 when not.", labels=["query", "demand"])
        for name, query in views.queries.items():
            results.add_metric([name], query["results"])
            for share, quantile in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99")):
                if query["latency_ms"][share] is not None:
                    latency.add_metric([name, quantile], query["latency_ms"][share] / 1000)
            for demand in query["demands"]:
                if demand["met"] is not None:
                    met.add_metric([name, demand["text"]], float(demand["met"]))
        yield from (results, latency, met)

    def _predicted(self) -> Iterator[Metric]:
        found = listings.predictions(self.service)
        moves = CounterMetricFamily(
            "meander_predictions", "Expected moves of mobile nodes, by what came of them.", labels=["outcome"]
        )
        for outcome, count in found["outcomes"].items():
            moves.add_metric([outcome], count)
        sent = CounterMetricFamily(
            "meander_prediction_bytes", "State sent ahead of mobile nodes, by whether they came.", labels=["use"]
        )
        sent.add_metric(["used"], found["used_bytes"])
        sent.add_metric(["wasted"], found["wasted_bytes"])
        yield from (moves, sent)

    def _sites(self) -> Iterator[Metric]:
        members = self.service.sites
        found = GaugeMetricFamily("meander_sites", "Sites by state.", labels=["state"])
        counts = members.roster.counts()
        for state in MemberState:
            found.add_metric([state.value], counts[state])
        yield found
        behind = GaugeMetricFamily(
            "meander_replica_lag_bytes", "What a replica of a site's store lacks.", labels=["site", "keeper"]
        )
        for site, facts in members.roster.facts().items():
            for keeper, lag in facts.get("replication", {}).items():
                behind.add_metric([site, keeper], lag["behind_bytes"])
        yield behind
        yield _gauge("meander_epoch", "The epoch of this coordinator.", members.leadership.epoch.number)

    def _measured(self) -> Iterator[Metric]:
        measured = self.service.views.measured
        if measured is None:
            return
        status = measured.status
        yield _counter("meander_tuples_in", "Tuples that were taken in.", status.ingest.rows if status.ingest else 0)
        yield _counter(
            "meander_tuples_out", "Results that sinks have taken.", status.delivery.rows if status.delivery else 0
        )
        yield _counter("meander_late_tuples", "Tuples that came too late for their windows.", status.totals.late)
        yield _counter(
            "meander_malformed_tuples", "Rows that were no tuples.", status.ingest.malformed if status.ingest else 0
        )
        yield _counter(
            "meander_dropped_tuples", "Tuples of channels beyond their budget that were dropped.", status.dropped
        )
        yield _gauge("meander_pending_tuples", "Tuples that wait in channels.", status.pending_tuples)
        yield _gauge("meander_state_bytes", "State of all operators.", status.state_bytes)
        yield _counter("meander_steps", "Steps of all slots.", status.totals.steps)
        yield _counter("meander_step_seconds", "Time that slots spent in steps.", status.totals.seconds)
        yield _counter("meander_rebindings", "Fragments given to another slot because of the load.", status.rebindings)
        yield _gauge("meander_paused_fragments", "Fragments that are paused.", len(status.paused))
        yield from _stages(status.stages)
        yield _gauge("meander_store_disk_bytes", "Disk that the host's store uses.", status.store.disk_bytes)
        yield _gauge(
            "meander_store_pressure_ratio", "How full the store is; sources wait at 0.9.", status.store.pressure
        )


def _stages(use: StageUse | None) -> Iterator[Metric]:
    if use is None:
        return
    stages = GaugeMetricFamily("meander_stages", "Stages of fragments, by how their next batch runs.", labels=["mode"])
    for mode, count in use.stages.items():
        stages.add_metric([mode], count)
    refused = GaugeMetricFamily(
        "meander_refused_stages", "Stages whose plans cannot be prepared, by the reason.", labels=["reason"]
    )
    for reason, count in use.refused.items():
        refused.add_metric([reason], count)
    runs = CounterMetricFamily("meander_stage_runs", "Plans that ran, by how.", labels=["mode"])
    for mode, count in use.runs.items():
        runs.add_metric([mode], count)
    yield from (stages, refused, runs)
    yield _counter("meander_evicted_plans", "Prepared plans given up because nothing used them.", use.evicted)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)
