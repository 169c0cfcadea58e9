"""The pace of ingest: sources are asked when they have something, and no announcement is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meander.model.ids import ChannelId
from meander.model.streams import Stream
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import Polled
from meander.run.ingest.ingest import Ingest, IngestOptions
from meander.run.ingest.pace import Pace
from meander.run.store.commit import Commit
from meander.run.store.store import Store
from tests.run.connectors.streams import add_channels, around, channels_for, stream

NEVER_MS = 600_000
TIMES = stream("times", "ts bigint")


class Posted:
    """A source that rows are posted to, one event time each."""

    def __init__(self) -> None:
        self._lock, self._rows = threading.Lock(), list[int]()
        self._arrived: Callable[[], None] = lambda: None
        self.in_poll: Callable[[], None] = lambda: None

    def announce(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    def post(self, at_ms: int) -> None:
        with self._lock:
            self._rows.append(at_ms)
        self._arrived()

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """There is nothing to go back to."""

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        with self._lock:
            rows, self._rows = self._rows, []
        self.in_poll()
        if not rows:
            return None
        return Polled(pa.table({"ts": pa.array(rows, pa.int64())}), np.zeros(len(rows), np.int64), None)

    def committed(self) -> None:
        """No sender waits."""

    def close(self) -> None:
        """Nothing is open."""


class Running:
    """An ingest thread over a posted source that is asked by interval practically never; its reader reads at once."""

    def __init__(self, path: Path, source: Posted) -> None:
        self.source, self.store, channels = source, Store.open(path / "store"), channels_for(TIMES)
        add_channels(self.store, TIMES, channels)
        self.channels = [c for readers in channels.values() for c in readers]
        options = IngestOptions(interval_ms=NEVER_MS)
        self.ingest = Ingest(
            self.store, [TIMES], channels, options=options, surroundings=around(path), sources={"times": source}
        )
        self.ingest.open()
        self.ingest.start()

    def take(self, rows: int) -> list[int]:
        """The next rows, as soon as they are all there; the test fails if they do not come."""
        found: list[int] = []
        deadline = time.monotonic() + 30
        exchange = self.store.exchange
        while len(found) < rows:
            assert time.monotonic() < deadline, f"{len(found)} of {rows} rows came"
            seen, consumed = self.store.changes, {}
            for channel in self.channels:
                start, end = exchange.start(channel), exchange.end(channel)
                if end > start:
                    found += exchange.read(channel, start, end).table.column("ts").to_pylist()
                    consumed[channel] = end
            if consumed:
                self.store.commit(Commit(consumed=consumed))
            else:
                self.store.wait(seen, 1)
        return found

    def stop(self) -> None:
        self.ingest.stop()
        self.store.close()


def test_what_is_announced_is_taken_in_without_waiting_for_the_interval(tmp_path: Path) -> None:
    running = Running(tmp_path, Posted())
    for at in range(5):
        running.source.post(at)
        assert running.take(1) == [at]
    running.stop()


def test_what_comes_while_a_source_is_being_asked_is_not_forgotten(tmp_path: Path) -> None:
    source = Posted()
    late = [2]

    def one_more() -> None:
        """After the rows of this poll were taken."""
        if late:
            source.post(late.pop())

    source.in_poll = one_more
    running = Running(tmp_path, source)
    source.post(1)
    assert sorted(running.take(2)) == [1, 2]
    running.stop()


@pytest.mark.parametrize("seed", range(3))
def test_no_announcement_is_lost_when_threads_are_held_up_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)

    def held_up(call: Callable[..., Any]) -> Callable[..., Any]:
        def after_a_while(*given: Any, **named: Any) -> Any:
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.004)))
            found = call(*given, **named)
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.004)))
            return found

        return after_a_while

    for owner, name in ((threading.Event, "set"), (threading.Event, "clear"), (Store, "commit"), (Ingest, "_take_in")):
        monkeypatch.setattr(owner, name, held_up(getattr(owner, name)))
    running = Running(tmp_path, Posted())

    def send(sender: int) -> None:
        for k in range(40):
            running.source.post(sender * 100 + k)

    senders = [threading.Thread(target=send, args=(n,)) for n in (0, 1, 2)]
    for sender in senders:
        sender.start()
    assert sorted(running.take(120)) == sorted(n * 100 + k for n in (0, 1, 2) for k in range(40))
    for sender in senders:
        sender.join()
    running.stop()


def test_the_pace_is_the_readers_and_a_reader_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    channels = channels_for(TIMES)
    add_channels(store, TIMES, channels)
    (channel,) = next(iter(channels.values()))
    schema = store.exchange.spec(channel).schema
    row = pa.table({f.name: pa.array([1]).cast(f.type) for f in schema}, schema=schema)
    append = ChannelAppend.one(ChannelId(channel), row)
    store.commit(Commit(appends=(append,)))
    pace = Pace(store, threading.Event(), longest_s=0.2)
    pace.took_in([append])
    began = time.monotonic()
    pace.rest(began)
    assert time.monotonic() - began >= 0.2
    store.commit(Commit(appends=(append,)))
    pace.took_in([append])
    assert not pace._watched  # it is not waited for again before it has caught up
    store.commit(Commit(consumed={channel: store.exchange.end(channel)}))
    store.commit(Commit(appends=(append,)))
    pace.took_in([append])
    assert [c for c, _ in pace._watched] == [channel]
    store.commit(Commit(consumed={channel: store.exchange.end(channel)}))
    pace = Pace(store, threading.Event(), longest_s=NEVER_MS / 1000)
    pace.took_in([append])
    pace.rest(time.monotonic())  # it has been read: this returns
    store.close()
