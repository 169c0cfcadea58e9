"""The time until moved state has arrived: migration queries against whole transfers from stop to stop, and against
replay.

The state is that of a tumbling join and moves as it does between sites: each stop is a process with a store, which the
next one asks over Arrow Flight, and cables between them have a bandwidth where the machine can limit it. A move counts
from the moment it is ordered until the last stop has committed all of it. Replay gets its tuples for nothing: they wait
at the new node already.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lab.bench.report import Figure
from lab.testbed.chain import Chain, Forwarding, chain, is_limited, remarks
from lab.testbed.chain_stop import ROW_BYTES
from meander.lang import sql
from meander.model.ids import ChannelId, FragmentId
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.reconfigure.state.job import Job
from meander.reconfigure.state.replay import Buffer, ReplayInput, StateReplay, Triggering
from meander.run.execution.prepared import PreparedRunner
from meander.run.fragments.routing import Installed
from meander.run.fragments.template import BoundFragment, bind
from meander.run.frames import with_hidden
from meander.run.step.step import MOST_ROWS
from meander.run.store.store import Store, StoreOptions

SIZES_MBPS, HOPS_MBPS = 400.0, 100.0
"""The bandwidth of a link, by experiment: as much as two busy cores move through three links, and 17 (decision 50)."""
REPLAY_MBPS = (1_000.0, 10_000.0)
"""Beside replay, which no link slows down: the bandwidths of local networks. The goal is for the last: over the
first, 128 MB take a second at least, whatever moves them."""
INTERMEDIATES = 2
HOPS_MEGABYTES = 32
REPLAY_MEGABYTES = 128
GOALS = {INTERMEDIATES: 2.5, 16: 10.0}
"""Migration query against store and forward, by intermediate nodes. They are about links: without a bandwidth all stops
share the machine's cores, and nothing is gained by working at the same time."""
REPLAY_GOAL = 50.0
BANDWIDTH_GOAL = 0.8
WINDOW_MS = 3_600_000
START_MS = 1_700_000_000_000 // WINDOW_MS * WINDOW_MS
BUFFER_TUPLES = 10_000
"""Tuples that upstream sends at once when it replays."""
NEW_FRAGMENT = FragmentId(2)
READINGS = Schema.of(ts="bigint", id="bigint", value="double")
QUERY = (
    "CREATE QUERY pairs AS SELECT l.id AS id, l.value AS before, r.value AS after "
    "FROM left_readings AS l JOIN right_readings AS r ON l.id = r.id WINDOW TUMBLING(1 h) INTO out;"
)
Progress = Callable[[str], None]


def notes() -> tuple[str, ...]:
    """Remarks on the figures."""
    return (
        "state of a tumbling join; it is fetched over Arrow Flight through relays, as between sites, uncompressed",
        "store and forward: by the same transport each stop takes all of it into its store, then the next one begins",
        "replay: tuples are at the new node already, only their steps on Spark count",
        "best: one open window, nothing fires; average and worst: half of the buffers, and all, make windows fire",
        *remarks(),
    )


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
    figures: list[Figure] = []
    with chain(max(INTERMEDIATES, *hops), SIZES_MBPS) as stops:
        for size in sizes:
            stops.fill(size * 1_000_000)
            progress(f"{size} MB over {INTERMEDIATES} intermediate nodes")
            figures += _compared(stops, INTERMEDIATES, SIZES_MBPS, size, repeats)
        stops.limit(HOPS_MBPS)
        stops.fill(hops_megabytes * 1_000_000)
        for count in hops:
            progress(f"{hops_megabytes} MB over {count} intermediate nodes")
            figures += _compared(stops, count, HOPS_MBPS, hops_megabytes, repeats)
        progress(f"{replay_megabytes} MB, replayed")
        figures += _replayed(spark, directory, stops, replay_megabytes, repeats)
    return figures


