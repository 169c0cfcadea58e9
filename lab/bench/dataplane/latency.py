"""Event-time latency at a low rate: lines from a socket, results in the driver's memory, on both sides.

A line carries the time at which it was sent as its event time. Latency is the time from the newest line that a result
depends on to the moment the result is in the driver. Plain Spark reads with its own socket source, the quickest there
is, and hands its results to `foreachBatch`.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lab.baselines.plain_spark import collect, compiled
from lab.bench.dataplane.data import CARS, KINDS, ROADS, BenchWorld, QueryKind, slug, world
from lab.bench.report import Figure
from meander.model.streams import Stream
from meander.run.connectors.base import Polled, SinkBinding, SourcePosition, Surroundings
from meander.run.frames import NEWEST, arrow_schema
from meander.run.host import Host, HostOptions

RATE_TPS = 200
MOST_RATIO = 1.3
TICK_S = 0.005
WARM_S = 3.0

Progress = Callable[[str], None]


def measure(spark: SparkSession, directory: Path, seconds: float, repeats: int, progress: Progress) -> list[Figure]:
    """Median and 95th percentile of both sides for each kind of query, and their ratios as targets."""
    running = world({}, {"connector": "memory", "event_time": "true"}, window="1 s")
    lines = {name: Lines(stream) for name, stream in running.file.streams.items()}
    ours = LatencyHost(spark, directory, running, lines)
    figures: list[Figure] = []
    try:
        for kind in KINDS:
            sides: dict[str, Callable[[QueryKind, float], list[float]]] = {
                "data plane": ours.latencies,
                "plain Spark": PlainSocketQuery(spark, directory, running, lines).latencies,
            }
            found: dict[str, list[list[float]]] = {name: [] for name in sides}
            for repeat in range(repeats):
                for name, latencies in sides.items():
                    progress(f"latency of {kind.name}, {name}, {repeat + 1} of {repeats}")
                    found[name].append(latencies(kind, seconds))
            figures += _figures(kind, found)
    finally:
        ours.stop()
        for each in lines.values():
            each.close()
    return figures


def _figures(kind: QueryKind, found: dict[str, list[list[float]]]) -> list[Figure]:
    figures: list[Figure] = []
    for share in (0.5, 0.95):
        ours, plain = ([float(np.quantile(run, share)) for run in runs] for runs in found.values())
        name = f"p{round(100 * share)} of {kind.name} at {RATE_TPS} tuples/s"
        ratios = [a / b for a, b in zip(ours, plain, strict=True)]
        figures += [
            Figure.of(f"latency {name}, to plain Spark", "x", ratios, MOST_RATIO),
            Figure.of(f"latency {name}, data plane", "ms", ours),
            Figure.of(f"latency {name}, plain Spark", "ms", plain),
        ]
    return figures


class Lines:
    """Sends lines of a stream to its client, while it is switched on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.on = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._clients: list[socket.socket] = []
        self._stopping = threading.Event()
        for run in (self._accept, self._send):
            threading.Thread(target=run, daemon=True).start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients.append(client)

    def _send(self) -> None:
        sent = int(time.time() * RATE_TPS)
        while not self._stopping.wait(TICK_S):
            due = int(time.time() * RATE_TPS)
            numbers, sent = range(sent, due), due
            if self.on and numbers:
                data = "".join(self._line(n) for n in numbers).encode()
                for client in list(self._clients):
                    try:
                        client.sendall(data)
                    except OSError:
                        self._clients.remove(client)

    def _line(self, number: int) -> str:
        """Lines of two streams with the same number are sent at the same time."""
        at = time.time_ns() // 1_000_000
        if self.stream.schema == CARS:
            return f"{at},{number},road-{number % ROADS},{number % 40}\n"
        return f"{at},{number},{number % 8}\n"

    def close(self) -> None:
        self._stopping.set()
        self._server.close()
        for client in self._clients:
            client.close()


