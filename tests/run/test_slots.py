"""Slots: steps follow wake-ups, none of which is lost, and a micro-batch that is repeated goes on where it was."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.model.ids import ChannelId
from meander.run import slots
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.fragments.routing import Routing
from meander.run.slots import STEPS_PER_BATCH, Slots
from meander.run.step.step import Stepper
from meander.run.step.work import StepReport
from meander.run.store.commit import Commit, Writer
from meander.run.store.store import Store

CHANNEL = ChannelId(1)
SCHEMA = pa.schema([("number", pa.int64())])


class Reader:
    """A stepper without Spark: a step reads all that waits in one channel."""

    def __init__(self, store: Store) -> None:
        self.store, self.routing, self.read, self.batches = store, Routing(1), list[int](), list[int]()

    def has_work(self, slot: int) -> bool:
        return self.store.exchange.end(CHANNEL) > self.store.exchange.start(CHANNEL)

    def step(self, slot: int, batch_id: int, writer: Writer) -> StepReport:
        exchange = self.store.exchange
        start, end = exchange.start(CHANNEL), exchange.end(CHANNEL)
        self.read += exchange.read(CHANNEL, start, end).table.column("number").to_pylist()
        self.batches.append(batch_id)
        self.store.commit(Commit(writer, batch_id, consumed={CHANNEL: end}))
        return StepReport(batch_id)


def running(path: Path, linger_ms: int) -> tuple[Slots, Reader]:
    store = Store.open(path / "store")
    store.commit(Commit(add=(ChannelSpec(CHANNEL, SCHEMA),)))
    reader = Reader(store)
    no_spark = cast("SparkSession", None)
    return Slots(path, 1, cast(Stepper, reader), lambda: no_spark, linger_ms, lambda: None), reader


def enter(store: Store, number: int) -> None:
    store.commit(Commit(appends=(ChannelAppend.one(CHANNEL, pa.table({"number": [number]}, schema=SCHEMA)),)))


@pytest.mark.parametrize("seed", range(3))
def test_no_wake_up_is_lost_when_threads_are_held_up_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(slots, "IDLE_S", 600.0)
    pool, reader = running(tmp_path, linger_ms=600_000)

    def held_up(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def after_a_while(*given: Any, **named: Any) -> Any:
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.003)))
            found = call(*given, **named)
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.003)))
            return found

        monkeypatch.setattr(owner, name, after_a_while)

    for owner, name in (
        (reader, "has_work"),
        (reader, "step"),
        (reader.store.wakeups, "wait"),
        (reader.store, "commit"),
    ):
        held_up(owner, name)
    slot = threading.Thread(target=pool._batch_of(pool.all[0]), args=(0,), daemon=True)
    slot.start()

    def send(sender: int) -> None:
        for k in range(50):
            enter(reader.store, sender * 50 + k)

    senders = [threading.Thread(target=send, args=(n,)) for n in (0, 1)]
    for sender in senders:
        sender.start()
    deadline = time.monotonic() + 60
    while len(reader.read) < 100:
        assert time.monotonic() < deadline, f"{len(reader.read)} of 100 were read"
        time.sleep(0.01)
    assert sorted(reader.read) == list(range(100))
    pool.stop_waking()
    reader.store.wake_readers()
    slot.join()


def test_a_micro_batch_that_is_repeated_after_a_crash_goes_on_behind_its_last_step(tmp_path: Path) -> None:
    pool, reader = running(tmp_path, linger_ms=0)
    writer = pool.all[0].writer
    reader.store.commit(Commit(writer, 7 * STEPS_PER_BATCH + 41))
    batch = pool._batch_of(pool.all[0])
    batch(7)
    batch(8)
    assert reader.batches == [7 * STEPS_PER_BATCH + 42, 8 * STEPS_PER_BATCH]


def test_a_slot_that_has_done_a_step_has_started_well(tmp_path: Path) -> None:
    pool, _ = running(tmp_path, linger_ms=0)
    (slot,) = pool.all
    slot.revivals, slot.trouble = 3, "it did not start"
    pool._batch_of(slot)(0)
    assert slot.has_run
    assert slot.revivals == 0
    assert not slot.trouble
