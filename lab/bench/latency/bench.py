"""How old is a result? Event-time latency at several rates, and of joins that remember more and more.

The product's side is a host as the service runs it: sources, ingest, the slot's streaming query, commits, delivery.
Beside it, one after the other in the same Spark session, run the same queries as ordinary streaming queries with
Spark's usual trigger and in its real-time mode, where that takes them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lab.bench.latency.cases import AGGREGATE, JOIN, MAP, Case
from lab.bench.report import Figure, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lab.bench.latency.service_host import Measured

Progress = Callable[[str], None]

GOALS_MS: dict[str, dict[int, tuple[float, float]]] = {
    MAP: {200: (5, 10), 2_000: (5, 10), 20_000: (8, 15)},
    AGGREGATE: {200: (10, 20), 2_000: (10, 20), 20_000: (12, 25)},
    JOIN: {200: (12, 25), 2_000: (12, 25), 20_000: (20, 40)},
}
"""Of the median and the 95th percentile."""
GOALS_CORES = {200: 0.2, 2_000: 0.3, 20_000: 0.6}
HOP_MS = 5.0
"""A hop between two sites on one machine, at most."""
LEVEL = 1.5
"""Latency with the largest state to that with the smallest, at most."""
SMALLEST = 30_000
WARMING_TPS = 1_500
HOP_ROWS, HOP_PAUSE_S = 20, 0.005
"""Of a batch that hops, and behind it."""


@dataclass(frozen=True, slots=True)
class LatencyExtent:
    """The extent of the measurement."""

    rates_tps: tuple[int, ...] = (200, 2_000, 20_000)
    peer_rates_tps: tuple[int, ...] = (2_000,)
    remembered: tuple[int, ...] = (SMALLEST, 300_000)
    remembering_tps: int = 2_000
    begin_s: float = 8.0
    """For queries of all three kinds together, before the first one is measured."""
    warm_s: float = 1.5
    seconds: float = 4.0
    peer_warm_s: float = 5.0
    hop_batches: int = 200


QUICK = LatencyExtent()
FULL = LatencyExtent(
    peer_rates_tps=(200, 2_000, 20_000), remembered=(SMALLEST, 300_000, 3_000_000), warm_s=5.0, seconds=20.0
)

NOTES = (
    "latency is from the event time of the newest tuple that a result depends on to the sink; for window aggregates "
    "from the end of the window, which the next tuple closes: half its distance is in it",
    "a join meets about two partners for each tuple; of its past, three spans are given first",
    "processors are of all processes, with Java, Python workers, sources and sinks of the bench in them",
    "Spark's queries get rows every 5 ms in memory; a row's clock stops when it leaves the plan, before the sink",
    "a hop is from a commit in one store to that of its copy in another, over the transport of sites, with one reader",
    "real-time mode refuses joins of streams, and gives an aggregate's updates, not results of closed windows",
)


def run(quick: bool, progress: Progress) -> Report:
    """All cases; `quick` is shorter, leaves out the largest state, and has Spark's own queries at one rate."""
    extent = QUICK if quick else FULL
    progress("starting Spark")
    from meander.run.session import start_session  # Spark is imported only when it is needed

    spark = start_session("meander-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-bench-", ignore_cleanup_errors=True) as work:
            figures = measure(spark, Path(work), extent, progress)
    finally:
        spark.stop()
    rates = ", ".join(f"{rate:,}" for rate in extent.rates_tps)
    return Report("latency", f"three queries at {rates} tuples/s", 1, tuple(figures), NOTES)


def measure(spark: SparkSession, directory: Path, extent: LatencyExtent, progress: Progress) -> list[Figure]:
    """Every figure: the product's side, joins that remember, then Spark's own queries."""
    from lab.baselines.real_time import PeerQuery, Trigger, applies
    from lab.bench.latency.hop import hop_ms
    from lab.bench.latency.service_host import Measured, ServiceHost

    cases = [Case(kind, rate) for rate in extent.rates_tps for kind in GOALS_MS]
    memories = [Case.remembering(rows, extent.remembering_tps) for rows in extent.remembered]
    first = [Case(kind, WARMING_TPS) for kind in GOALS_MS]
    host = ServiceHost(spark, directory, [*first, *cases, *memories])
    try:
        progress("warming up")
        host.warm(first, extent.begin_s)
        found = {case: host.measure(case, extent.warm_s, extent.seconds, progress) for case in [*cases, *memories]}
    finally:
        host.stop()
    figures = [figure for case in cases for figure in _figures(case, found[case])]
    figures += _remembering(memories, found)
    progress("a hop between two sites")
    hops = hop_ms(directory / "hop", extent.hop_batches, HOP_ROWS, HOP_PAUSE_S)[extent.hop_batches // 10 :]
    figures.append(Figure.of("a hop between two sites: p50", "ms", [float(np.quantile(hops, 0.5))], HOP_MS))
    figures.append(Figure.of("a hop between two sites: p95", "ms", [float(np.quantile(hops, 0.95))]))
    for case in (Case(kind, rate) for rate in extent.peer_rates_tps for kind in GOALS_MS):
        for trigger in Trigger:
            if applies(case, trigger):
                progress(f"{case.title}: {trigger}")
                peer = Measured(*PeerQuery(spark, case, trigger).measure(extent.peer_warm_s, extent.seconds))
                figures += _quantiles(f"{case.title}, {trigger}", peer)
    return figures


def _figures(case: Case, measured: Measured) -> Iterator[Figure]:
    p50_ms, p95_ms = GOALS_MS[case.kind].get(case.rate_tps, (None, None))
    yield from _quantiles(case.title, measured, p50_ms, p95_ms, GOALS_CORES.get(case.rate_tps))


def _quantiles(
    title: str,
    measured: Measured,
    p50_ms: float | None = None,
    p95_ms: float | None = None,
    cores: float | None = None,
) -> Iterator[Figure]:
    yield Figure.of(f"{title}: p50", "ms", [measured.quantile_ms(0.5)], p50_ms)
    yield Figure.of(f"{title}: p95", "ms", [measured.quantile_ms(0.95)], p95_ms)
    yield Figure.of(f"{title}: processors", "cores", [measured.cores], cores)


def _remembering(cases: list[Case], found: dict[Case, Measured]) -> Iterator[Figure]:
    for case in cases:
        yield from _quantiles(case.title, found[case])
        yield Figure.of(f"{case.title}: rows of state", "rows", [found[case].state_rows])
    for case in cases[1:]:
        for share in (0.5, 0.95):
            least, own = (found[c].quantile_ms(share) for c in (cases[0], case))
            name = f"p{round(100 * share)} of a join of {case.remembers:,} rows, to {cases[0].remembers:,}"
            yield Figure.of(name, "x", [own / least], LEVEL)
