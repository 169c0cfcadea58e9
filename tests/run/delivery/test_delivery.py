"""Delivery: every result once, through crashes and failing sinks; one sink's trouble is not another's."""

from __future__ import annotations

import contextlib
import errno
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.connectors import parquet
from meander.run.connectors.base import SinkBinding, SourcePosition
from meander.run.connectors.jsonl import JsonLinesSink
from meander.run.connectors.memory import MemorySink
from meander.run.connectors.parquet import Parquet
from meander.run.delivery.delivery import Delivery, DeliveryOptions
from meander.run.store.commit import Commit
from meander.run.store.journal import DiskFullError
from meander.run.store.store import Store
from tests.run.connectors.streams import Clock, around

SCHEMA = pa.schema(
    [("_ts", pa.int64()), ("_wm", pa.int64()), ("_newest", pa.int64()), ("id", pa.int64()), ("kmh", pa.float64())]
)


TIMEOUT_S = 90.0


def binding(query: str = "slow", sink: str = "alerts", channel: int = 1, **options: str) -> SinkBinding:
    return SinkBinding(query, SinkTarget(sink, "cloud", options), ChannelId(channel))


class Rig:
    """A store with sink channels, results to put in them, and a delivery that can crash."""

    def __init__(
        self,
        path: Path,
        *sink_bindings: SinkBinding,
        most_rows: int = 1000,
        sink_timeout_ms: int = 2_000,
        given_up_ms: int = 20_000,
    ) -> None:
        self.path, self.sink_bindings, self.clock = path, sink_bindings, Clock()
        self.options = DeliveryOptions(most_rows=most_rows, sink_timeout_ms=sink_timeout_ms, given_up_ms=given_up_ms)
        self.made = 0
        self.begin()

    def begin(self) -> None:
        self.store = Store.open(self.path / "store", clock=self.clock)
        for one in self.sink_bindings:
            if one.channel not in self.store.exchange.channels():
                self.store.commit(Commit(add=(ChannelSpec(one.channel, SCHEMA),)))
        self.delivery = Delivery(
            self.store,
            self.sink_bindings,
            clock=self.clock,
            surroundings=around(self.path),
            options=self.options,
        )

    def until(self, done: Callable[[], bool]) -> None:
        """Waits for something that the delivery's thread does."""
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            assert time.monotonic() < deadline
            self.store.wait(self.store.changes, 0.02)

    def crash(self) -> None:
        self.store.close()
        self.begin()

    def results(self, count: int, channel: int = 1, age_ms: int = 0) -> None:
        times = [self.clock.now_ms - age_ms] * count
        ids = list(range(self.made, self.made + count))
        table = pa.table([times, times, times, ids, [i / 2 for i in ids]], schema=SCHEMA)
        self.made += count
        self.store.commit(Commit(appends=(ChannelAppend.one(ChannelId(channel), table, watermark=self.clock.now_ms),)))


class Flaky:
    """A sink in memory that fails as often as it is told."""

    fixed_ranges = False

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.error, self.opened = failures, error or OSError("nobody answers"), 0
        self.rows: list[int] = []

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self.opened += 1
        del self.rows[position.rows :]

    def write(self, table: pa.Table, first: int) -> Any:
        assert first == len(self.rows)
        self.rows += table.column("id").to_pylist()
        if self.failures:
            self.failures -= 1
            raise self.error
        return None

    def close(self) -> None:
        pass


