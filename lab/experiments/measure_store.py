"""The cost of the durable core: `python -m lab.experiments.measure_store`.

Every figure is the median of many repeats, as processor time of the calling thread (the cost of the code, independent
of other processes) and as wall time. Large appends stand beside a plain copy and a plain file write of the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from meander.deploy.fragments import Channel, Fragment
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.topology.path_cache import Path as Route
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.store.commit import Commit, StateAppend, StateDrop, slot_writer
from meander.run.store.journal import Durability
from meander.run.store.records.deployment import ChannelRecord, FragmentRecord
from meander.run.store.records.progress import IngestRecord
from meander.run.store.store import Store, StoreOptions

COLUMNS = ("_ts", "_wm", "_newest", "k", "v")
SHAPES = ((1, 2000), (20, 100), (200, 10), (1000, 2), (1000, 20), (10000, 2))


def table(rows: int) -> pa.Table:
    """Five columns of 8 bytes, as a stream of numbers has them inside the data plane."""
    return pa.table({name: np.random.default_rng(1).integers(0, 1 << 40, rows) for name in COLUMNS})


SORTED = table(10_000)


def measured(action: Callable[[int], object], repeats: int) -> tuple[float, float]:
    """Median processor and wall time in milliseconds; the first calls are not counted."""
    cpu, wall = [], []
    for index in range(repeats):
        started, clock = time.thread_time(), time.perf_counter()
        action(index)
        cpu.append(time.thread_time() - started)
        wall.append(time.perf_counter() - clock)
    return 1000 * float(np.median(cpu[2:])), 1000 * float(np.median(wall[2:]))


def line(what: str, times: tuple[float, float]) -> None:
    sys.stdout.write(f"{what:<46} cpu {times[0]:9.3f} ms   wall {times[1]:9.3f} ms\n")


def channels(directory: Path, count: int, rows: int) -> None:
    store = Store.open(directory)
    ids = [ChannelId(i) for i in range(count)]
    store.commit(Commit(add=tuple(ChannelSpec(i, table(1).schema) for i in ids)))
    content, lengths = table(count * rows), np.full(count, rows)
    label = f"{count} channels x {rows} rows"
    slot = slot_writer(0)

    def append(batch: int) -> None:
        marks = np.full(count, batch)
        store.commit(Commit(slot, batch, appends=(ChannelAppend.sliced(content, ids, lengths, marks),)))

    def read(_: int) -> None:
        starts, _stops = store.exchange.bounds(ids)
        store.exchange.read_many(ids, starts.tolist(), (starts + rows + 1).tolist())

    def step(batch: int) -> None:
        starts, stops = store.exchange.bounds(ids)
        store.exchange.read_many(ids, starts.tolist(), stops.tolist())
        consumed = dict(zip(ids, stops.tolist(), strict=True))
        appends = (ChannelAppend.sliced(content, ids, lengths, np.full(count, batch)),)
        store.commit(Commit(slot, 1000 + batch, consumed=consumed, appends=appends))

    repeats = 100 if count < 1000 else 30
    line(f"{label}: append", measured(append, repeats))
    line(f"{label}: read one append", measured(read, repeats))
    ends = store.exchange.bounds(ids)[1].tolist()
    line(f"{label}: read {repeats} appends", measured(lambda _: store.exchange.read_many(ids, [0] * count, ends), 5))
    line(f"{label}: snapshot", measured(lambda _: store.snapshot(), 5))
    line(f"{label}: read all, consume, append", measured(step, repeats))
    store.close()
    line(f"{label}: open", measured(lambda _: Store.open(directory).close(), 5))


def large(directory: Path, rows: int) -> None:
    content = table(rows)
    store = Store.open(directory / "store")
    store.commit(Commit(add=(ChannelSpec(ChannelId(0), content.schema),)))
    size = content.nbytes / 1e6
    raw = content.combine_chunks().to_batches()[0].serialize()

    def write(index: int) -> None:
        (directory / f"raw{index}").write_bytes(raw)

    def append(index: int) -> None:
        store.commit(Commit(slot_writer(0), index, appends=(ChannelAppend.one(ChannelId(0), content),)))

    line(f"{rows} rows, {size:.0f} MB: copy in memory", measured(lambda _: np.frombuffer(raw, np.uint8).copy(), 8))
    line(f"{rows} rows, {size:.0f} MB: plain file write", measured(write, 8))
    line(f"{rows} rows, {size:.0f} MB: append", measured(append, 8))
    store.close()


def state(directory: Path, fragments: int) -> None:
    store = Store.open(directory)
    content, ids = table(fragments * 4), np.arange(fragments)
    all_of = [FragmentId(i) for i in range(fragments)]

    def step(batch: int) -> None:
        append = StateAppend.sliced(content, 0, ids, np.full(fragments, batch), np.full(fragments, 4))
        drop = StateDrop.of(0, ids, batch - 5, below=True)
        store.commit(Commit(slot_writer(0), batch, state_drops=(drop,), state_appends=(append,)))

    line(f"{fragments} fragments: state append and drop", measured(step, 50))
    line(
        f"{fragments} fragments: read one bucket of all",
        measured(lambda _: store.state.read(all_of, 0, 48, 49), 20),
    )
    line(f"{fragments} fragments: read five buckets of all", measured(lambda _: store.state.read(all_of, 0), 20))
    store.close()


def remembered(directory: Path, streams: int, fragments: int) -> None:
    """Records: the positions of sources with every commit, and a whole deployment at once."""
    store = Store.open(directory)

    def positions(batch: int) -> None:
        store.commit(
            Commit(
                slot_writer(0),
                batch,
                records=tuple(
                    IngestRecord(f"stream {n}", {"epoch": 1, "at": batch}, "A" * 24, batch) for n in range(streams)
                ),
            )
        )

    made = [
        Fragment(FragmentId(n), 1, NodeId(n % 50), (OperatorId(2 * n), OperatorId(2 * n + 1)), (OperatorId(2 * n + 1),))
        for n in range(fragments)
    ]
    route = Route((NodeId(1), NodeId(2), NodeId(3)), (4, 5), 7.5)
    wired = [
        Channel(ChannelId(n), OperatorId(2 * n + 1), FragmentId(n), FragmentId(n + 1), route) for n in range(fragments)
    ]

    def deployment(_: int) -> None:
        store.commit(Commit(records=(*map(FragmentRecord, made), *map(ChannelRecord, wired))))

    for what, action, repeats in (
        (f"positions of {streams} streams", positions, 200),
        (f"{fragments} fragments and channels", deployment, 20),
    ):
        before = store.stats().disk_bytes
        line(f"{what}: commit", measured(action, repeats))
        sys.stdout.write(f"{what:<46} {(store.stats().disk_bytes - before) / repeats:13.0f} bytes\n")
    line(
        f"{fragments} fragments and channels: read all",
        measured(lambda _: (store.records(FragmentRecord), store.records(ChannelRecord)), 20),
    )
    line(f"{fragments} fragments and channels: snapshot", measured(lambda _: store.snapshot(), 10))
    store.close()
    line(f"{fragments} fragments and channels: open", measured(lambda _: Store.open(directory).close(), 10))


def settled(directory: Path) -> None:
    store = Store.open(directory, StoreOptions(durability=Durability.DISK))
    store.commit(Commit(add=(ChannelSpec(ChannelId(0), table(1).schema),)))
    content = table(100)
    times = measured(
        lambda i: store.commit(Commit(slot_writer(0), i, appends=(ChannelAppend.one(ChannelId(0), content),))), 30
    )
    line("100 rows, durability disk: append", times)
    store.close()


def cost_of_disk(directory: Path, rows: int, writers: int = 2, seconds: float = 2.0, rounds: int = 3) -> None:
    """Slots that commit steps side by side, and a sink that gets their results: what `disk` takes of the throughput,
    and how long a result takes until somebody outside may see it."""
    content = table(rows)
    rates: dict[Durability, list[float]] = {each: [] for each in Durability}
    delays: dict[Durability, list[float]] = {each: [] for each in Durability}
    for turn in range(rounds):
        for durability in Durability:
            store = Store.open(directory / f"{durability.value}{turn}", StoreOptions(durability))
            channels = [ChannelId(c) for c in range(writers)]
            store.commit(Commit(add=tuple(ChannelSpec(c, content.schema) for c in channels)))
            came = _steps(store, channels, content, time.perf_counter() + seconds)
            rates[durability].append(len(came) * rows / seconds)
            delays[durability] += came
            store.close()
    rate = {each: median(found) for each, found in rates.items()}
    for each in Durability:
        found = sorted(delays[each])
        half, most = 1000 * found[len(found) // 2], 1000 * found[len(found) * 99 // 100]
        what = f"{writers} slots, {rows} rows a step, {each.value}"
        sys.stdout.write(f"{what:<46} {rate[each]:12,.0f} rows/s   outside after {half:.1f} ms, p99 {most:.1f} ms\n")
    ratio = rate[Durability.DISK] / rate[Durability.PROCESS]
    sys.stdout.write(f"{writers} slots, {rows} rows a step: disk to process {ratio:.2f}\n")


def _steps(store: Store, channels: list[ChannelId], content: pa.Table, until: float) -> list[float]:
    """The delays of all steps' results, from the moment at which the step was done."""
    done: deque[float] = deque()
    found: list[float] = []

    def write(channel: ChannelId) -> None:
        number = 0
        while time.perf_counter() < until:
            end = store.exchange.tail(channel)
            SORTED.sort_by([("k", "ascending")])  # the work of a step: a millisecond or so
            append = ChannelAppend.one(channel, content)
            commit = Commit(slot_writer(channel), number, consumed={channel: end}, appends=(append,), settles=False)
            store.commit(commit)
            done.append(time.perf_counter())
            number += 1

    def deliver() -> None:
        while time.perf_counter() < until:
            seen = [done.popleft() for _ in range(len(done))]
            store.syncer.settle()
            found.extend(time.perf_counter() - at for at in seen)
            time.sleep(0.002)

    with ThreadPoolExecutor(len(channels) + 1) as pool:
        for each in [pool.submit(deliver), *(pool.submit(write, channel) for channel in channels)]:
            each.result()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="meander-store-") as name:
        base = Path(name)
        for count, rows in SHAPES:
            channels(base / f"{count}x{rows}", count, rows)
        for fragments in (20, 1000):
            state(base / f"state{fragments}", fragments)
        remembered(base / "records", 10, 1000)
        (base / "large").mkdir()
        large(base / "large", 1_000_000)
        settled(base / "disk")
        for rows in (100, 2_000, 20_000):
            cost_of_disk(base / f"cost{rows}", rows)


if __name__ == "__main__":
    main()
