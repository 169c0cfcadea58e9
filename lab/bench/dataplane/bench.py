"""Is the data plane as fast as the Spark query a user would write, and does it stay so with very many fragments?

Both sides run in one Spark session on the same machine, in turns: throughput and latency against a plain streaming
query, steps by number of fragments against one plain query per fragment, ten queries over 160 sources, and memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.bench.report import Figure, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DataplaneExtent:
    """The extent of the measurement."""

    sizes: tuple[int, ...]
    """Tuples a batch."""
    repeats: int
    batches: int
    """Batches of a size in a repeat."""
    fragments: tuple[int, ...]
    plain_queries: tuple[int, ...]
    rates_tps: tuple[float, ...]
    seconds: float
    """The time of measuring latency, and each rate."""
    latency_repeats: int
    memory_s: float | None
    executors: tuple[int, ...] = ()
    """Tuples a batch that executors fetch themselves."""


FULL = DataplaneExtent(
    sizes=(1_000, 10_000, 100_000, 1_000_000),
    repeats=5,
    batches=8,
    fragments=(1, 10, 100, 1000),
    plain_queries=(1, 5, 10, 20),
    rates_tps=(2_000, 4_000, 8_000, 16_000, 32_000),
    seconds=15.0,
    latency_repeats=3,
    memory_s=600.0,
    executors=(100_000, 1_000_000),
)
QUICK = DataplaneExtent(
    sizes=(1_000, 100_000),
    repeats=3,
    batches=1,
    fragments=(1, 10, 100, 1000),
    plain_queries=(1, 5),
    rates_tps=(2_000,),
    seconds=3.0,
    latency_repeats=1,
    memory_s=None,
)


def run(quick: bool, progress: Progress) -> Report:
    """All parts; `quick` leaves out the largest batches, the most plain queries, the highest rates and memory."""
    extent = QUICK if quick else FULL
    progress("starting Spark")
    from meander.run.session import start_session  # Spark is imported only when it is needed

    spark = start_session("meander-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-bench-") as work:
            figures = measure(spark, Path(work), extent, progress)
    finally:
        spark.stop()
    return Report(
        "dataplane",
        f"three queries over generated traffic; batches of {', '.join(f'{size:,}' for size in extent.sizes)} tuples",
        extent.repeats,
        tuple(figures),
        NOTES + (QUICK_NOTES if quick else ()),
    )


NOTES = (
    "throughput is from parquet files appearing to results in parquet files; both sides read the same files",
    "inside the data plane's path: files read by the driver, tuples committed to the store, steps of a slot's "
    "streaming query with their Spark plans, state and commit, delivery to files. All tuples pass through the driver",
    "inside plain Spark's path: its file source, the query with state store and checkpoint, its parquet sink with log. "
    "Tuples go from executor to files",
    "plain Spark has as many partitions as cores, the data plane has one; settings for small batches apply to both",
    "latency is from the newest line a result depends on to the result in the driver, lines come over a socket",
    "a step is what Structured Streaming calls for a batch, without the time of its own log; a round of plain queries "
    "is from files appearing to all queries having taken them",
    "ratios are of runs next to each other; goals apply to the median of the repeats",
)


QUICK_NOTES = (
    "quick: batches of 10,000 and 1,000,000 tuples, the executors' path, 10 and 20 plain queries, rates above 2,000 "
    "tuples/s, and memory over ten minutes are measured in the full run only",
)


def measure(spark: SparkSession, work: Path, extent: DataplaneExtent, progress: Progress) -> list[Figure]:
    """Every figure, part after part."""
    from lab.bench.dataplane import executors, fragments, latency, many, throughput

    figures = throughput.measure(spark, work / "throughput", extent.sizes, extent.repeats, extent.batches, progress)
    figures += executors.measure(spark, extent.executors, extent.repeats, progress)
    figures += latency.measure(spark, work / "latency", extent.seconds, extent.latency_repeats, progress)
    figures += fragments.measure(spark, work / "fragments", extent.fragments, extent.repeats + 2, progress)
    figures += fragments.measure_plain(spark, work / "queries", extent.plain_queries, extent.repeats, progress)
    figures += many.measure(spark, work / "many", extent.rates_tps, extent.seconds, progress)
    if extent.memory_s is not None:
        figures += many.measure_memory(spark, work / "memory", extent.rates_tps[0], extent.memory_s, progress)
    return figures