def lines(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


def files(path: Path) -> list[int]:
    found = sorted(path.glob("*.parquet"))
    return [i for f in found for i in pq.read_table(f).column("id").to_pylist()]


def test_results_reach_the_sink_and_are_acknowledged(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(connector="memory", event_time="true"))
    rig.results(3)
    assert rig.delivery.tick() == 3
    sink = rig.delivery.sink("slow > alerts")
    assert isinstance(sink, MemorySink)
    assert sink.table.column_names == ["_newest", "id", "kmh"]
    assert sink.table.column("id").to_pylist() == [0, 1, 2]
    assert rig.store.acknowledged("slow > alerts") == 3
    assert rig.store.exchange.counters(ChannelId(1)).pending_tuples == 0
    assert rig.delivery.tick() == 0


def test_jsonl_is_the_default_and_readable(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding("slow trains"))
    rig.results(2)
    rig.delivery.tick()
    assert (tmp_path / "slow_trains-alerts.jsonl").read_text() == '{"id": 0, "kmh": 0.0}\n{"id": 1, "kmh": 0.5}\n'


@pytest.mark.parametrize(
    ("connector", "written", "read", "sink"),
    [("jsonl", "slow-alerts.jsonl", lines, JsonLinesSink), ("parquet", "slow-alerts", files, Parquet)],
)
@given(
    plan=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["go on", "crash", "crash before ack"])), max_size=8),
    most_rows=st.integers(3, 40),
)
def test_files_hold_every_result_once_whatever_crashes(
    tmp_path_factory: pytest.TempPathFactory,
    connector: str,
    written: str,
    read: Callable[[Path], list[int]],
    sink: type,
    plan: list[tuple[int, str]],
    most_rows: int,
) -> None:
    rig = Rig(tmp_path_factory.mktemp("rig"), binding(connector=connector), most_rows=most_rows)
    for count, event in plan:
        rig.results(count)
        if event == "crash before ack":
            commit = rig.store.commit

            def refuse(given: Commit) -> None:
                raise KeyboardInterrupt

            rig.store.commit = refuse  # type: ignore[assignment,method-assign]
            with contextlib.suppress(KeyboardInterrupt):
                rig.delivery.tick()
            rig.store.commit = commit  # type: ignore[method-assign]
        else:
            rig.delivery.tick()
        if event != "go on":
            rig.crash()
    while rig.store.exchange.counters(ChannelId(1)).pending_tuples:  # a tick may find nothing but watermarks
        rig.delivery.tick()
    assert isinstance(rig.delivery.sink("slow > alerts"), sink)
    assert read(rig.path / written) == list(range(rig.made))
    rig.store.close()


def test_a_line_written_in_part_is_cut(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(path="out/{query}.jsonl"))
    rig.results(2)
    rig.delivery.tick()
    with (tmp_path / "out" / "slow.jsonl").open("a") as file:
        file.write('{"id": 2, "km')
    rig.crash()
    rig.results(1)
    rig.delivery.tick()
    assert lines(tmp_path / "out" / "slow.jsonl") == [0, 1, 2]


def test_a_file_that_was_removed_pauses_the_outlet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(retries="0"))
    rig.results(2)
    rig.delivery.tick()
    rig.crash()
    (tmp_path / "slow-alerts.jsonl").unlink()
    rig.results(1)
    rig.delivery.tick()
    paused = rig.delivery.metrics().sink_bindings["slow > alerts"].paused
    assert paused is not None
    assert "put the file back, or use another path" in paused


def test_a_failing_sink_is_retried_with_growing_pauses(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.sink_bindings = (binding(channel=1, backoff="100ms"),)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Flaky(3)
    rig.delivery.add(rig.sink_bindings[0], sink)
    rig.results(4)
    begun = rig.clock.now_ms
    delivered_at = []
    for _ in range(100):
        if rig.delivery.tick():
            delivered_at.append(rig.clock.now_ms - begun)
        rig.clock.forward(10)
    assert delivered_at == [700]  # 100 + 200 + 400
    assert sink.rows == [0, 1, 2, 3]
    assert rig.delivery.metrics().sink_bindings["slow > alerts"].failures == 3


def test_a_sink_that_goes_on_failing_is_paused_while_others_go_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding("fine", channel=2, connector="memory"))
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Flaky(100)
    rig.delivery.add(binding(retries="2", backoff="10ms"), sink)
    for _ in range(20):
        rig.results(1, channel=1)
        rig.results(1, channel=2)
        rig.delivery.tick()
        rig.clock.forward(1000)
    slow = rig.delivery.metrics().sink_bindings["slow > alerts"]
    assert (slow.paused, slow.failures, slow.rows, slow.pending) == ("OSError: nobody answers", 3, 0, 20)
    assert rig.delivery.metrics().sink_bindings["fine > alerts"].rows == 20
    sink.failures = 0
    rig.delivery.resume("slow > alerts")
    assert rig.delivery.tick() == 20
    assert len(sink.rows) == 20
    assert rig.delivery.metrics().sink_bindings["slow > alerts"].paused is None


