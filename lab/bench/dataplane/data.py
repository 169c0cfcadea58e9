"""The workloads of the data-plane experiments: three queries, their input at any size, and a place where all of it
runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from meander.lang import sql
from meander.lang.topology.reader import TopologyFile
from meander.local.run_plan import LocalPlan, plan_queries
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Node, NodeKind
from meander.model.topology.graph import Topology
from meander.run.frames import arrow_schema

NODE = "here"
CARS = Schema.of(ts="timestamp", id="bigint", road="string", speed="double")
RAIN = Schema.of(ts="timestamp", id="bigint", mm="double")
ROADS = 100
BATCH_SPAN_MS = 10_000
"""The event time of a batch of any size: windows and spans hold the same share of it."""
START_MS = 1_700_000_000_000
SEED = 7
ROW_GROUP = 100_000
"""Rows that a reader of a file can take apart from others: large files can be read by several cores."""


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A kind of query; `streams` says which it reads, each half a batch when there are two."""

    name: str
    streams: tuple[str, ...]
    text: str
    exact: bool
    """Whether all results are out once all input is in: windows wait for time to go on."""


KINDS = (
    QueryKind(
        "filter+map",
        ("cars",),
        "SELECT id, road, speed * 3.6 AS kmh FROM {0} WHERE speed > 10 INTO {sink}",
        exact=True,
    ),
    QueryKind(
        "window aggregate",
        ("cars",),
        "SELECT window_start, road, count(*) AS n, avg(speed) AS mean, max(speed) AS top FROM {0} "
        "GROUP BY road WINDOW TUMBLING(ts, {window}) INTO {sink}",
        exact=False,
    ),
    QueryKind(
        "window join",
        ("cars", "rain"),
        "SELECT a.id, a.road, a.speed, b.mm FROM {0} AS a JOIN {1} AS b ON a.id = b.id WITHIN 1 s INTO {sink}",
        exact=True,
    ),
)


@dataclass(frozen=True)
class BenchWorld:
    """Streams, sinks and one query of each kind, on one node."""

    file: TopologyFile
    queries: dict[str, Query]

    def plan(self) -> LocalPlan:
        return plan_queries(self.file, list(self.queries.values()), "bottom_up")

    def streams_of(self, kind: QueryKind) -> list[Stream]:
        return [self.file.streams[f"{stream}_{slug(kind)}"] for stream in kind.streams]


def slug(kind: QueryKind) -> str:
    return kind.name.replace("+", "_").replace(" ", "_")


def world(stream_options: dict[str, str], sink_options: dict[str, str], window: str = "10 s") -> BenchWorld:
    """`{stream}` in an option stands for the stream's name; every kind of query has streams and a sink of its own."""
    streams: dict[str, Stream] = {}
    sinks: dict[str, SinkTarget] = {}
    queries: dict[str, Query] = {}
    for kind in KINDS:
        names = [f"{stream}_{slug(kind)}" for stream in kind.streams]
        for stream, name in zip(kind.streams, names, strict=True):
            options = {key: value.replace("{stream}", name) for key, value in stream_options.items()}
            streams[name] = Stream(name, CARS if stream == "cars" else RAIN, "ts", (NODE,), options=options)
        sink = f"out_{slug(kind)}"
        sinks[sink] = SinkTarget(sink, NODE, sink_options)
        text = f"CREATE QUERY {slug(kind)} AS {kind.text.format(*names, sink=sink, window=window)};"
        queries[kind.name] = sql(text, streams, sinks).queries[0]
    topology = Topology.of([Node(NODE, NodeKind.CLOUD, 1000)], [])
    return BenchWorld(TopologyFile(topology, streams, sinks), queries)


class Batches:
    """Batches of one kind of query, one after the other in event time. The same for every caller."""

    def __init__(self, kind: QueryKind) -> None:
        self.kind, self.number = kind, 0
        self._rng = np.random.default_rng(SEED)

    def next(self, tuples: int) -> list[pa.Table]:
        """A table for each stream; ids of a pair of streams meet within a few milliseconds."""
        count = tuples // len(self.kind.streams)
        times = START_MS + self.number * BATCH_SPAN_MS + np.arange(count) * BATCH_SPAN_MS // count
        ids = np.arange(count) + self.number * 10_000_000
        self.number += 1
        return [self._table(stream, times, ids) for stream in self.kind.streams]

    def _table(self, stream: str, times: np.ndarray, ids: np.ndarray) -> pa.Table:
        ts = pa.array(times * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        if stream == "rain":
            return pa.table({"ts": ts, "id": ids, "mm": self._rng.random(len(ids))}, schema=arrow_schema(RAIN))
        roads = pa.DictionaryArray.from_arrays(
            pa.array(self._rng.integers(0, ROADS, len(ids)), pa.int32()), pa.array([f"road-{i}" for i in range(ROADS)])
        ).cast(pa.string())
        speeds = self._rng.random(len(ids)) * 40
        return pa.table({"ts": ts, "id": ids, "road": roads, "speed": speeds}, schema=arrow_schema(CARS))


class Folders:
    """Files of batches for one reader: written aside, then shown all at once."""

    def __init__(self, root: Path, streams: list[Stream]) -> None:
        self.paths = [root / s.name for s in streams]
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
        self._shown = 0

    def show(self, batches: list[list[pa.Table]]) -> None:
        """Makes the batches visible, in order of name and of time."""
        ready = []
        for tables in batches:
            self._shown += 1
            for path, table in zip(self.paths, tables, strict=True):
                file = path / f"{self._shown:06d}.parquet"
                hidden = path / f".{file.name}"
                pq.write_table(table, hidden, row_group_size=ROW_GROUP)
                os.utime(hidden, (START_MS / 1000 + self._shown, START_MS / 1000 + self._shown))
                ready.append((hidden, file))
        for hidden, file in ready:
            hidden.rename(file)
