"""Trouble around a running host: it says what is wrong, goes on with all else, and loses nothing."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lab.testbed.disks import Disks, can_be_full
from meander.model.ids import QueryId
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.memory import MemorySink
from meander.run.execution.prepared import PreparedRunner
from meander.run.frames import END, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import compare
from meander.run.slot import OnBatch, Slot
from meander.run.store.commit import Commit
from meander.run.store.journal import DiskFullError
from meander.run.store.store import Store
from tests.run.harness import SINKS, Plane, queries, rows_of

TEXT = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO two;
"""
FULL = 3
"""How often the disk is full."""


class Broken(MemorySink):
    """A sink that nobody listens to until somebody mends it."""

    mended = False

    def write(self, table: pa.Table, first: int) -> Any:
        if not self.mended:
            raise OSError("nobody answers")
        return super().write(table, first)


@pytest.fixture
def plane(spark: SparkSession, tmp_path: Path) -> Plane:
    planned = Plane(tmp_path / "plan", PreparedRunner(spark), queries(TEXT))
    planned.store.close()
    return planned


@pytest.mark.slow
def test_a_broken_sink_and_a_full_disk_stop_nothing_else(
    spark: SparkSession, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, refused = Store.commit, 0
    said: set[str] = set()

    def full(store: Store, change: Commit) -> Any:
        nonlocal refused
        if change.writer.startswith("slot") and refused < FULL:
            refused += 1
            raise DiskFullError("no room left for the journal; free some space")
        return commit(store, change)

    monkeypatch.setattr(Store, "commit", full)
    host = Host(HostOptions(tmp_path / "host"), spark)
    broken = Broken()
    sinks = {"fast > one": broken, "load > two": MemorySink()}
    options = {"retries": "1", "backoff": "10ms"}
    sink_bindings = [
        SinkBinding(name, type(SINKS[sink])(sink, "cloud", options), plane.installation.results[running.sinks[0]])
        for (name, running), sink in zip(plane.catalog.plan.queries.items(), ("one", "two"), strict=True)
    ]
    table = rows_of("cars", np.random.default_rng(5), np.arange(0, 4000, 25))
    channels = plane.installation.ingest["cars", "s0"]
    ends = [c for readers in plane.installation.ingest.values() for c in readers]
    try:
        host.install(plane.installation)
        host.start()
        host.deliver(sink_bindings, Surroundings(tmp_path, tmp_path), sinks)
        commit(
            host.store,
            Commit(appends=tuple(ChannelAppend.one(c, with_hidden(table, "ts", 0), 3975) for c in channels)),
        )
        commit(host.store, Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in ends)))
        while refused < FULL or not host.status().problems:
            said.update(host.status().problems)
            host.store.wait(host.store.changes, 0.02)
        assert not host.drain(timeout_s=200)
        status = host.status()
        assert status.problems == ("sink binding fast > one is paused: OSError: nobody answers",)
        assert status.alive
        assert not status.healthy
        broken.mended = True
        assert host.delivery is not None
        host.delivery.resume("fast > one")
        assert host.drain(timeout_s=200)
        assert host.status().healthy
        monkeypatch.setattr(host.store, "_snapshot_problem", "no room")
        assert host.status().problems == ("snapshots wait, and the store grows on the disk: no room",)
    finally:
        host.stop()
    assert "slot 0 waits: no room left for the journal; free some space" in said
    inputs = {
        "cars": table.append_column(PRODUCER, pa.array(["s0"] * len(table))),
        "rain": rows_of("rain", np.random.default_rng(0), np.arange(0)).append_column(
            PRODUCER, pa.array([], pa.string())
        ),
    }
    for query in plane.queries:
        for sink, expected in oracle(spark, query.plan, inputs).items():
            assert compare(expected, sinks[f"{query.id} > {sink}"].table).equal


def test_a_slot_that_does_not_start_is_tried_less_and_less_often_and_holds_up_no_other(
    spark: SparkSession, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    host = Host(HostOptions(tmp_path / "host", slots=2), spark)
    broken, good = host.slots

    def refuse(slot: Slot, session: SparkSession, on_batch: OnBatch) -> None:
        slot.revivals += 1
        tries.append(slot.number)
        raise OSError("no more processes")

    monkeypatch.setattr(Slot, "revive", refuse)
    try:
        for revivals in (0, 3, 5_000):
            broken.revivals, broken.again_at = revivals, 0.0
            before = time.monotonic()
            host.pool._revive(broken)
            host.pool._revive(broken)  # not yet
            pause = broken.again_at - before
            assert {0: 0.4, 3: 3.9, 5_000: 29.9}[revivals] < pause < {0: 5, 3: 9, 5_000: 35}[revivals]
        host.pool._revive(good)
        assert tries == [0, 0, 0, 1]
    finally:
        monkeypatch.undo()
        host.store.close()


def test_a_mark_that_found_no_room_is_not_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts that both found an empty one would count their batches under one name, and drop each other's."""
    write = Path.write_text

    def full(path: Path, *args: Any) -> int:
        write(path, "")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            Slot(0, tmp_path)
    first = Slot(0, tmp_path).writer
    shutil.rmtree(tmp_path / "slot-0" / "checkpoint")
    second = Slot(0, tmp_path).writer
    assert len({first, second, "slot 0 "}) == 3


@pytest.mark.slow
def test_a_slot_whose_checkpoint_found_no_room_goes_on_when_there_is_some(
    spark: SparkSession, plane: Plane, tmp_path: Path
) -> None:
    allowed, reason = can_be_full()
    if not allowed:
        pytest.skip(reason)
    disks = Disks([tmp_path / "host"])
    host = Host(HostOptions(tmp_path / "host"), spark)
    sink = MemorySink()
    running = plane.catalog.plan.queries[QueryId("fast")]
    binding = SinkBinding("fast", SINKS["one"], plane.installation.results[running.sinks[0]])
    table = rows_of("cars", np.random.default_rng(5), np.arange(0, 2000, 25))
    deadline = time.monotonic() + 300
    try:
        host.install(plane.installation)
        host.start()
        host.deliver([binding], Surroundings(tmp_path, tmp_path), {"fast > one": sink})
        disks.fill(tmp_path / "host")
        while not any("no room for a checkpoint" in p for p in host.status().problems):
            assert time.monotonic() < deadline, host.status()
            host.slots[0].wake()
            time.sleep(0.1)
        disks.empty(tmp_path / "host")
        channels = plane.installation.ingest["cars", "s0"]
        host.store.commit(
            Commit(appends=tuple(ChannelAppend.one(c, with_hidden(table, "ts", 0), 1975) for c in channels))
        )
        assert host.drain(timeout_s=200)
        assert host.status().healthy
    finally:
        host.stop()
        disks.close()
    assert len(sink.table) == sum(speed > 10 for speed in table.column("speed").to_pylist()) > 0
