"""Ingest: every tuple once, with its watermark, through crashes, pauses and changes of the channel map."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import Stream
from meander.run.channels.base import NO_WATERMARK
from meander.run.connectors.base import Malformed, Polled
from meander.run.connectors.cut_file import CutFile
from meander.run.frames import BEGIN, END, HIDDEN, with_hidden
from meander.run.ingest.ingest import Ingest, IngestOptions
from meander.run.store.commit import Commit
from meander.run.store.journal import DiskFullError
from meander.run.store.store import Store, StoreOptions
from tests.run.connectors.streams import (
    START_MS,
    Clock,
    add_channels,
    around,
    channels_for,
    held,
    opened,
    stream,
)

TRAINS = stream(options={"connector": "trains", "disorder": "300ms", "late": "0.2"})


class Rig:
    """A store and an ingest over it that can crash."""

    def __init__(self, path: Path, *streams: Stream, readers: int = 1, **ingest: Any) -> None:
        self.path, self.streams, self.clock, self.given = path, streams, Clock(), ingest
        self.channels = channels_for(*streams, readers=readers)
        self.begin()

    def begin(self) -> None:
        self.store = Store.open(self.path / "store", clock=self.clock)
        for one in self.streams:
            add_channels(self.store, one, self.channels)
        self.ingest = Ingest(
            self.store, self.streams, self.channels, clock=self.clock, surroundings=around(self.path), **self.given
        )

    def crash(self) -> None:
        self.store.close()
        self.begin()

    def tick(self, ms: int = 100) -> int:
        self.clock.forward(ms)
        return self.ingest.tick()

    def channel(self, name: str, node: str) -> ChannelId:
        return self.channels[name, node][0]


class Scripted:
    """A source that gives what a test says: (producer, event time) pairs for each poll."""

    def __init__(self, *polls: list[tuple[int, int]] | Exception, malformed: int = 0) -> None:
        self.polls, self.malformed, self.acknowledged, self.closed = list(polls), malformed, 0, 0
        self._at = 0

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self._at = offset or 0

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        if self._at >= len(self.polls):
            return None
        rows = self.polls[self._at]
        if isinstance(rows, Exception):
            self.polls[self._at] = []
            raise rows
        self._at += 1
        bad = tuple(Malformed("no reason", f"row {i}") for i in range(self.malformed))
        return Polled(
            pa.table({"ts": pa.array([t for _, t in rows], pa.int64())}),
            np.array([p for p, _ in rows], np.int64),
            self._at,
            bad,
        )

    def committed(self) -> None:
        self.acknowledged += 1

    def close(self) -> None:
        self.closed += 1


def scripted(**options: str) -> Stream:
    return stream("s", "ts bigint", nodes=2, options=options)


def test_hidden_columns_equal_those_of_one_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS)
    rig.tick(0)
    for _ in range(30):
        rig.tick(137)
    polled = opened(TRAINS).poll(rig.clock.now_ms, 10**6)
    assert polled is not None
    for index, node in enumerate(TRAINS.nodes):
        alone = polled.table.filter(pa.array(polled.producers == index))
        assert held(rig.store, rig.channel("train", node)).equals(with_hidden(alone, "ts", 300))


@given(
    plan=st.lists(
        st.tuples(st.integers(1, 2000), st.sampled_from(["go on", "crash", "crash before commit"])),
        min_size=1,
        max_size=12,
    ),
    readers=st.integers(1, 2),
)
def test_crashes_lose_nothing_and_double_nothing(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, str]], readers: int
) -> None:
    """Ticks with crashes in between leave in every channel what ticks without leave."""
    outcomes = []
    for crashing in (False, True):
        rig = Rig(tmp_path_factory.mktemp("rig"), TRAINS, readers=readers)
        rig.tick(0)
        for ms, event in plan:
            if event == "crash before commit" and crashing:
                with pytest.MonkeyPatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
                    patched.setattr(rig.store, "commit", _interrupted)
                    rig.tick(ms)
                rig.crash()
            else:
                rig.tick(ms)
                if event != "go on" and crashing:
                    rig.crash()
        rig.tick(1000)
        outcomes.append({c: held(rig.store, c).to_pylist() for cs in rig.channels.values() for c in cs})
        rows = rig.ingest.metrics().rows
        assert rows * readers == sum(len(t) for t in outcomes[-1].values())
        rig.store.close()
    assert outcomes[0] == outcomes[1]


def _interrupted(_: Commit) -> None:
    raise KeyboardInterrupt


def test_a_refused_commit_keeps_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted([(0, 5), (1, 7)], [(0, 9)])
    rig = Rig(tmp_path, scripted(), sources={"s": source})
    commit = rig.store.commit

    def full(_: Commit) -> None:
        raise DiskFullError("no room")

    monkeypatch.setattr(rig.store, "commit", full)
    assert rig.tick() == 0
    assert rig.tick() == 0
    monkeypatch.setattr(rig.store, "commit", commit)
    assert [rig.tick(), rig.tick(), rig.tick()] == [2, 1, 0]
    assert source.acknowledged == 2
    assert held(rig.store, rig.channel("s", "s-1")).column("_ts").to_pylist() == [5, 9]


def test_a_commit_that_was_durable_though_it_failed_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 5)], [(0, 9)])})
    commit = rig.store.commit

    def unsure(given: Commit) -> None:
        commit(given)
        raise DiskFullError("the disk did not answer")

    monkeypatch.setattr(rig.store, "commit", unsure)
    rig.tick()
    monkeypatch.setattr(rig.store, "commit", commit)
    assert [rig.tick(), rig.tick()] == [1, 1]
    assert held(rig.store, rig.channel("s", "s-1")).column("_ts").to_pylist() == [5, 9]


def test_readers_of_one_producer_get_the_same_tuples_in_one_append(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS, readers=3)
    commits = rig.store.commits
    rig.tick(0)
    assert rig.tick(1000) > 0
    assert rig.store.commits - commits <= 2
    for readers in rig.channels.values():
        tables = [held(rig.store, c) for c in readers]
        assert len(tables[0]) > 0
        assert all(t.equals(tables[0]) for t in tables)


def test_watermarks_travel_with_each_producer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(disorder="10ms"), sources={"s": Scripted([(0, 100), (0, 90)], [(0, 95)], [(1, 50)])})
    exchange = rig.store.exchange
    one, two = rig.channel("s", "s-1"), rig.channel("s", "s-2")
    rig.tick()
    assert (exchange.counters(one).watermark, exchange.counters(two).watermark) == (90, NO_WATERMARK)
    records = exchange.end(one)
    rig.tick()
    assert exchange.end(one) == records + 1  # a tuple, and no watermark, because it did not rise
    rig.tick()
    assert exchange.counters(two).watermark == 40
    assert held(rig.store, one).column("_wm").to_pylist() == [BEGIN, 90, 90]


def test_a_new_channel_gets_the_watermark_without_tuples(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 100)])})
    rig.tick()
    moved = {("s", "s-1"): (ChannelId(7),), ("s", "s-2"): (ChannelId(2),)}
    add_channels(rig.store, rig.streams[0], moved)
    rig.ingest.rewire(moved)
    rig.tick()
    assert rig.store.exchange.counters(ChannelId(7)).watermark == 100
    assert rig.store.exchange.end(ChannelId(7)) == 1


def test_tuples_of_producers_without_readers_are_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 1), (1, 2)], [(0, 3), (1, 4), (1, 5)])})
    rig.ingest.rewire({("s", "s-1"): (ChannelId(1),)})
    rig.tick()
    rig.tick()
    assert rig.ingest.metrics().streams["s"].unread == 3
    assert held(rig.store, ChannelId(1)).column("_ts").to_pylist() == [1, 3]


def test_a_stream_begins_when_it_is_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS)
    rig.ingest.rewire({})
    rig.tick(60_000)
    assert rig.ingest.metrics().rows == 0
    rig.ingest.rewire(rig.channels)
    rig.tick(0)
    assert rig.tick(1000) <= 63  # a second, not a minute


@pytest.mark.parametrize(("options", "watermark"), [({}, -400), ({"idle_timeout": "1s"}, 1600)])
def test_idle_producers_hold_or_go_on_with_the_clock(tmp_path: Path, options: dict[str, str], watermark: int) -> None:
    source = Scripted([(0, START_MS), (1, START_MS)])
    rig = Rig(tmp_path, scripted(disorder="400ms", **options), sources={"s": source})
    rig.tick(0)
    for _ in range(6):
        rig.tick(500)
    assert rig.store.exchange.counters(rig.channel("s", "s-1")).watermark == START_MS + watermark


def test_a_tuple_after_the_timeout_carries_the_raised_watermark_also_after_a_crash(tmp_path: Path) -> None:
    source = Scripted([(0, START_MS)], [], [], [(0, START_MS + 10)])
    rig = Rig(tmp_path, scripted(idle_timeout="1s"), sources={"s": source})
    rig.tick(0)
    rig.tick(3000)
    rig.tick(10)
    raised = rig.store.exchange.counters(rig.channel("s", "s-1")).watermark
    rig.crash()
    rig.tick(1)
    last = held(rig.store, rig.channel("s", "s-1")).to_pylist()[-1]
    assert last == {"_ts": START_MS + 10, "_wm": raised, "_newest": START_MS + 10, "ts": START_MS + 10}
    assert raised >= START_MS + 2000


def test_an_ended_stream_lets_all_windows_close(tmp_path: Path) -> None:
    rig = Rig(tmp_path, stream(options={"connector": "trains", "tuples": "5"}))
    rig.tick(0)
    rig.tick(5000)
    assert rig.ingest.ended
    for readers in rig.channels.values():
        assert rig.store.exchange.counters(readers[0]).watermark == END
    rig.crash()
    assert rig.tick(5000) == 0
    assert rig.ingest.ended
    assert rig.ingest.metrics().rows == 15


def test_pressure_pauses_sources_and_nothing_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, TRAINS)
    rig.tick(0)
    monkeypatch.setattr(rig.store, "pressure", lambda: 0.95)
    assert [rig.tick(500) for _ in range(4)] == [0] * 4
    assert rig.ingest.metrics().paused_ticks == 4
    monkeypatch.undo()
    rig.tick(0)
    assert 3 * 40 - 3 <= rig.ingest.metrics().rows <= 3 * 40 + 3


def test_a_stream_whose_channel_is_held_waits_and_others_go_on(tmp_path: Path) -> None:
    held_up, free = stream("held_up", "ts bigint", nodes=2), stream("free", "ts bigint", nodes=2)
    polls = [[(0, 1)], [(0, 2)]]
    rig = Rig(tmp_path, held_up, free, sources={"held_up": Scripted(*polls), "free": Scripted(*polls)})
    channel = rig.channel("held_up", held_up.nodes[0])
    rig.store.held = lambda: frozenset({channel})
    assert [rig.tick(), rig.tick()] == [1, 1]
    streams = rig.ingest.metrics().streams
    assert (streams["held_up"].rows, streams["free"].rows) == (0, 2)
    assert streams["held_up"].waits == "what it feeds holds more than its budget"
    rig.store.held = frozenset
    assert [rig.tick(), rig.tick()] == [1, 1]
    assert rig.ingest.metrics().streams["held_up"].waits is None


def test_a_full_store_pauses_sources(tmp_path: Path) -> None:
    rig = Rig(tmp_path, stream(rate_tps=5000, options={"connector": "trains"}))
    rig.store.close()
    rig.store = Store.open(tmp_path / "store", StoreOptions(disk_budget_bytes=200_000), clock=rig.clock)
    rig.ingest = Ingest(rig.store, rig.streams, rig.channels, clock=rig.clock, surroundings=around(tmp_path))
    rig.tick(0)
    for _ in range(20):
        rig.tick(100)
    metrics = rig.ingest.metrics()
    assert metrics.paused_ticks > 10
    channels = [c for cs in rig.channels.values() for c in cs]
    assert sum(len(held(rig.store, c)) for c in channels) == metrics.rows
    rig.store.commit(Commit(consumed={c: rig.store.exchange.end(c) for c in channels}))
    assert rig.tick(0) > 0


def test_a_tick_takes_about_as_much_as_allowed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS, options=IngestOptions(most_rows=50))
    rig.tick(0)
    assert rig.tick(10_000) <= 60
    assert rig.ingest.metrics().streams["train"].behind
    total = rig.ingest.metrics().rows
    while rows := rig.tick(0):
        total += rows
    assert 597 <= total <= 603


def test_malformed_rows_are_kept_aside_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 1)], [(0, 2)], malformed=2)})
    rig.tick()
    rig.crash()
    with (tmp_path / "work" / "malformed-s.jsonl").open("a") as file:
        file.write("written, but never committed\n")
    rig.tick()
    rows = [json.loads(line) for line in (tmp_path / "work" / "malformed-s.jsonl").read_text().splitlines()]
    assert [r["row"] for r in rows] == ["row 0", "row 1"] * 2
    assert rows[0]["reason"] == "no reason"
    assert rig.ingest.metrics().malformed == 4


def test_malformed_rows_that_find_no_room_wait_with_the_rows_they_came_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 1)], [(0, 2)], malformed=1)})
    append, refused = CutFile.append, 3

    def full(file: CutFile, data: bytes) -> int:
        nonlocal refused
        if refused:
            refused -= 1
            raise OSError(errno.ENOSPC, "no room")
        return append(file, data)

    monkeypatch.setattr(CutFile, "append", full)
    for _ in range(6):
        rig.tick()
    assert not refused
    assert rig.ingest.metrics().streams["s"].paused is None
    assert held(rig.store, rig.channel("s", "s-1")).column("_ts").to_pylist() == [1, 2]
    assert len((tmp_path / "work" / "malformed-s.jsonl").read_text().splitlines()) == 2


def test_too_many_malformed_rows_pause_only_their_stream(tmp_path: Path) -> None:
    bad = Scripted(*[[(0, i)] for i in range(5)], malformed=2)
    rig = Rig(tmp_path, scripted(malformed="3"), TRAINS, sources={"s": bad})
    for _ in range(4):
        rig.tick()
    metrics = rig.ingest.metrics()
    assert metrics.streams["s"].paused == (
        "4 malformed rows, more than the 3 that option 'malformed' allows; "
        "see malformed-s.jsonl, then `meander resume s`"
    )
    assert metrics.streams["s"].rows == 2
    assert metrics.streams["train"].rows > 10
    rig.crash()
    rig.tick()
    assert rig.ingest.metrics().streams["s"].rows == 2
    rig.ingest.resume("s")
    rig.tick()
    assert rig.ingest.metrics().streams["s"].rows == 3


def test_a_source_that_fails_is_paused_with_the_reason_and_goes_on_after_resume(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 1)], OSError("the cable is out"), [(0, 3)])})
    rig.tick()
    rig.tick()
    assert rig.ingest.metrics().streams["s"].paused == "the cable is out"
    rig.tick()
    rig.ingest.resume("s")
    rig.tick()
    rig.tick()
    assert held(rig.store, rig.channel("s", "s-1")).column("_ts").to_pylist() == [1, 3]


def test_nodes_that_come_and_go_keep_their_watermarks(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scripted(), sources={"s": Scripted([(0, 10), (1, 20)], [(0, 5), (1, 5), (2, 5)])})
    rig.tick()
    rig.streams = (Stream("s", rig.streams[0].schema, "ts", ("s-2", "s-9", "s-1")),)
    rig.channels = channels_for(*rig.streams)
    rig.crash()
    rig.tick()
    marks = [held(rig.store, rig.channel("s", n)).to_pylist()[-1]["_wm"] for n in rig.streams[0].nodes]
    assert marks == [20, BEGIN, 10]


def test_a_time_far_ahead_is_malformed_if_that_is_wanted(tmp_path: Path) -> None:
    source = Scripted([(0, START_MS), (0, START_MS + 10**9), (1, START_MS)], [(0, START_MS + 5)])
    rig = Rig(tmp_path, scripted(ahead="1min"), sources={"s": source})
    rig.tick(0)
    rig.tick(0)
    assert [len(held(rig.store, rig.channel("s", node))) for node in ("s-1", "s-2")] == [2, 1]
    assert rig.store.exchange.counters(rig.channel("s", "s-1")).watermark == START_MS + 5
    assert rig.ingest.metrics().malformed == 1


def test_data_that_does_not_fit_is_raised_by_open_and_pauses_in_a_tick(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,id\n1,2\n")
    rig = Rig(tmp_path, stream("s", "ts bigint", options={"connector": "files", "path": "a.csv"}), TRAINS)
    with pytest.raises(InputError, match=r"a.csv has no column 'ts' \(bigint\); its columns are when, id"):
        rig.ingest.open()
    rig.tick()
    paused = rig.ingest.metrics().streams["s"].paused
    assert paused is not None
    assert "has no column 'ts'" in paused
    assert rig.tick(1000) > 0
    (tmp_path / "a.csv").write_text("ts,id\n1,2\n")
    rig.ingest.resume("s")
    rig.tick()
    assert rig.ingest.metrics().streams["s"].rows == 1


def test_mistakes_in_the_channel_map_are_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS)
    with pytest.raises(InputError, match="no stream 'trian'; known streams: train"):
        rig.ingest.rewire({("trian", "train-1"): (ChannelId(1),)})
    with pytest.raises(InputError, match="stream 'train': no producer 'train-9'; known producers: train-"):
        rig.ingest.rewire({("train", "train-9"): (ChannelId(1),)})


def test_the_thread_ticks_until_it_is_stopped(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TRAINS, options=IngestOptions(interval_ms=1))
    rig.clock.forward(1)
    with rig.ingest:
        rig.ingest.start()
        rig.store.wait(rig.store.changes, 5)
        rig.clock.forward(5000)
        seen = rig.store.changes
        while rig.ingest.metrics().rows < 200:
            seen = rig.store.wait(seen, 1)
    ticks = rig.ingest.metrics().ticks
    assert rig.ingest.metrics().ticks == ticks
    assert set(HIDDEN) <= set(held(rig.store, ChannelId(1)).column_names)
