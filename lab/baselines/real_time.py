"""The queries of the latency bench as streaming queries of Spark, with its usual trigger and in real-time mode.

Both read Spark's own source for low latency, which hands over rows in memory, and each row notes the time at which it
leaves the plan. Real-time mode refuses joins of streams and knows no output mode but `update`: an aggregate's rows are
updates there, not results of closed windows. Its list of allowed sinks has none that can be read back here, so the list
is not asked.
"""

from __future__ import annotations

import tempfile
import threading
import time
from enum import StrEnum
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lab.bench.latency.cases import AGGREGATE, JOIN, MAP, WINDOW_MS, Case
from lab.bench.latency.cpu import cpu_s
from lab.bench.latency.tap import ROADS

SOURCE = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream$"
NOW_MS = "CAST(java_method('java.lang.System', 'currentTimeMillis') AS BIGINT)"
PAUSE_S = 0.005
NUMBERS = 1 << 22
LONGEST_S = 12.0
"""The longest wait for a first result."""
BATCH_MS = 2000
"""How long a batch of real-time mode lasts: its results can be read then."""


class Trigger(StrEnum):
    MICRO_BATCH = "plain Spark"
    REAL_TIME = "Spark's real-time mode"


def applies(case: Case, trigger: Trigger) -> bool:
    return trigger is Trigger.MICRO_BATCH or case.kind != JOIN


class MemoryStream:
    """Numbers in memory: event time in ms and a running number in one."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = cast(Any, spark._jvm)
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        streams = loader.loadClass(SOURCE).getField("MODULE$").get(None)
        encoder = self._jvm.org.apache.spark.sql.Encoders.scalaLong()
        self._stream = streams.apply(cast(Any, spark)._jsparkSession, 1, encoder)
        self._next = 0
        rows = DataFrame(self._stream.toDF(), spark)
        self.frame = rows.selectExpr(
            f"timestamp_millis(value div {NUMBERS}L) AS ts", f"value % {NUMBERS}L AS id", f"value % {ROADS}L AS road"
        )

    def add(self, count: int) -> None:
        """So many rows of this moment."""
        first = time.time_ns() // 1_000_000 * NUMBERS + self._next
        self._next = (self._next + count) % (NUMBERS // 2)
        numbers = self._jvm.java.util.stream.LongStream.range(first, first + count).boxed().toList()
        self._stream.addData(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(numbers).toSeq())


class PeerQuery:
    """One case as a streaming query."""

    def __init__(self, spark: SparkSession, case: Case, trigger: Trigger) -> None:
        self.case, self.trigger = case, trigger
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.shuffle.partitions", 1)
        self.streams = [MemoryStream(self.spark) for _ in case.streams]

    def _frame(self) -> DataFrame:
        frames = [stream.frame for stream in self.streams]
        if self.case.kind == MAP:
            rows = frames[0].where("id % 40 > 10").selectExpr("id", "road", "id % 40 * 3.6D AS kmh", "ts AS newest")
        elif self.case.kind == AGGREGATE:
            window = F.window("ts", f"{WINDOW_MS} milliseconds")
            grouped = frames[0].withWatermark("ts", "0 seconds").groupBy(window, "road")
            counted = grouped.agg(F.count("*").alias("n"), F.avg("id").alias("mean"), F.max("ts").alias("last"))
            newest = "window.end" if self.trigger is Trigger.MICRO_BATCH else "last"
            rows = counted.selectExpr("window.start", "road", "n", "mean", f"{newest} AS newest")
        else:
            cars, rain = (
                frame.withWatermark("ts", "0 seconds").selectExpr(f"ts AS {side}ts", f"id AS {side}id")
                for side, frame in zip("lr", frames, strict=True)
            )
            span = f"INTERVAL {round(self.case.span_s * 1000)} MILLISECONDS"
            near = F.expr(f"lid = rid AND rts BETWEEN lts - {span} AND lts + {span}")
            rows = cars.join(rain, near).selectExpr("lid", "lts", "greatest(lts, rts) AS newest")
        return rows.selectExpr("*", f"{NOW_MS} - unix_millis(newest) AS late_ms")

    def measure(self, warm_s: float, seconds: float) -> tuple[npt.NDArray[np.float64], float]:
        """Latencies of results, and processors in use."""
        real_time = self.trigger is Trigger.REAL_TIME
        self.spark.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", False)
        self.spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", BATCH_MS)
        table = f"peer_{self.case.slug}_{self.trigger.name}".lower()
        stopping = threading.Event()
        with tempfile.TemporaryDirectory(prefix="meander-bench-", ignore_cleanup_errors=True) as checkpoint:
            writer = self._frame().writeStream.format("memory").queryName(table)
            writer = writer.outputMode("update" if real_time else "append").option("checkpointLocation", checkpoint)
            trigger: dict[str, Any] = (
                {"realTime": f"{BATCH_MS} milliseconds"} if real_time else {"processingTime": "0 seconds"}
            )
            query = writer.trigger(**trigger).start()
            feeder = threading.Thread(target=self._feed, args=(stopping,), daemon=True)
            feeder.start()
            try:
                time.sleep(warm_s)
                begun = len(self._found(table))
                began, before = time.monotonic(), cpu_s()
                time.sleep(seconds)
                cores = (cpu_s() - before) / (time.monotonic() - began)
                if real_time:
                    time.sleep(BATCH_MS / 1000)
                while not len(found := self._found(table)[begun:]) and time.monotonic() < began + LONGEST_S:
                    time.sleep(0.2)  # a batch may take longer than was measured
            finally:
                stopping.set()
                feeder.join()
                query.stop()
                self.spark.catalog.dropTempView(table)
        return found, cores

    def _found(self, table: str) -> npt.NDArray[np.float64]:
        column = self.spark.table(table).select("late_ms").toArrow().column(0)
        found: npt.NDArray[np.float64] = column.to_numpy().astype(np.float64)
        return found

    def _feed(self, stopping: threading.Event) -> None:
        rate, sent = self.case.stream_tps, int(time.time() * self.case.stream_tps)
        while not stopping.wait(PAUSE_S):
            due = int(time.time() * rate)
            for stream in self.streams if due > sent else ():
                stream.add(due - sent)
            sent = due
