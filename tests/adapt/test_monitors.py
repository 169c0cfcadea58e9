"""Monitors: values worked out by hand, and that every metric and measured fact has one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.adapt.measure_history import MeasureHistory, Span, WorldSpan
from meander.adapt.measures import EnvironmentMeasures, MeasuredChannel, Measures, QueryMeasures, channels_of
from meander.adapt.monitors import ENVIRONMENT, MONITORS
from meander.adapt.monitors.base import percentile
from meander.model.conditions import Fact
from meander.model.demands import Demand, Metric
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.place.node_costs import NodeCosts, node_costs
from tests.coordinator.loop.ground import SINKS, STREAMS, Ground
from tests.coordinator.loop.ground import query as ground_query
from tests.place.worlds import query, world

MONITOR = {m.metric: m for m in MONITORS}
AROUND = {m.fact: m for m in ENVIRONMENT}
Q = QueryId("q")


def span(measures: QueryMeasures, loads: dict[int, float] | None = None, span_ms: int = 10_000) -> Span:
    return Span(0, span_ms, measures, {NodeId(n): share for n, share in (loads or {}).items()})


def channel(upstream: int, reader: int, hops: int, latency_ms: float = 0.0, sent: float = 0.0) -> MeasuredChannel:
    return MeasuredChannel(OperatorId(upstream), OperatorId(reader), hops, latency_ms, sent)


def test_every_metric_and_every_fact_but_the_time_has_one_monitor() -> None:
    assert [m.metric for m in MONITORS] == list(Metric)
    assert {m.fact for m in ENVIRONMENT} == set(Fact) - {Fact.HOUR, Fact.WEEKDAY}


def test_latency_is_a_percentile_over_all_spans() -> None:
    spans = [span(QueryMeasures(latencies_ms=list(range(1, 51)))), span(QueryMeasures(latencies_ms=range(51, 101)))]
    assert MONITOR[Metric.LATENCY].read(spans) == 95
    assert MONITOR[Metric.LATENCY].read([span(QueryMeasures())]) is None


def test_a_query_that_gives_nothing_is_as_late_as_the_tuple_that_waits() -> None:
    """Silent for ten minutes under `latency < 100 ms` was no violation."""
    read = MONITOR[Metric.LATENCY].read
    silent = [span(QueryMeasures(waits_ms=ms)) for ms in (590_000.0, 600_000.0)]
    assert read(silent) == 600_000
    assert not Demand.of("latency", "<", "100 ms").met(read(silent) or 0.0)


def test_a_query_whose_input_is_processed_is_not_late_because_it_gives_nothing() -> None:
    """Quiet sources, or a filter that lets nothing through: nothing waits, or only for a moment."""
    read = MONITOR[Metric.LATENCY].read
    assert read([span(QueryMeasures())]) is None
    assert read([span(QueryMeasures(waits_ms=600_000)), span(QueryMeasures())]) is None
    assert read([span(QueryMeasures(waits_ms=30.0))]) == 30.0


def test_what_waits_for_less_than_a_round_does_not_count_beside_results() -> None:
    read = MONITOR[Metric.LATENCY].read
    assert read([span(QueryMeasures([10.0] * 99, waits_ms=900.0), span_ms=1_000)]) == 10.0
    assert read([span(QueryMeasures([10.0] * 99, waits_ms=1_500.0), span_ms=1_000)]) == 1_500.0
    assert read([span(QueryMeasures([3_000.0], waits_ms=1_500.0), span_ms=1_000)]) == 3_000.0


def test_hops_are_those_of_the_longest_way_in_the_latest_span() -> None:
    diamond = (channel(1, 2, 3), channel(1, 3, 1), channel(2, 4, 0), channel(3, 4, 1), channel(4, 5, 2))
    old = span(QueryMeasures(channels=(channel(1, 2, 99),)))
    assert MONITOR[Metric.HOPS].read([old, span(QueryMeasures(channels=diamond))]) == 5


def test_overhead_is_of_the_last_minute() -> None:
    read = MONITOR[Metric.OVERHEAD].read
    assert read([span(QueryMeasures(control_bytes=100)), span(QueryMeasures(control_bytes=20))]) == 120
    assert read([span(QueryMeasures(control_bytes=600), span_ms=300_000)]) == 120


def test_network_usage_is_rate_times_latency() -> None:
    """1000 bytes a second over 20 ms, and 500 over 10 ms: 25 bytes are on their way."""
    channels = (channel(1, 2, 1, 20, 10_000), channel(2, 3, 1, 10, 5_000))
    assert MONITOR[Metric.NETWORK_USAGE].read([span(QueryMeasures(channels=channels))]) == pytest.approx(25)


def test_load_is_that_of_the_busiest_node_of_the_query() -> None:
    measures = QueryMeasures(nodes=frozenset({NodeId(1), NodeId(2)}))
    read = MONITOR[Metric.LOAD].read
    assert read([span(measures, {1: 0.2, 2: 0.6, 3: 0.9}), span(measures, {1: 0.4})]) == pytest.approx(0.5)
    assert read([span(measures, {3: 0.9})]) is None


def test_frequency_counts_results_of_all_sinks() -> None:
    measures = QueryMeasures(results={"a": 15, "b": 5})
    assert MONITOR[Metric.FREQUENCY].read([span(measures), span(QueryMeasures())]) == 1.0


def test_environment() -> None:
    spans = [
        WorldSpan(0, 30_000, EnvironmentMeasures(4, 2, 8, 600)),
        WorldSpan(0, 30_000, EnvironmentMeasures(2, 6, 10, 0)),
    ]
    assert AROUND[Fact.CHURN].read(spans) == 6
    assert AROUND[Fact.MOBILITY].read(spans) == 0.8
    assert AROUND[Fact.WORKLOAD].read(spans) == 10
    assert AROUND[Fact.MOBILITY].read([WorldSpan(0, 30_000, EnvironmentMeasures())]) == 0


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=40), share=st.floats(0.01, 1))
def test_a_percentile_is_exceeded_by_at_most_the_rest(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) < share * len(values) + 1e-9


def test_history_keeps_windows_and_leaves_out_what_was_before_a_transition() -> None:
    history = MeasureHistory(60_000)
    for at in range(10_000, 130_000, 10_000):
        history.add(Measures(at, 10_000, {Q: QueryMeasures(control_bytes=at)}))
    assert [s.at_ms for s in history.spans(Q, 30_000, 0)] == [100_000, 110_000, 120_000]
    assert [s.at_ms for s in history.spans(Q, 60_000, 105_000)] == [120_000]
    assert history.spans(QueryId("other"), 60_000, 0) == []
    assert len(history.world(600_000)) == 6


def test_measures_out_of_order_are_refused() -> None:
    history = MeasureHistory(60_000)
    history.add(Measures(20, 10))
    with pytest.raises(InputError, match="measures of 20 ms came after those of 20 ms"):
        history.add(Measures(20, 10))
    with pytest.raises(InputError, match="must cover a time"):
        Measures(20, 0)


def test_channels_come_from_the_placement() -> None:
    catalog = world(1)
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, query(1, "q"))])
    found = channels_of(catalog.plan, catalog.placement, Q, 1000)
    edges = {(u, o) for o in catalog.plan.serving(Q) for u in catalog.plan[o].inputs}
    assert {(c.upstream, c.reader) for c in found} == edges
    assert sum(c.hops for c in found) == sum(p.hops for e, p in catalog.placement.routes.items() if e in edges)
    sent = channels_of(catalog.plan, catalog.placement, Q, 1000, {(found[0].upstream, found[0].reader): 7.0})
    assert sum(c.bytes for c in sent) == 7


def test_energy_and_price_are_those_of_the_nodes_shared_by_the_operators_that_run_there() -> None:
    catalog = Catalog(Ground.roomy().topology(), dict(STREAMS), dict(SINKS))
    columns, placed, plan = catalog.topology.nodes, catalog.placement.nodes, catalog.plan
    engine = Engine(catalog, mechanism("bottom_up"))

    def costs(name: str) -> NodeCosts:
        return node_costs(catalog, {o: placed[o] for o in plan.serving(QueryId(name))})

    engine.run([QueryAdded(0, ground_query("a", "fast", "one"))])
    assert costs("a") == NodeCosts(0.0, 0.0), "nothing is known of any node"
    columns.power_w[: columns.count], columns.price_per_h[: columns.count] = 8.0, 0.5
    working = {n for o, n in placed.items() if plan[o].slots}
    assert costs("a") == NodeCosts(8.0 * len(working), 0.5 * len(working))
    engine.run([QueryAdded(0, ground_query("b", "wet", "one"))])
    busy = {n for o, n in placed.items() if plan[o].slots}
    assert costs("a").power_w + costs("b").power_w == pytest.approx(8.0 * len(busy)), "each node counts once"
    measures = QueryMeasures(power_w=4.0, price_per_h=0.25)
    assert MONITOR[Metric.ENERGY].read([span(QueryMeasures()), span(measures)]) == 4.0
    assert MONITOR[Metric.PRICE].read([span(measures)]) == 0.25
    assert MONITOR[Metric.ENERGY].read([span(QueryMeasures())]) is None
    assert not Demand.of("price", "<", "0.10 /h").met(0.25)
