"""Throughput at equal batch size: the data plane and a plain Spark query, files in, files out, side by side.

Both sides take turns on the same batches. Measured is the time from files appearing in a directory to all of their
results lying in parquet files. Inside it, for the data plane: reading the files in the driver, committing the tuples to
the store, steps of the slot's streaming query (their Spark plans, state, commits), delivery. For plain Spark: its file
source, the query with its checkpoint and state store, its exactly-once parquet sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.baselines.plain_spark import compiled, read_files, write_files
from lab.bench.dataplane.data import KINDS, Batches, BenchWorld, Folders, QueryKind, slug, world
from lab.bench.report import Figure
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions
from meander.run.ingest.ingest import IngestOptions
from meander.run.session import usable_cores

LEAST_RATIO = 0.8
WARM_BATCHES = 2
LARGE = 1_000_000
FEW_BATCHES = 3
"""Of batches of that size and beyond."""
TIMEOUT_S = 300.0

Progress = Callable[[str], None]


def measure(
    spark: SparkSession, directory: Path, sizes: Sequence[int], repeats: int, batches: int, progress: Progress
) -> list[Figure]:
    """Tuples a second of both sides for each kind and size, and their ratio as a target."""
    options = {"connector": "files", "path": str(directory / "ours" / "{stream}"), "format": "parquet"}
    ours = ThroughputHost(spark, directory, world(options, {"connector": "parquet", "path": "results/{query}"}))
    figures: list[Figure] = []
    try:
        for kind in KINDS:
            plain = PlainFileQuery(spark, directory, ours.world, kind)
            data = Batches(kind)
            try:
                for size in sizes:
                    figures += _compare(kind, size, ours, plain, data, repeats, batches, progress)
                _same_results(kind, ours, plain)
            finally:
                plain.stop()
    finally:
        ours.stop()
    return figures


def _compare(
    kind: QueryKind,
    size: int,
    ours: ThroughputHost,
    plain: PlainFileQuery,
    data: Batches,
    repeats: int,
    batches: int,
    progress: Progress,
) -> list[Figure]:
    count = batches if size < LARGE else min(batches, FEW_BATCHES)
    found: tuple[list[float], list[float]] = ([], [])
    sides: tuple[ThroughputHost | PlainFileQuery, ...] = (ours, plain)
    for repeat in range(-1, repeats):
        progress(f"{kind.name}, {size:,} tuples a batch, {repeat + 1} of {repeats}")
        tables = [data.next(size) for _ in range(count if repeat >= 0 else min(count, WARM_BATCHES))]
        for side, rates in zip(sides, found, strict=True):
            seconds = side.take(kind, size, tables)
            if repeat >= 0:
                rates.append(len(tables) * size / seconds)
    ratios = [a / b for a, b in zip(*found, strict=True)]
    name = f"{kind.name}, {size:,} tuples a batch"
    return [
        Figure.of(f"throughput of {name}, to plain Spark", "x", ratios, LEAST_RATIO, at_least=True),
        Figure.of(f"{name}, data plane", "tuples/s", found[0]),
        Figure.of(f"{name}, plain Spark", "tuples/s", found[1]),
    ]


class ThroughputHost:
    """One host for all kinds of queries; only the one that gets files has work."""

    def __init__(self, spark: SparkSession, directory: Path, running: BenchWorld) -> None:
        self.world = running
        self.results = directory / "results"
        self.folders = {k.name: Folders(directory / "ours", running.streams_of(k)) for k in KINDS}
        plan, around = running.plan(), Surroundings(directory, directory)
        self.host = Host(HostOptions(directory / "host"), spark)
        self.host.install(plan.installation)
        self.host.warm_up()
        self.host.start()
        self.host.deliver(plan.sink_bindings, around)
        self.host.feeding.begin(running.file.streams.values(), around)

    def take(self, kind: QueryKind, size: int, batches: list[list[pa.Table]]) -> float:
        """Seconds until the results of the batches are in files."""
        ingest = self.host.feeding.ingest
        assert ingest is not None
        per_stream = size // len(kind.streams)
        ingest.options = IngestOptions(most_rows=per_stream)
        self.host.stepper.reader.most_rows = size + len(kind.streams)  # with a watermark behind each part
        wanted = ingest.metrics().rows + len(batches) * per_stream * len(kind.streams)
        folders = self.folders[kind.name]
        started = time.perf_counter()
        folders.show(batches)
        shown = time.perf_counter()
        self._settle(wanted, started + TIMEOUT_S)
        return time.perf_counter() - shown

    def _settle(self, wanted: int, deadline: float) -> None:
        assert self.host.feeding.ingest is not None
        while time.perf_counter() < deadline:
            seen = self.host.store.changes
            if self.host.feeding.ingest.metrics().rows >= wanted and not self.host.busy():
                return
            self.host.store.wait(seen, 0.01)
        raise TimeoutError(f"tuples still wait: {self.host.status().problems}")

    def rows(self, kind: QueryKind) -> int:
        return _rows(self.results / slug(kind))

    def stop(self) -> None:
        self.host.stop()


class PlainFileQuery:
    """One ordinary streaming query, a file of each stream a batch."""

    def __init__(self, spark: SparkSession, directory: Path, running: BenchWorld, kind: QueryKind) -> None:
        streams = running.streams_of(kind)
        session = spark.newSession()  # the data plane has one partition; an ordinary query uses all cores
        for setting in ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum"):
            session.conf.set(setting, usable_cores())
        self.folders = Folders(directory / "plain", streams)
        self.results = directory / "plain results" / slug(kind)
        frames = {s.name: read_files(session, s, path) for s, path in zip(streams, self.folders.paths, strict=True)}
        (frame,) = compiled(running.queries[kind.name].plan, frames).values()
        self.query: StreamingQuery = write_files(frame, self.results, directory / "checkpoints" / slug(kind))

    def take(self, kind: QueryKind, size: int, batches: list[list[pa.Table]]) -> float:
        self.folders.show(batches)
        started = time.perf_counter()
        self.query.processAllAvailable()
        return time.perf_counter() - started

    def rows(self, kind: QueryKind) -> int:
        return _rows(self.results)

    def stop(self) -> None:
        self.query.stop()


def _rows(directory: Path) -> int:
    files = [str(p) for p in directory.glob("*.parquet")]
    return ds.dataset(files, format="parquet").count_rows() if files else 0


def _same_results(kind: QueryKind, ours: ThroughputHost, plain: PlainFileQuery) -> None:
    mine, theirs = ours.rows(kind), plain.rows(kind)
    if mine != theirs if kind.exact else not 0 < mine <= theirs * 1.5:
        raise AssertionError(f"{kind.name}: {mine} results here, {theirs} with plain Spark; figures would be void")