def _compared(stops: Chain, intermediates: int, mbps: float, megabytes: int, repeats: int) -> list[Figure]:
    """Both in turn; ratios are taken within a repeat."""
    took: dict[Forwarding, list[float]] = {f: [] for f in Forwarding}
    ideal = stops.bytes * 8 / (mbps * 1e6)
    for _ in range(repeats):
        for forwarding in Forwarding:
            took[forwarding].append(stops.moved(intermediates, forwarding).seconds)
    streamed, whole = took[Forwarding.PIPELINED], took[Forwarding.WHOLE]
    where = _where(megabytes, intermediates, mbps)
    ratios = [b / a for a, b in zip(streamed, whole, strict=True)]
    goal = GOALS.get(intermediates) if is_limited() else None
    figures = [
        Figure.of(f"{where}: migration query", "s", streamed),
        Figure.of(f"{where}: store and forward", "s", whole),
        Figure.of(f"{where}: store and forward to migration query", "x", ratios, goal, at_least=True),
    ]
    if is_limited():
        used = [ideal / s for s in streamed]
        figures.append(Figure.of(f"{where}: bandwidth used", "", used, BANDWIDTH_GOAL, at_least=True))
    return figures


def _where(megabytes: int, intermediates: int, mbps: float) -> str:
    links = f"{mbps:g} Mbit/s" if is_limited() else "unlimited links"
    return f"{megabytes} MB over {intermediates} intermediates, {links}"


def _replayed(spark: SparkSession, directory: Path, stops: Chain, megabytes: int, repeats: int) -> list[Figure]:
    rows = megabytes * 1_000_000 // ROW_BYTES
    bound, runner = join(), PreparedRunner(spark)
    replayed(runner, directory, bound, 4 * BUFFER_TUPLES, Triggering.AVERAGE)  # plans are prepared by then
    steps = sorted({min(rows, MOST_ROWS), rows})  # as a slot would, and all at once: the faster one counts
    best = [
        min(replayed(runner, directory, bound, rows, Triggering.BEST, tuples) for tuples in steps)
        for _ in range(repeats)
    ]
    figures = [Figure.of(f"{megabytes} MB: replay, best", "s", best)]
    stops.fill(megabytes * 1_000_000)
    for mbps in REPLAY_MBPS if is_limited() else REPLAY_MBPS[-1:]:
        stops.limit(mbps)
        wanted = REPLAY_GOAL if megabytes == REPLAY_MEGABYTES and mbps == REPLAY_MBPS[-1] else None
        took = [stops.moved(INTERMEDIATES).seconds for _ in best]
        where = _where(megabytes, INTERMEDIATES, mbps)
        ratios = [b / a for a, b in zip(took, best, strict=True)]
        figures += [
            Figure.of(f"{where}: migration query beside replay", "s", took),
            Figure.of(f"{where}: best replay to migration query", "x", ratios, wanted, at_least=True),
        ]
    small = rows // 8
    for triggering in Triggering:
        seconds = replayed(runner, directory, bound, small, triggering)
        name = f"{megabytes // 8} MB: replay, {triggering.name.lower()}, {BUFFER_TUPLES:,} tuples a buffer"
        figures.append(Figure.of(name, "s", [seconds]))
    runner.close()
    return figures


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


# ------------------------------------------------------------------------------------------------ what is replayed


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


# ------------------------------------------------------------------------------------------------ plot


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Seconds by state size and by intermediate nodes, for both kinds of moves, as an image."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(1, 2, figsize=(10, 4))
    for strategy in ("migration query", "store and forward"):
        points = [(*_place_of(f.name), f.measured) for f in figures if f.name.endswith(f": {strategy}")]
        by_size = sorted((size, s) for size, hops, mbps, s in points if mbps != HOPS_MBPS and hops == INTERMEDIATES)
        by_hops = sorted((hops, s) for _, hops, mbps, s in points if mbps in (HOPS_MBPS, math.inf))
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
    >>> _place_of("32 MB over 16 intermediates, unlimited links: migration query")
    (32, 16, inf)
    """
    words = name.split()
    return int(words[0]), int(words[3]), math.inf if words[5] == "unlimited" else float(words[5])