class Socket:
    """A source connector over `Lines`. Nothing can be read again, so it is for measuring only."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._socket: socket.socket | None = None
        self._rest = b""
        self._taken = 0

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._lines.port))
        self._socket.setblocking(False)

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        assert self._socket is not None
        try:
            data = self._rest + self._socket.recv(1_000_000)
        except BlockingIOError:
            return None
        whole, newline, self._rest = data.rpartition(b"\n")
        if not newline:
            return None
        columns = list(zip(*(line.split(",") for line in whole.decode().split("\n")), strict=True))
        schema = arrow_schema(self._lines.stream.schema)
        times = pa.array([int(t) * 1000 for t in columns[0]]).cast(schema[0].type)
        others = [pa.array(c).cast(f.type) for c, f in zip(columns[1:], list(schema)[1:], strict=True)]
        self._taken += len(times)
        return Polled(pa.table([times, *others], schema=schema), np.zeros(len(times), np.int64), self._taken)

    def committed(self) -> None:
        """Does nothing: no sender waits for it."""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


@dataclass
class Stopwatch:
    """A sink that notes how old the newest input of each result is."""

    fixed_ranges: bool = False
    latencies_ms: list[float] = field(default_factory=list)

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Nothing is kept."""

    def write(self, table: pa.Table, first: int) -> Any:
        now = time.time() * 1000
        self.latencies_ms.extend(now - v for v in table.column(NEWEST).to_pylist())
        return None

    def close(self) -> None:
        """Nothing is open."""


class LatencyHost:
    """One host with all queries; only the lines that are switched on give it work."""

    def __init__(self, spark: SparkSession, directory: Path, running: BenchWorld, lines: dict[str, Lines]) -> None:
        self.world, self.lines = running, lines
        plan, around = running.plan(), Surroundings(directory, directory)
        self.sinks = {binding.query: Stopwatch() for binding in plan.sink_bindings}
        self.host = Host(HostOptions(directory / "latency host"), spark)
        self.host.install(plan.installation)
        self.host.warm_up()
        self.host.start()
        self.host.deliver(plan.sink_bindings, around, {o.name: self.sinks[o.query] for o in plan.sink_bindings})
        sources = {name: Socket(each) for name, each in lines.items()}
        self.host.feeding.begin(running.file.streams.values(), around, sources)

    def latencies(self, kind: QueryKind, seconds: float) -> list[float]:
        sink = self.sinks[slug(kind)]
        with _Switched(self.world, self.lines, kind):
            return _warm(sink.latencies_ms, seconds)

    def stop(self) -> None:
        self.host.stop()


class PlainSocketQuery:
    """The plain query over Spark's socket source, started for each measurement."""

    def __init__(self, spark: SparkSession, directory: Path, running: BenchWorld, lines: dict[str, Lines]) -> None:
        self.spark, self.directory, self.world, self.lines = spark, directory, running, lines
        self._runs = 0

    def latencies(self, kind: QueryKind, seconds: float) -> list[float]:
        found: list[float] = []

        def took(table: pa.Table) -> None:
            now = time.time() * 1000
            micros = table.column(NEWEST).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            found.extend(now - v / 1000 for v in micros.to_pylist())

        self._runs += 1
        frames = {s.name: self._frame(s) for s in self.world.streams_of(kind)}
        (frame,) = compiled(self.world.queries[kind.name].plan, frames, newest=True).values()
        with _Switched(self.world, self.lines, kind):
            query = collect(frame, took, self.directory / f"latency {slug(kind)} {self._runs}")
            try:
                return _warm(found, seconds)
            finally:
                query.stop()

    def _frame(self, stream: Stream) -> DataFrame:
        address = {"host": "127.0.0.1", "port": str(self.lines[stream.name].port)}
        lines = self.spark.readStream.format("socket").options(**address).load()
        parts = lines.selectExpr("split(value, ',') AS parts")
        types = ["", "BIGINT", "STRING", "DOUBLE"] if stream.schema == CARS else ["", "BIGINT", "DOUBLE"]
        names = stream.schema.names
        columns = [f"CAST(parts[{i}] AS {types[i]}) AS {names[i]}" for i in range(1, len(names))]
        return parts.selectExpr("timestamp_millis(CAST(parts[0] AS BIGINT)) AS ts", *columns)


def _warm(latencies: list[float], seconds: float) -> list[float]:
    """The results that are added within the seconds, once results have come for a while; at least one result."""
    deadline = time.monotonic() + 60 + seconds
    while not latencies and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(WARM_S)
    before = len(latencies)
    time.sleep(seconds)
    while len(latencies) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    return latencies[before:]


class _Switched:
    """Lines of one kind of query are on inside."""

    def __init__(self, running: BenchWorld, lines: dict[str, Lines], kind: QueryKind) -> None:
        self.mine = [lines[s.name] for s in running.streams_of(kind)]

    def __enter__(self) -> None:
        for each in self.mine:
            each.on = True

    def __exit__(self, *_: object) -> None:
        for each in self.mine:
            each.on = False
