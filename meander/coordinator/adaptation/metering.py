"""Measures for the adaptation loop, from the running system: results, their latency, bytes sent, how busy slots are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meander.adapt.measures import EnvironmentMeasures, Measures, QueryMeasures, channels_of
from meander.coordinator.adaptation.mechanism_bytes import ExchangedBytes
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.query_channels import query_channels
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved
from meander.model.ids import ChannelId, NodeId, QueryId
from meander.model.placement import Edge
from meander.place.node_costs import node_costs
from meander.run.delivery.latency import LatencyHistogram
from meander.run.reporting.backlog import Backlog, ChannelFlow, read_counters

SAMPLES = np.linspace(0.005, 0.995, 100)
"""Latencies of a span are told by these quantiles."""


@dataclass(slots=True)
class Meter:
    """Compares the running system with the last reading."""

    loop: PlacementLoop
    flows: Callable[[], Mapping[ChannelId, ChannelFlow]] | None = None
    """The flow of all channels, here and at sites; without it, those of this host are read."""
    still_ms: Callable[[QueryId], int] = lambda query: 0
    """The time in ms for which a query's event time has stood still although its sources went on."""
    held: Callable[[QueryId], str] = lambda query: ""
    """The reason why a query is paused; empty when it is not."""
    waits_for: Callable[[QueryId], str | None] = lambda query: None
    """The source that a query's windows wait for, if their time stands still."""
    exchanged: ExchangedBytes = field(init=False)
    _backlog: Backlog = field(default_factory=Backlog)
    _latency: dict[str, LatencyHistogram] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _sent: dict[ChannelId, int] = field(default_factory=dict)
    _taken: int = 0
    _busy_s: float = 0.0
    _changes: int = 0
    _handovers: int = 0

    def __post_init__(self) -> None:
        self.exchanged = ExchangedBytes(self.loop)
        self.loop.heard = self.exchanged.reconfigured

    def note(self, events: Iterable[ChangeEvent]) -> None:
        """Changes of the environment since the last reading."""
        topology = self.loop.catalog.topology
        for event in events:
            if isinstance(event, NodeAdded | NodeRemoved | LinkAdded | LinkRemoved):
                self._changes += 1
            if isinstance(event, LinkAdded):
                ends = [topology.find(name) for name in (event.link.source, event.link.target)]
                self._handovers += any(n is not None and bool(topology.nodes.mobile[n]) for n in ends)

    def read(self, at_ms: int, span_ms: int) -> Measures:
        """The measures of the span that ends now."""
        loop, host = self.loop, self.loop.host
        sent, received = self._traffic()
        latencies, results = self._results()
        plan, placement = loop.catalog.plan, loop.catalog.placement
        flows, exchanged = self._flows(at_ms), self.exchanged.read()
        queries = {
            query: QueryMeasures(
                latencies.get(query, ()),
                results.get(query, {}),
                channels_of(plan, placement, query, span_ms, sent),
                exchanged.get(query, 0.0),
                frozenset(placement.nodes[o] for o in plan.serving(query) if o in placement.nodes),
                self._waits_ms(query, flows),
                self.held(query),
                waits_for=self.waits_for(query) or "",
                **self._costs(query),
            )
            for query in plan.queries
        }
        busy = (host.totals.seconds - self._busy_s) * 1000 / span_ms / max(1, len(host.slots))
        tuples = host.feeding.ingest.metrics().rows if host.feeding.ingest else 0
        total = sum(received.values()) or 1
        loads = {node: busy * count / total for node, count in received.items()}
        mobile = int(np.count_nonzero(loop.catalog.topology.nodes.mobile & loop.catalog.topology.nodes.alive))
        world = EnvironmentMeasures(self._changes, self._handovers, mobile, tuples - self._taken)
        self._busy_s, self._taken, self._changes, self._handovers = host.totals.seconds, tuples, 0, 0
        return Measures(at_ms, span_ms, queries, loads, world)

    def _costs(self, query: QueryId) -> dict[str, float]:
        """Power and price of a query's nodes for it; nothing while it runs nowhere."""
        catalog = self.loop.catalog
        placed = catalog.placement.nodes
        nodes = {o: placed[o] for o in catalog.plan.serving(query) if o in placed}
        found = node_costs(catalog, nodes)
        return {"power_w": found.power_w, "price_per_h": found.price_per_h} if nodes else {}

    def _flows(self, at_ms: int) -> Mapping[ChannelId, ChannelFlow]:
        if self.flows is not None:
            return self.flows()
        return self._backlog.read(at_ms, read_counters(self.loop.host.store.exchange))

    def _waits_ms(self, query: QueryId, flows: Mapping[ChannelId, ChannelFlow]) -> float:
        """The longest time that a tuple has waited in one of a query's channels, or for event time to go on."""
        plan = self.loop.catalog.plan
        channels = query_channels(plan, self.loop.deployer.deployment, plan.serving(query))
        return float(max(self.still_ms(query), *(flows[c].waits_ms for c in channels if c in flows), 0))

    def _traffic(self) -> tuple[dict[Edge, float], dict[NodeId, int]]:
        """Bytes by edge, and tuples by the node that got them."""
        loop = self.loop
        exchange, deployment, plan = loop.host.store.exchange, loop.deployer.deployment, loop.catalog.plan
        known = set(exchange.channels())
        sent: dict[Edge, float] = {}
        received: dict[NodeId, int] = {}
        totals: dict[ChannelId, int] = {}
        for channel in deployment.channels.values():
            if channel.id not in known or channel.upstream not in plan.operators:
                continue
            totals[channel.id] = exchange.counters(channel.id).appended_tuples
            tuples = max(0, totals[channel.id] - self._sent.get(channel.id, 0))
            receiver = deployment.fragments[channel.receiver]
            received[receiver.node] = received.get(receiver.node, 0) + tuples
            here = [o for o in receiver.operators if o in plan.operators]  # without those of a query that was stopped
            reader = next((o for o in here if channel.upstream in plan[o].inputs), None)
            if reader is not None:
                sent[channel.upstream, reader] = tuples * float(plan[channel.upstream].row_bytes)
        self._sent = totals
        return sent, received

    def _results(self) -> tuple[dict[QueryId, Sequence[float]], dict[QueryId, dict[str, int]]]:
        delivery = self.loop.host.delivery
        if delivery is None:
            return {}, {}
        latencies: dict[QueryId, Sequence[float]] = {}
        for query, latency in delivery.latencies().items():
            earlier = self._latency.get(query)
            span = latency.since(earlier) if earlier else latency
            if span.percentiles().count:
                latencies[QueryId(query)] = [span.percentile(float(share)) for share in SAMPLES]
            self._latency[query] = latency
        results: dict[QueryId, dict[str, int]] = {}
        for binding in self.loop.sink_bindings():
            metrics = delivery.metrics().sink_bindings.get(binding.name)
            if metrics is not None:
                rows = metrics.rows - self._rows.get(binding.name, 0)
                results.setdefault(QueryId(binding.query), {})[binding.target.name] = rows
                self._rows[binding.name] = metrics.rows
        return latencies, results