def test_a_sink_whose_disk_is_full_goes_on_when_there_is_room_however_long_that_takes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Flaky(50, OSError(errno.ENOSPC, "No space left on device"))
    rig.delivery.add(binding(retries="0", backoff="10ms"), sink)
    rig.results(4)
    for _ in range(60):
        rig.delivery.tick()
        rig.clock.forward(20)
    assert sink.rows == [0, 1, 2, 3]
    assert rig.delivery.metrics().sink_bindings["slow > alerts"].paused is None


def test_a_mistake_in_options_pauses_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    rig.delivery.add(binding(), Flaky(1, InputError("sink 'alerts': no table 'x'")))
    rig.results(1)
    rig.delivery.tick()
    assert rig.delivery.metrics().sink_bindings["slow > alerts"].paused == "sink 'alerts': no table 'x'"


def test_a_full_disk_of_the_store_pauses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, binding(retries="0"))
    rig.results(5)

    def full(_: Commit) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(rig.store, "commit", full)
        for _ in range(5):
            rig.delivery.tick()
            rig.clock.forward(1000)
    assert rig.delivery.tick() == 5
    assert lines(tmp_path / "slow-alerts.jsonl") == [0, 1, 2, 3, 4]


def test_latency_is_measured_by_query(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(connector="memory"), binding("slow", "archive", 2, connector="memory"))
    for age, count in ((20, 90), (300, 8), (5000, 2)):
        rig.results(count, channel=1, age_ms=age)
    rig.delivery.tick()
    found = rig.delivery.latency("slow")
    assert found.count == 100
    assert found.p50_ms == 20
    assert found.p95_ms == pytest.approx(300, rel=0.03)
    assert found.p99_ms == pytest.approx(5000, rel=0.03)
    assert found.most_ms == 5000


def test_watermarks_alone_cost_no_commit(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(connector="memory"))
    rig.store.commit(Commit(appends=(ChannelAppend.one(ChannelId(1), watermark=5),)))
    before = rig.store.commits
    rig.delivery.tick()
    assert rig.store.commits == before


def test_an_outlet_can_move_to_another_channel(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(), binding("other", channel=2, connector="memory"))
    rig.results(2)
    rig.delivery.tick()
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(3), SCHEMA),)))
    rig.delivery.rewire(binding(channel=3))
    rig.results(2, channel=3)
    rig.delivery.tick()
    assert lines(tmp_path / "slow-alerts.jsonl") == [0, 1, 2, 3]
    assert rig.store.acknowledged("slow > alerts") == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connector": "jason"}, "sink 'alerts': no connector 'jason'; known connectors: jsonl, "),
        ({"pth": "x"}, "sink 'alerts': no option 'pth'; known options: path"),
        ({"retries": "-1"}, "sink 'alerts': option 'retries' is '-1'; expected a whole number from 0 on"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Rig(tmp_path, SinkBinding("slow", SinkTarget("alerts", "cloud", options), ChannelId(1)))
    assert message in str(caught.value)


def test_two_queries_may_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"both write to .*out.jsonl; put \{query\} into option 'path'"):
        Rig(tmp_path, binding(path="out.jsonl"), binding("fast", channel=2, path="out.jsonl"))


def test_console_shows_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig(tmp_path, binding(connector="console", rows="1"))
    rig.results(3)
    rig.delivery.tick()
    assert capsys.readouterr().out == 'slow {"id": 0, "kmh": 0.0}\nslow ... and 2 more\n'


