"""Congestion queries as a Spark user would write them, for measuring what stopping and starting them takes.

One streaming query for each road: the mean speed of each section's vehicles in each window, joined with the section's
density, and then the two sections within a time. That is fewer operators than the congestion query has
here (Spark joins no four streams to average them, and need not), over Spark's own `rate` source, which starts faster
than any real one. A restart stops the query and starts it from its checkpoint, until it has made a batch with input.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from lab.workloads import tcep as road

PAUSE_S = 0.02
TIMEOUT_S = 180.0


def congestion(spark: SparkSession, window_ms: int, within_ms: int) -> DataFrame:
    """The query as one streaming frame."""
    jam = _section(spark, window_ms, 20.0, 60.0).where(f"kmh < {road.SLOW_KMH} AND density > {road.DENSE}")
    clear = _section(spark, window_ms, 90.0, 12.0).where(f"kmh > {road.FREE_KMH} AND density < {road.SPARSE}")
    left = jam.toDF("jam_at", "slow_kmh", "dense", "jam_road")
    right = clear.toDF("clear_at", "free_kmh", "sparse", "clear_road")
    later = f"jam_road = clear_road AND clear_at > jam_at AND clear_at <= jam_at + INTERVAL {within_ms} MILLISECONDS"
    return left.join(right, F.expr(later)).select("slow_kmh", "free_kmh", "dense")


def _section(spark: SparkSession, window_ms: int, kmh: float, density: float) -> DataFrame:
    """Mean speed and density of one section in each window."""
    vehicles, width = road.AVERAGES * road.SPEEDS, f"{window_ms} milliseconds"
    speeds = _rate(spark, vehicles * 1000 // window_ms).selectExpr(
        "ts", "value * 0 AS road", f"{kmh} + rand() * 10 AS speed"
    )  # Spark joins streams on equal keys only
    means = speeds.groupBy(F.window("ts", width)).agg(F.avg("speed").alias("kmh"), F.max("road").alias("road"))
    dense = _rate(spark, max(1, 1000 // window_ms)).selectExpr("ts", f"{density} + rand() AS density")
    densities = dense.groupBy(F.window("ts", width)).agg(F.avg("density").alias("density"))
    both = means.join(densities, "window")
    return both.select(F.window_time("window").alias("at"), "kmh", "density", "road")


def _rate(spark: SparkSession, rows: int) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", rows).option("numPartitions", 1).load()
    return source.withColumnRenamed("timestamp", "ts").withWatermark("ts", "0 seconds")


class PlainRoads:
    """So many queries that run."""

    def __init__(self, spark: SparkSession, directory: Path, queries: int, window_ms: int, within_ms: int) -> None:
        self.spark, self.directory = spark, directory
        self.window_ms, self.within_ms = window_ms, within_ms
        self.running: dict[int, StreamingQuery] = {}
        self.queries = queries

    def __enter__(self) -> PlainRoads:
        for number in range(self.queries):
            self.running[number] = self._started(number)
        for query in self.running.values():
            _wait_for_batch(query)
        return self

    def __exit__(self, *_: object) -> None:
        for query in self.running.values():
            query.stop()

    def restarted(self) -> float:
        """Seconds until all queries were stopped, started again and had made a batch; all at the same time."""
        started = time.perf_counter()
        with ThreadPoolExecutor(self.queries) as pool:
            list(pool.map(self._restarted, list(self.running)))
        return time.perf_counter() - started

    def _restarted(self, number: int) -> None:
        self.running[number].stop()
        self.running[number] = self._started(number)
        _wait_for_batch(self.running[number])

    def _started(self, number: int) -> StreamingQuery:
        frame = congestion(self.spark, self.window_ms, self.within_ms)
        writer = frame.writeStream.format("noop").outputMode("append")
        return writer.option("checkpointLocation", str(self.directory / f"checkpoint {number}")).start()


def _wait_for_batch(query: StreamingQuery) -> None:
    """Until the query has taken input since it was started."""
    deadline = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < deadline:
        error = query.exception()
        if error is not None:
            raise error
        progress = query.lastProgress
        if progress is not None and progress["numInputRows"] > 0:
            return
        time.sleep(PAUSE_S)
    raise TimeoutError(f"a plain query made no batch within {TIMEOUT_S:.0f} s")
