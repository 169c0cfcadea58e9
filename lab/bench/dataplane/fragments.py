"""Step time by the number of fragments: all of one template, the same tuples in total.

The roads are shared out among the fragments, so that the number of groups stays the same too. A step is measured as
Structured Streaming calls it: reading the channels, the Spark plans, state, the commit. Beside it, plain Spark: one
ordinary query for each fragment, from files appearing to all queries having taken them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lab.baselines.plain_spark import compiled, read_files
from lab.bench.dataplane.data import BATCH_SPAN_MS, CARS, KINDS, START_MS, BenchWorld, Folders, slug, world
from lab.bench.report import Figure
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.execution.prepared import PreparedRunner
from meander.run.fragments.routing import Installed, Routing, Wire
from meander.run.fragments.template import bind
from meander.run.frames import arrow_schema, channel_schema, with_hidden
from meander.run.step.step import Stepper
from meander.run.store.commit import Commit
from meander.run.store.store import Store

TUPLES = 10_000
ROADS = 1000
MOST_RATIO = 2.0
RESULTS = 1_000_000
"""Result channels are numbered from here on."""

Progress = Callable[[str], None]


def measure(
    spark: SparkSession, directory: Path, counts: Sequence[int], repeats: int, progress: Progress
) -> list[Figure]:
    """Milliseconds of a step for each number of fragments, and the most to the least as a target."""
    running = world({}, {})
    runner = PreparedRunner(spark)
    figures: list[Figure] = []
    for kind in KINDS[:2]:
        planes = [FragmentPlane(directory / f"{slug(kind)} {n}", runner, running, kind.name, n) for n in counts]
        took: dict[int, list[float]] = {n: [] for n in counts}
        for repeat in range(-2, repeats):
            progress(f"steps of {kind.name} with up to {max(counts)} fragments, {max(0, repeat + 1)} of {repeats}")
            for plane in planes:
                ms = 1000 * plane.step(traffic(repeat + 2))
                if repeat >= 0:
                    took[plane.fragments].append(ms)
        ratios = [b / a for a, b in zip(took[counts[0]], took[counts[-1]], strict=True)]
        name = f"step of {kind.name}, {TUPLES:,} tuples"
        figures.append(Figure.of(f"{name}, {counts[-1]} to {counts[0]} fragments", "x", ratios, MOST_RATIO))
        figures += [Figure.of(f"{name}, {n} fragments", "ms", took[n]) for n in counts]
        for plane in planes:
            plane.store.close()
    runner.close()
    return figures


def measure_plain(
    spark: SparkSession, directory: Path, counts: Sequence[int], repeats: int, progress: Progress
) -> list[Figure]:
    """Milliseconds of one round with a plain query for each fragment."""
    figures: list[Figure] = []
    running = world({}, {})
    kind = KINDS[1]
    (stream,) = running.streams_of(kind)
    for count in counts:
        progress(f"{count} plain queries")
        root = directory / f"plain {count}"
        folders = [Folders(root / str(i), [stream]) for i in range(count)]
        queries = []
        for i, each in enumerate(folders):
            frames = {stream.name: read_files(spark, stream, each.paths[0])}
            (frame,) = compiled(running.queries[kind.name].plan, frames).values()
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(root / f"checkpoint {i}"))
            queries.append(writer.start())
        took = []
        for repeat in range(-1, repeats):
            parts = shared(traffic(repeat + 1), count)
            for each, part in zip(folders, parts, strict=True):
                each.show([[part]])
            started = time.perf_counter()
            for query in queries:
                query.processAllAvailable()
            if repeat >= 0:
                took.append(1000 * (time.perf_counter() - started))
        for query in queries:
            query.stop()
        figures.append(Figure.of(f"the same by {count} plain queries, window aggregate", "ms", took))
    return figures


def traffic(batch: int) -> pa.Table:
    """Tuples sorted by road, each road in order of time."""
    rng = np.random.default_rng(batch)
    roads = np.repeat(np.arange(ROADS), TUPLES // ROADS)
    within = np.tile(np.arange(TUPLES // ROADS), ROADS)
    times = START_MS + batch * BATCH_SPAN_MS + within * (BATCH_SPAN_MS * ROADS // TUPLES)
    values = {
        "ts": pa.array(times * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "id": np.arange(TUPLES),
        "road": [f"road-{r}" for r in roads],
        "speed": rng.random(TUPLES) * 40,
    }
    return pa.table(values, schema=arrow_schema(CARS))


def shared(table: pa.Table, count: int) -> list[pa.Table]:
    """Equal parts: roads stay together."""
    size = len(table) // count
    return [table.slice(i * size, size) for i in range(count)]


class FragmentPlane:
    """A store with so many fragments of one template, each with a channel in and a channel out."""

    def __init__(self, directory: Path, runner: PreparedRunner, running: BenchWorld, kind: str, fragments: int) -> None:
        self.fragments, self._batch = fragments, 0
        plan = running.queries[kind].plan
        bound = bind(plan.operators, plan.inputs)
        (sink,) = plan.sinks
        self.store = Store.open(directory)
        routing = Routing(1)
        installed, specs = [], []
        self.entries = [ChannelId(i) for i in range(1, fragments + 1)]
        self.results = [ChannelId(RESULTS + i) for i in range(1, fragments + 1)]
        for number, (entry, result) in enumerate(zip(self.entries, self.results, strict=True), start=1):
            fragment = FragmentId(number)
            specs.append(ChannelSpec(entry, channel_schema(plan.schemas[plan.sources[0]]), None, fragment))
            specs.append(ChannelSpec(result, channel_schema(plan.schemas[sink]), fragment, None))
            wires = ((Wire(result, plan.schemas[sink].names),),)
            installed.append(Installed(fragment, 1, 0, bound, (entry,), wires))
        self.store.commit(Commit(add=tuple(specs)))
        routing.install(installed)
        self.stepper = Stepper(self.store, routing, runner)

    def step(self, table: pa.Table) -> float:
        """Seconds of a step over the table, shared out among the fragments; entering and leaving is not counted."""
        self._batch += 1
        hidden = with_hidden(table, "ts", 0, START_MS)
        size = len(table) // self.fragments
        mark = START_MS + self._batch * BATCH_SPAN_MS - 1000
        marks = np.full(self.fragments, mark)
        append = ChannelAppend.sliced(hidden, self.entries, np.full(self.fragments, size), marks)
        self.store.commit(Commit(appends=(append,)))
        started = time.perf_counter()
        report = self.stepper.step(0, self._batch)
        seconds = time.perf_counter() - started
        assert report.tuples_in == len(table)
        _, ends = self.store.exchange.bounds(self.results)
        self.store.commit(Commit(consumed=dict(zip(self.results, ends.tolist(), strict=True))))
        return seconds