def test_the_thread_delivers_until_it_is_stopped(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding(connector="memory"))
    with rig.delivery:
        rig.delivery.start()
        rig.results(10)
        seen = 0
        while rig.store.acknowledged("slow > alerts") < 10:
            seen = rig.store.wait(seen, 1)
    assert rig.delivery.metrics().rows == 10


class Hanging(MemorySink):
    """A sink that does not come back until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go, self.asked, self.closed = threading.Event(), threading.Event(), threading.Event()

    def write(self, table: pa.Table, first: int) -> Any:
        self.asked.set()
        self.may_go.wait()
        return super().write(table, first)

    def close(self) -> None:
        super().close()
        self.closed.set()


def test_a_sink_that_does_not_come_back_holds_nobody_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, binding("fine", channel=2, connector="memory"), sink_timeout_ms=40, given_up_ms=200)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Hanging()
    rig.delivery.add(binding(), sink)
    with rig.delivery:
        rig.delivery.start()
        rig.results(3, channel=1)
        assert sink.asked.wait(TIMEOUT_S)
        rig.results(10, channel=2)
        rig.until(lambda: rig.store.acknowledged("fine > alerts") == 10)
        rig.until(lambda: rig.delivery.paused_channels() == {1})
        slow = rig.delivery.metrics().sink_bindings["slow > alerts"]
        assert slow.paused is not None
        assert slow.paused.startswith("its sink has not come back for ")
        assert (slow.rows, slow.pending) == (0, 3)
        sink.may_go.set()
        rig.until(lambda: rig.store.acknowledged("slow > alerts") == 3)
        rig.until(lambda: rig.delivery.metrics().sink_bindings["slow > alerts"].paused is None)
        rig.results(2, channel=1)
        rig.until(lambda: rig.store.acknowledged("slow > alerts") == 5)
    assert len(sink.table) == 5


def test_a_sink_that_takes_its_time_for_many_rows_is_not_given_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, most_rows=100_000, sink_timeout_ms=40, given_up_ms=40)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Hanging()
    rig.delivery.add(binding(), sink)
    with rig.delivery:
        rig.results(100_000, channel=1)
        rig.delivery.start()
        assert sink.asked.wait(TIMEOUT_S)
        time.sleep(0.1)
        assert rig.delivery.paused_channels() == set()
        assert rig.delivery.metrics().sink_bindings["slow > alerts"].paused is None
        sink.may_go.set()
        rig.until(lambda: rig.store.acknowledged("slow > alerts") == 100_000)


def test_an_outlet_is_removed_while_its_sink_does_not_come_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sink_timeout_ms=40)
    rig.store.commit(Commit(add=(ChannelSpec(ChannelId(1), SCHEMA),)))
    sink = Hanging()
    rig.delivery.add(binding(), sink)
    with rig.delivery:
        rig.delivery.start()
        rig.results(3, channel=1)
        assert sink.asked.wait(TIMEOUT_S)
        rig.delivery.remove("slow > alerts")
        assert not sink.closed.is_set()
        sink.may_go.set()
        assert sink.closed.wait(TIMEOUT_S)
    assert rig.store.acknowledged("slow > alerts") == 0
    assert rig.store.exchange.counters(ChannelId(1)).pending_tuples == 3


def test_many_rows_become_a_file_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "LEAST_ROWS", 10)
    monkeypatch.setattr(parquet, "usable_cores", lambda: 3)
    rig = Rig(tmp_path, binding(connector="parquet"), most_rows=100)
    rig.results(25)
    rig.delivery.tick()
    written = sorted((tmp_path / "slow-alerts").iterdir())
    assert [len(pq.read_table(p)) for p in written] == [9, 9, 7]
    written[-1].with_name("rows-000000000025-000000000030.parquet").write_bytes(b"of a range that was not acknowledged")
    rig.crash()
    rig.results(3)
    rig.delivery.tick()
    assert files(tmp_path / "slow-alerts") == list(range(28))
