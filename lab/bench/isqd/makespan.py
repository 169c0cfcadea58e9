"""The time until a change is in effect: incremental deployment against restarts of every query it touches.

On our data plane the protocols take turns, change by change, under the same running queries. Beside it, plain Spark:
every query is one ordinary streaming query, which is stopped and started again from its checkpoint, all at the same
time or one after the other, until it has caught up.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.baselines.plain_spark import compiled, read_files
from lab.bench.report import Figure
from lab.workloads.isqd import READINGS, DeviceShape, generated, logical
from meander.deploy.protocols import ISQD, PROTOCOLS, RESTART_CONCURRENT, RESTART_SERIAL
from meander.local.replay import replay_live
from meander.local.replay_options import ReplayOptions
from meander.local.replay_report import Changed
from meander.model.plan import Query
from meander.model.streams import Stream
from meander.run.frames import arrow_schema

GOALS = {RESTART_CONCURRENT.name: 7.5, RESTART_SERIAL.name: 11.0}
NAMES = tuple(p.name for p in PROTOCOLS)
ROWS = 20
"""Tuples that wait for each stream while a plain query restarts."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Makespans:
    """Seconds by protocol, each a list in the order of changes.

    Goals are about plain Spark, which is what restarting means to its users. On our own data plane a restart touches
    more fragments, but no streaming query is started again, so it is reported beside it without a goal.
    """

    title: str
    ours_s: dict[str, list[float]]
    plain_s: dict[str, list[float]]
    lost: float
    double: float

    def figures(self) -> list[Figure]:
        mine = self.ours_s[ISQD.name]
        found = [Figure.of(f"{self.title}: makespan of {ISQD.name}", "s", mine)]
        for where, taken, counts in (("data plane", self.ours_s, False), ("plain Spark", self.plain_s, True)):
            for name, goal in GOALS.items():
                label = f"{self.title}: {where}, {name}"
                ratios = [t / statistics.median(mine) for t in taken[name]]
                wanted = goal if counts else None
                found.append(Figure.of(f"{label} to {ISQD.name}", "x", ratios, wanted, at_least=counts))
                found.append(Figure.of(label, "s", taken[name]))
        found.append(Figure.of(f"{self.title}: lost", "", [self.lost], 0))
        found.append(Figure.of(f"{self.title}: double", "", [self.double], 0))
        return found


def measure(
    spark: SparkSession, directory: Path, shape: DeviceShape, rounds: int, restarts: int, progress: Progress
) -> Makespans:
    """So many changes for each protocol after one round of each that is not counted, and restarts of plain queries."""
    kind = "stateful" if shape.stateful else "stateless"
    progress(f"makespan, {kind}: protocols in turn")
    directory.mkdir(parents=True)
    setting = generated(replace(shape, changes=(1 + rounds) * len(NAMES)))
    report = replay_live(spark, setting, directory / "host", directory, ReplayOptions(quiet_s=1.0, in_turn=NAMES))
    counted = report.changes[len(NAMES) :]
    ours = {name: [_makespan_s(c) for c in counted if c.protocol == name] for name in NAMES}
    checked = report.unchecked is None and report.drained and not report.unfinished
    plain: dict[str, list[float]] = {}
    with PlainQueries(spark, directory / "plain", shape) as queries:
        for name in GOALS:
            progress(f"makespan, {kind}: plain Spark, {name}")
            plain[name] = [queries.restarted(at_once=name == RESTART_CONCURRENT.name) for _ in range(restarts)]
    nothing = float("nan")
    return Makespans(
        f"makespan, {kind}, {shape.queries} queries of {shape.sources} sources",
        ours,
        plain,
        report.lost if checked else nothing,
        report.double if checked else nothing,
    )


def _makespan_s(change: Changed) -> float:
    """From when it was taken up until all of it was in effect."""
    return change.in_effect_s - change.queued_s


class PlainQueries:
    """The queries of a shape as a Spark user would run them, over files; each query is one streaming query."""

    def __init__(self, spark: SparkSession, directory: Path, shape: DeviceShape) -> None:
        self.spark, self.directory = spark, directory
        self._numbers = itertools.count()
        setting = generated(replace(shape, changes=0))
        self.streams = list(setting.streams.values())
        for stream in self.streams:
            (directory / stream.name).mkdir(parents=True)
        self.queries = [logical(n, setting.streams, setting.sinks) for n in range(1, shape.queries + 1)]
        self.running: list[StreamingQuery] = []

    def __enter__(self) -> PlainQueries:
        self._show()
        self.running = [self._started(q) for q in self.queries]
        for query in self.running:
            query.processAllAvailable()
        return self

    def __exit__(self, *_: object) -> None:
        for query in self.running:
            query.stop()

    def restarted(self, *, at_once: bool) -> float:
        """Seconds until all queries were stopped, started again, and have taken what waited."""
        self._show()
        started = time.perf_counter()
        with ThreadPoolExecutor(len(self.queries) if at_once else 1) as pool:
            self.running = list(pool.map(self._restarted, self.running, self.queries))
        return time.perf_counter() - started

    def _restarted(self, running: StreamingQuery, query: Query) -> StreamingQuery:
        running.stop()
        again = self._started(query)
        again.processAllAvailable()
        return again

    def _started(self, query: Query) -> StreamingQuery:
        mine = [s for s in self.streams if s.name.endswith(f"_{query.id.removeprefix('query_')}")]
        frames = {s.name: read_files(self.spark, s, self.directory / s.name, 100) for s in mine}
        (frame,) = compiled(query.plan, frames).values()
        checkpoint = self.directory / f"checkpoint {query.id}"
        return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()

    def _show(self) -> None:
        """A new file for each stream, there as a whole at once."""
        number = next(self._numbers)
        for stream in self.streams:
            hidden = self.directory / stream.name / f".{number}.parquet"
            pq.write_table(_readings(stream, number), hidden)
            hidden.rename(hidden.with_name(f"{number}.parquet"))


def _readings(stream: Stream, number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    times = (1_700_000_000_000 + 1000 * number + np.arange(ROWS) * 1000 // ROWS) * 1000
    values: Sequence[pa.Array] = [
        pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array(rng.integers(0, 50, ROWS)),
        pa.array(rng.random(ROWS)),
    ]
    assert stream.schema == READINGS
    return pa.table(list(values), schema=arrow_schema(stream.schema))
