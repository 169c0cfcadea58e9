"""The time until moved state has arrived: migration queries against whole transfers from node to node, and against
replay.

Every hop is a process of its own with a socket in and a socket out, and a limit on what leaves it; so is the sink. The
state is that of a tumbling join. A move counts from the moment it is ordered until the source knows that the sink has
committed the last chunk. Replay gets its tuples for nothing: they wait at the new node already.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lab.bench.report import Figure
from meander.lang import sql
from meander.model.ids import ChannelId, FragmentId
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.reconfigure.state.hops import Forwarding, Hop
from meander.reconfigure.state.job import Job
from meander.reconfigure.state.receiving import Receiver
from meander.reconfigure.state.replay import Buffer, ReplayInput, StateReplay, Triggering
from meander.reconfigure.state.sending import Sending
from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.source import SourceOptions, open_source
from meander.reconfigure.state.transfer import Compression
from meander.reconfigure.state.wire import Address
from meander.run.execution.prepared import PreparedRunner
from meander.run.fragments.routing import Installed
from meander.run.fragments.template import BoundFragment, bind
from meander.run.frames import with_hidden
from meander.run.step.step import MOST_ROWS
from meander.run.store.commit import Commit, StateAppend
from meander.run.store.store import Store, StoreOptions

SIZES_MBPS, HOPS_MBPS = 400.0, 100.0
"""The bandwidth of a link, by experiment: as much as two busy cores move through three links, and 17 (decision 50)."""
REPLAY_MBPS = (1_000.0, 10_000.0)
"""The bandwidths beside replay, which no link slows down: those of local networks. The goal is for the last: over
the first, 128 MB take a second at least, by any means."""
INTERMEDIATES = 2
HOPS_MEGABYTES = 32
REPLAY_MEGABYTES = 128
GOALS = {INTERMEDIATES: 2.5, 16: 10.0}
"""Migration query against store and forward, by intermediate nodes."""
REPLAY_GOAL = 50.0
BANDWIDTH_GOAL = 0.8
WINDOW_MS = 3_600_000
START_MS = 1_700_000_000_000 // WINDOW_MS * WINDOW_MS
BUFFER_TUPLES = 10_000
"""Tuples that upstream sends at once when it replays."""
STATE_FRAGMENT, NEW_FRAGMENT = FragmentId(1), FragmentId(2)
READINGS = Schema.of(ts="bigint", id="bigint", value="double")
QUERY = (
    "CREATE QUERY pairs AS SELECT l.id AS id, l.value AS before, r.value AS after "
    "FROM left_readings AS l JOIN right_readings AS r ON l.id = r.id WINDOW TUMBLING(1 h) INTO out;"
)
NOTES = (
    "state of a tumbling join; chunks are not compressed unless a figure says so; beside replay the faster way counts",
    "replay: tuples are at the new node already, only their steps on Spark count; best: one open window, nothing fires",
    "average and worst re-read half a window and a whole one before it, half of the buffers and all of them firing",
)

Progress = Callable[[str], None]


def measure(
    spark: SparkSession,
    directory: Path,
    sizes: Sequence[int],
    hops: Sequence[int],
    repeats: int,
    progress: Progress,
    *,
    hops_megabytes: int = HOPS_MEGABYTES,
    replay_megabytes: int = REPLAY_MEGABYTES,
) -> list[Figure]:
    """`sizes` in MB over two intermediate nodes, `hops` as intermediate nodes for one size, and replay at another."""
    bound = join()
    figures: list[Figure] = []
    with sink_process(directory / "target") as sink:
        with relays(INTERMEDIATES, SIZES_MBPS) as path:
            for size in sizes:
                with place(directory, bound, size) as source:
                    progress(f"{size} MB over {INTERMEDIATES} intermediate nodes")
                    figures += _compared(source, sink, path, SIZES_MBPS, size, repeats)
        with relays(max(hops), HOPS_MBPS) as path, place(directory, bound, hops_megabytes) as source:
            for count in hops:
                progress(f"{hops_megabytes} MB over {count} intermediate nodes")
                figures += _compared(source, sink, path[:count], HOPS_MBPS, hops_megabytes, repeats)
        with place(directory, bound, replay_megabytes) as source:
            progress(f"{replay_megabytes} MB, replayed")
            figures += _replayed(spark, directory, bound, source, sink, replay_megabytes, repeats)
    return figures


def _compared(
    source: Store, sink: SinkProcess, path: Sequence[Address], mbps: float, megabytes: int, repeats: int
) -> list[Figure]:
    """Both ways in turn; ratios are taken within a repeat."""
    took: dict[Forwarding, list[float]] = {f: [] for f in Forwarding}
    ideal = source.state.size(STATE_FRAGMENT).bytes * 8 / (mbps * 1e6)
    for _ in range(repeats):
        for forwarding in Forwarding:
            took[forwarding].append(moved(source, sink, path, mbps, forwarding, Compression.NONE))
    streamed, whole = took[Forwarding.PIPELINED], took[Forwarding.WHOLE]
    where = f"{megabytes} MB over {len(path)} intermediates, {mbps:g} Mbit/s"
    ratios = [b / a for a, b in zip(streamed, whole, strict=True)]
    return [
        Figure.of(f"{where}: migration query", "s", streamed),
        Figure.of(f"{where}: store and forward", "s", whole),
        Figure.of(f"{where}: store and forward to migration query", "x", ratios, GOALS.get(len(path)), at_least=True),
        Figure.of(f"{where}: bandwidth used", "", [ideal / s for s in streamed], BANDWIDTH_GOAL, at_least=True),
    ]


def moved(
    source: Store,
    sink: SinkProcess,
    path: Sequence[Address],
    mbps: float,
    forwarding: Forwarding,
    compression: Compression,
) -> float:
    """Seconds until all state is at the sink, which is checked."""
    hop = Hop(0.0, mbps)
    transfer = sink.expect()
    started = time.perf_counter()
    export = open_source(source, STATE_FRAGMENT, None, [hop] * (len(path) + 1), SourceOptions(compression=compression))
    sending = Sending(export, transfer, [*path, sink.address], hop=hop, forwarding=forwarding)
    sending.start()
    if not sending.wait():
        raise RuntimeError(sending.error)
    seconds = time.perf_counter() - started
    rows = sink.rows(transfer)
    if rows != export.rows:
        raise RuntimeError(f"{rows:,} of {export.rows:,} rows arrived")
    return seconds


def _replayed(
    spark: SparkSession,
    directory: Path,
    bound: BoundFragment,
    source: Store,
    sink: SinkProcess,
    megabytes: int,
    repeats: int,
) -> list[Figure]:
    rows = source.state.size(STATE_FRAGMENT).rows
    runner = PreparedRunner(spark)
    replayed(runner, directory, bound, 4 * BUFFER_TUPLES, Triggering.AVERAGE)  # plans are prepared by then
    steps = sorted({min(rows, MOST_ROWS), rows})  # as a slot would, and all at once: the faster one counts
    best = [
        min(replayed(runner, directory, bound, rows, Triggering.BEST, tuples) for tuples in steps)
        for _ in range(repeats)
    ]
    figures = [Figure.of(f"{megabytes} MB: replay, best", "s", best)]
    for mbps in REPLAY_MBPS:
        wanted = REPLAY_GOAL if megabytes == REPLAY_MEGABYTES and mbps == REPLAY_MBPS[-1] else None
        figures += _beside_replay(source, sink, mbps, megabytes, best, wanted)
    small = rows // 8
    for triggering in Triggering:
        seconds = replayed(runner, directory, bound, small, triggering)
        name = f"{megabytes // 8} MB: replay, {triggering.name.lower()}, {BUFFER_TUPLES:,} tuples a buffer"
        figures.append(Figure.of(name, "s", [seconds]))
    runner.close()
    return figures


def _beside_replay(
    source: Store, sink: SinkProcess, mbps: float, megabytes: int, best: Sequence[float], goal: float | None
) -> list[Figure]:
    """A migration query over links of one kind, as often as the best replay was measured."""
    figures: list[Figure] = []
    fastest: list[float] = []
    where = f"{megabytes} MB over {INTERMEDIATES} intermediates, {mbps:g} Mbit/s"
    with relays(INTERMEDIATES, mbps) as path:
        for compression in (Compression.NONE, Compression.ZSTD):
            took = [moved(source, sink, path, mbps, Forwarding.PIPELINED, compression) for _ in best]
            fastest = [min(a, b) for a, b in zip(fastest or took, took, strict=True)]
            name = f"{where}: migration query beside replay, compression {compression.value}"
            figures.append(Figure.of(name, "s", took))
    ratios = [b / a for a, b in zip(fastest, best, strict=True)]
    return [*figures, Figure.of(f"{where}: best replay to migration query", "x", ratios, goal, at_least=True)]


def replayed(
    runner: PreparedRunner,
    directory: Path,
    bound: BoundFragment,
    rows: int,
    triggering: Triggering,
    step_tuples: int = MOST_ROWS,
) -> float:
    """Seconds until the steps have built the state of so many tuples of an open window."""
    installed = Installed(NEW_FRAGMENT, 1, 0, bound, tuple(map(ChannelId, range(2))), ((),) * len(bound.outputs))
    closed = int(rows * triggering.value)
    buffers = [*windowful(0, closed), *windowful(1, rows)]
    root = directory / "replay"
    store = Store.open(root, StoreOptions(memory_budget_bytes=2_000_000_000))
    job = Job(store, NEW_FRAGMENT, store, NEW_FRAGMENT, "replay")
    replay = StateReplay(job, ReplayInput(installed, buffers, runner, triggering, step_tuples), background=False)
    replay.start()
    replay.poll()
    built, seconds = store.state.size(NEW_FRAGMENT).rows, replay.seconds
    store.close()
    shutil.rmtree(root)
    if not replay.done or built != rows // 2 * 2:
        raise RuntimeError(replay.error or f"replay built {built:,} of {rows:,} rows")
    return seconds


# ------------------------------------------------------------------------------------------------ what is moved


def join() -> BoundFragment:
    streams = {n: Stream(n, READINGS, "ts", ("edge",)) for n in ("left_readings", "right_readings")}
    plan = sql(QUERY, streams, {"out": SinkTarget("out", "cloud")}).queries[0].plan
    return bind(plan.operators, plan.inputs)


def windowful(window: int, rows: int, buffer_tuples: int = BUFFER_TUPLES) -> Iterator[Buffer]:
    """Tuples of one window for both ports, half each, in turns; each meets one of the other side."""
    half, start = rows // 2, START_MS + window * WINDOW_MS
    rng = np.random.default_rng(window)
    for at in range(0, half, buffer_tuples):
        ids = np.arange(at, min(half, at + buffer_tuples))
        times = start + ids * (WINDOW_MS - 1) // max(half, 1)
        for port in range(2):
            table = pa.table({"ts": times, "id": ids, "value": rng.random(len(ids))})
            yield Buffer(port, with_hidden(table, "ts", 0, int(times[0])))


@contextmanager
def place(directory: Path, bound: BoundFragment, megabytes: int) -> Iterator[Store]:
    """A store with so much state of the join's open window."""
    root = directory / f"source {megabytes}"
    store = Store.open(root, StoreOptions(memory_budget_bytes=2_000_000_000, disk_budget_bytes=8_000_000_000))
    (stage,) = bound.template.stages
    width = stage.states[0].schema.empty_table().schema.names
    for buffer in windowful(1, megabytes * 1_000_000 // (8 * len(width)), 100_000):
        schema = stage.states[buffer.port].schema
        body = pa.table(buffer.table.columns, schema=schema)
        append = StateAppend.sliced(body, buffer.port, [STATE_FRAGMENT], [START_MS + WINDOW_MS], [len(body)])
        store.commit(Commit(state_appends=(append,)))
    yield store
    store.close()
    shutil.rmtree(root)


# ------------------------------------------------------------------------------------------------ processes


@contextmanager
def relays(count: int, mbps: float) -> Iterator[list[Address]]:
    """So many relays, each a process, each with a limit on what leaves it."""
    command = [sys.executable, "-m", "meander.reconfigure.state.relay", "--bandwidth-mbps", str(mbps)]
    started = [
        subprocess.Popen([*command, "--name", f"relay {n + 1}"], stdout=subprocess.PIPE, text=True)
        for n in range(count)
    ]
    try:
        yield [_address(process) for process in started]
    finally:
        for process in started:
            _ended(process)


def _address(process: subprocess.Popen[str]) -> Address:
    assert process.stdout is not None
    host, _, port = process.stdout.readline().strip().rpartition(":")
    return host, int(port)


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@dataclass
class SinkProcess:
    """The new node, driven over its standard input and output."""

    process: subprocess.Popen[str]
    address: Address
    transfers: int = 0

    def expect(self) -> str:
        """Lets the next transfer in; says its name."""
        self.transfers += 1
        name = f"transfer-{self.transfers}"
        self._ask(f"expect {name}")
        return name

    def rows(self, transfer: str) -> int:
        """The number of rows that arrived; they are deleted then."""
        return int(self._ask(f"rows {transfer}"))

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def sink_process(directory: Path) -> Iterator[SinkProcess]:
    code = f"from {__name__} import serve_sink; serve_sink({str(directory)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield SinkProcess(process, _address(process))
    finally:
        _ended(process)


def serve_sink(directory: str) -> None:
    """The sink's process: takes transfers, each into a store of its own."""
    receiver = Receiver().start()
    sinks: dict[str, StateSink] = {}
    _say("{}:{}".format(*receiver.address))
    for line in sys.stdin:
        what, _, transfer = line.strip().partition(" ")
        root = Path(directory) / transfer
        if what == "expect":
            options = StoreOptions(disk_budget_bytes=8_000_000_000)
            sinks[transfer] = StateSink(Store.open(root, options), NEW_FRAGMENT, transfer)
            receiver.expect(sinks[transfer])
            _say("ready")
        else:
            receiver.forget(transfer)
            store = sinks.pop(transfer).store
            rows = store.state.size(NEW_FRAGMENT).rows
            store.close()
            shutil.rmtree(root)
            _say(str(rows))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# ------------------------------------------------------------------------------------------------ plot


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Seconds by state size and by intermediate nodes, for both ways of moving, as an image."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(1, 2, figsize=(10, 4))
    for strategy in ("migration query", "store and forward"):
        points = [(*_place_of(f.name), f.measured) for f in figures if f.name.endswith(f": {strategy}")]
        by_size = sorted((size, seconds) for size, _, mbps, seconds in points if mbps == SIZES_MBPS)
        by_hops = sorted((hops, seconds) for _, hops, mbps, seconds in points if mbps == HOPS_MBPS)
        for axis, line in zip(axes, (by_size, by_hops), strict=True):
            axis.plot([x for x, _ in line], [y for _, y in line], marker="o", label=strategy)
    for axis, label in zip(axes, ("state in MB, 2 intermediate nodes", "intermediate nodes"), strict=True):
        axis.set(xlabel=label, ylabel="state available after (s)", xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    drawing.tight_layout()
    drawing.savefig(path, dpi=120)
    plt.close(drawing)


def _place_of(name: str) -> tuple[int, int, float]:
    """Size, intermediate nodes and bandwidth in a figure's name.

    >>> _place_of("32 MB over 16 intermediates, 100 Mbit/s: migration query")
    (32, 16, 100.0)
    """
    words = name.split()
    return int(words[0]), int(words[3]), float(words[5])
