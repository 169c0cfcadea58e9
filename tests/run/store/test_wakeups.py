"""Wake-ups: each thread is woken by the changes that it waits for, by all of them, and by no others."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.connectors.base import SinkBinding
from meander.run.connectors.memory import MemorySink
from meander.run.delivery import delivery
from meander.run.delivery.delivery import Delivery, DeliveryOptions
from meander.run.frames import HIDDEN
from meander.run.store.commit import Commit
from meander.run.store.records.progress import DeliveryRecord, FloorRecord
from meander.run.store.store import Store
from meander.run.store.wakeups import ANY, APPENDED, CONSUMED, OTHER, Wakeups, kinds_of
from tests.run.connectors.streams import around

ONE, TWO = ChannelId(1), ChannelId(2)
SCHEMA = pa.schema([*((name, pa.int64()) for name in HIDDEN), ("id", pa.int64())])
NEVER_S = 600.0


def row(number: int) -> pa.Table:
    return pa.table([[number]] * len(SCHEMA), schema=SCHEMA)


def append(channel: ChannelId, number: int = 0) -> Commit:
    return Commit(appends=(ChannelAppend.one(channel, row(number)),))


def opened(path: Path, *channels: ChannelId) -> Store:
    store = Store.open(path / "store")
    store.commit(Commit(add=tuple(ChannelSpec(c, SCHEMA) for c in channels)))
    return store


@pytest.mark.parametrize(
    ("commit", "kinds"),
    [
        (append(ONE), APPENDED),
        (Commit(consumed={ONE: 1}), CONSUMED),
        (Commit(consumed={ONE: 1}, records=(DeliveryRecord("out", 1),)), CONSUMED),
        (Commit(consumed={ONE: 1}, appends=append(TWO).appends), APPENDED | CONSUMED),
        (Commit(consumed={ONE: 1}, forget=(ONE,)), CONSUMED | OTHER),
        (Commit(add=(ChannelSpec(ONE, SCHEMA),)), OTHER),
        (Commit(), OTHER),
    ],
)
def test_a_commit_is_of_the_kinds_of_what_it_changes(commit: Commit, kinds: int) -> None:
    assert kinds_of(commit) == kinds


def test_a_record_that_others_read_is_a_change_of_its_own() -> None:
    floor = FloorRecord.__new__(FloorRecord)  # only its kind is looked at
    assert kinds_of(Commit(consumed={ONE: 1}, records=(floor,))) == CONSUMED | OTHER


def test_a_wait_ends_with_a_change_of_its_kind_and_not_with_others(tmp_path: Path) -> None:
    store = opened(tmp_path, ONE)
    wakeups, ended = store.wakeups, list[int]()
    seen = wakeups.count(CONSUMED)
    thread = threading.Thread(target=lambda: ended.append(wakeups.wait(seen, NEVER_S, CONSUMED)))
    thread.start()
    store.commit(append(ONE))
    assert wakeups.count(CONSUMED) == seen
    assert wakeups.wait(seen, 0.05, CONSUMED) == seen
    assert not ended
    store.commit(Commit(consumed={ONE: 1}))
    thread.join(30)
    assert ended == [seen + 1]
    store.close()


def test_a_change_between_the_look_and_the_wait_ends_the_wait_at_once() -> None:
    wakeups = Wakeups()
    for kinds in (APPENDED, CONSUMED, OTHER, ANY):
        seen = wakeups.count(kinds)
        wakeups.happened(kinds)
        assert wakeups.wait(seen, NEVER_S, kinds) == seen + 1


def test_a_watch_tells_which_of_its_channels_got_something(tmp_path: Path) -> None:
    store = opened(tmp_path, ONE, TWO)
    watch = store.wakeups.watch()
    watch.only([ONE])
    assert watch.take() is None  # before it looks first, everything may have changed
    store.commit(append(TWO))
    assert watch.take() == set()
    store.commit(append(ONE))
    watch.wait(NEVER_S)
    assert watch.take() == {ONE}
    assert watch.take() == set()
    store.commit(Commit(consumed={ONE: 1}))
    assert watch.take() == set()
    store.wake_readers()
    watch.wait(NEVER_S)
    assert watch.take() is None
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_no_result_waits_for_ever_when_threads_are_held_up_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(delivery, "LOOK_S", NEVER_S)
    store = opened(tmp_path, ONE, TWO)
    bindings = [SinkBinding(f"q{c}", SinkTarget("out", "cloud", {}), c) for c in (ONE, TWO)]
    sinks = {b.name: MemorySink() for b in bindings}
    delivering = Delivery(store, options=DeliveryOptions(interval_ms=600_000), surroundings=around(tmp_path))
    watch = delivering._watch

    def held_up(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def after_a_while(*given: Any, **named: Any) -> Any:
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.004)))
            found = call(*given, **named)
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.004)))
            return found

        monkeypatch.setattr(owner, name, after_a_while)

    for owner, name in ((watch, "take"), (watch, "wait"), (watch, "only"), (store, "commit"), (delivering, "_deliver")):
        held_up(owner, name)
    delivering.start()
    for b in bindings:
        delivering.add(b, sinks[b.name])

    def send(channel: ChannelId) -> None:
        for number in range(40):
            store.commit(append(channel, number))

    senders = [threading.Thread(target=send, args=(c,)) for c in (ONE, TWO)]
    for sender in senders:
        sender.start()
    deadline = time.monotonic() + 60
    while sum(store.acknowledged(b.name) for b in bindings) < 80:
        assert time.monotonic() < deadline, {b.name: store.acknowledged(b.name) for b in bindings}
        time.sleep(0.01)
    for b in bindings:
        assert sinks[b.name].table.column("id").to_pylist() == list(range(40))
    for sender in senders:
        sender.join()
    delivering.stop()
    store.close()
