"""Channels: positions, control records, delays, budgets, many channels at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from meander.deploy.markers import Marker, MarkerAction
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.store.commit import (
    Commit,
    CommitConflictError,
    Passed,
    RemoveChannel,
    Rewire,
    StateAppend,
    transfer_writer,
)
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import SCHEMA, channel, observed, records, rows, state_rows

A, B, C = ChannelId(0), ChannelId(1), ChannelId(2)
F = FragmentId(7)
DRAIN = Marker.of(1, {(F, 1): MarkerAction.DRAIN})
UPDATE = Marker.of(2, {(F, 1): MarkerAction.UPDATE})


class Clock:
    now_ms = 1000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store.open(tmp_path, clock=Clock())
    for number in range(3):
        opened.commit(Commit(add=(channel(number),)))
    return opened


def append(store: Store, version: int, batch_id: int, *appends: ChannelAppend) -> bool:
    return not store.commit(
        Commit(transfer_writer(F, f"version {version}"), batch_id, versions={F: version}, appends=appends)
    ).repeated


def put(store: Store, batch_id: int, *appends: ChannelAppend) -> bool:
    return append(store, 1, batch_id, *appends)


def test_every_tuple_watermark_and_marker_takes_one_position(store: Store) -> None:
    put(store, 0, ChannelAppend.one(A, rows(10, 11), watermark=5, marker=DRAIN))
    put(store, 1, ChannelAppend.one(A, rows(12)), ChannelAppend.one(A, watermark=6))
    assert records(store, A) == [
        (0, "row", 10),
        (1, "row", 11),
        (2, "watermark", 5),
        (3, "marker", 1),
        (4, "row", 12),
        (5, "watermark", 6),
    ]
    assert (store.exchange.start(A), store.exchange.end(A)) == (0, 6)


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (1, 6), (2, 3), (3, 4), (1, 2), (4, 4), (0, 5), (2, 5)])
def test_any_range_reads_what_lies_in_it(store: Store, start: int, stop: int) -> None:
    put(store, 0, ChannelAppend.one(A, rows(10, 11), watermark=5, marker=DRAIN))
    put(store, 1, ChannelAppend.one(A, rows(12), watermark=6))
    chunk = store.exchange.read(A, start, stop)
    assert chunk.table.column("v").to_pylist() == [v for p, v in [(0, 10), (1, 11), (4, 12)] if start <= p < stop]
    assert chunk.watermarks == tuple((p, w) for p, w in [(2, 5), (5, 6)] if start <= p < stop)
    assert chunk.markers == (((3, DRAIN),) if start <= 3 < stop else ())
    many = store.exchange.read_many([A], [start], [stop])
    assert many.table.equals(chunk.table)
    assert many.watermarks.tolist() == [max([w for _, w in chunk.watermarks], default=NO_WATERMARK)]


def test_reading_is_cut_behind_the_first_marker_on_request(store: Store) -> None:
    put(store, 0, ChannelAppend.one(A, rows(1, 2), marker=DRAIN), ChannelAppend.one(A, rows(3), marker=UPDATE))
    chunk = store.exchange.read(A, 0, 5, cut_at_marker=True)
    assert (chunk.stop, chunk.table.num_rows, chunk.markers) == (3, 2, ((2, DRAIN),))
    many = store.exchange.read_many([A, B], [3, 0], [5, 0], cut_at_marker=True)
    assert many.stops.tolist() == [5, 0]
    assert many.markers == {A: ((4, UPDATE),)}


def test_channels_of_one_append_share_a_payload_and_are_read_without_a_copy(store: Store) -> None:
    table = rows(*range(10))
    put(store, 0, ChannelAppend.sliced(table, [A, B, C], [3, 3, 4], [1, 2, 3]))
    reading = store.exchange.read_many([A, B, C], [0, 0, 0], [4, 4, 5])
    assert reading.table.column("v").num_chunks == 1
    assert reading.table.column("v").to_pylist() == list(range(10))
    assert reading.owners.tolist() == [0] * 3 + [1] * 3 + [2] * 4
    assert reading.rows.tolist() == [3, 3, 4]
    assert reading.watermarks.tolist() == [1, 2, 3]
    assert len(store.payloads.by_number) == 1


def test_rows_of_a_channel_stay_in_order_whatever_else_is_read_with_it(store: Store) -> None:
    rng = np.random.default_rng(0)
    for batch in range(40):
        chosen = rng.permutation(3)[: rng.integers(1, 4)]
        lengths = rng.integers(0, 4, chosen.size)
        put(store, batch, ChannelAppend.sliced(rows(*range(100 * batch, 100 * batch + lengths.sum())), chosen, lengths))
        if batch == 20:
            store.snapshot()
    ids = [C, A, B]
    reading = store.exchange.read_many(ids, [0] * 3, [store.exchange.end(c) for c in ids])
    values = np.asarray(reading.table.column("v"))
    for index, id_ in enumerate(ids):
        mine = values[reading.owners == index].tolist()
        assert mine == sorted(mine) == [v for _, kind, v in records(store, id_) if kind == "row"]


def test_one_slice_may_go_to_several_channels(store: Store) -> None:
    table = rows(1, 2, 3)
    fan_out = ChannelAppend(
        table, np.array([A, B]), np.array([0, 0]), np.array([3, 3]), np.array([NO_WATERMARK, NO_WATERMARK])
    )
    put(store, 0, fan_out)
    store.snapshot()
    assert [v for _, _, v in records(store, A)] == [v for _, _, v in records(store, B)] == [1, 2, 3]
    assert [p.rows for p in store.payloads.by_number.values()] == [3]


def test_the_same_batch_takes_effect_once_and_a_different_one_is_refused(store: Store) -> None:
    assert put(store, 4, ChannelAppend.one(A, rows(1)))
    before = observed(store)
    assert not put(store, 4, ChannelAppend.one(A, rows(1)))
    assert not put(store, 3, ChannelAppend.one(A, rows(0)))
    with pytest.raises(CommitConflictError, match=r"batch 4 of fragment 7 transfer version 1 .* different content"):
        put(store, 4, ChannelAppend.one(A, rows(2)))
    assert observed(store) == before
    assert append(store, 2, 0, ChannelAppend.one(A, rows(9)))


def test_a_version_that_has_been_replaced_cannot_append_any_more(store: Store) -> None:
    append(store, 2, 0, ChannelAppend.one(A, rows(1)))
    with pytest.raises(CommitConflictError, match="runs as version 2"):
        append(store, 1, 9, ChannelAppend.one(A, rows(1)))


def test_truncation_lets_go_of_consumed_records_only(store: Store) -> None:
    put(store, 0, ChannelAppend.one(A, rows(1, 2, 3), watermark=7))
    store.commit(Commit(consumed={A: 2}))
    assert records(store, A) == [(2, "row", 3), (3, "watermark", 7)]
    counters = store.exchange.counters(A)
    assert (counters.appended_tuples, counters.consumed_tuples, counters.pending_tuples) == (3, 2, 1)
    assert store.exchange.watermarks([A]).tolist() == [NO_WATERMARK]
    store.commit(Commit(consumed={A: 4}))
    assert store.exchange.watermarks([A]).tolist() == [7]
    with pytest.raises(InputError, match="holds positions 4 to 4, not 0 to 4"):
        store.exchange.read(A, 0, 4)
    with pytest.raises(CommitConflictError, match="cannot be consumed to 5"):
        store.commit(Commit(consumed={A: 5}))


def test_a_schema_mismatch_names_every_wrong_column(store: Store) -> None:
    wrong = pa.table({"v": pa.array(["1"]), "w": pa.array([1])})
    with pytest.raises(InputError) as error:
        put(store, 0, ChannelAppend.one(A, wrong))
    assert str(error.value) == (
        "channel 0: column 'v' is string instead of int64; missing 's'; unexpected 'w'. "
        "Write exactly the columns v int64, s string"
    )
    with pytest.raises(InputError, match="columns are in the order s, v"):
        put(store, 0, ChannelAppend.one(A, rows(1).select(["s", "v"])))
    assert store.exchange.end(A) == 0


def test_nullability_and_chunks_of_a_table_do_not_matter(store: Store) -> None:
    strict = pa.schema([pa.field("v", pa.int64(), nullable=False), pa.field("s", pa.string(), nullable=False)])
    table = pa.concat_tables([rows(1), rows(2)]).cast(strict)
    put(store, 0, ChannelAppend.one(A, table))
    assert store.exchange.read(A, 0, 2).table.schema.equals(SCHEMA)


def test_an_unknown_channel_is_named_with_the_known_ones(store: Store) -> None:
    with pytest.raises(InputError, match="no channel 9; known channels: 0, 1, 2"):
        put(store, 0, ChannelAppend.one(ChannelId(9), rows(1)))
    with pytest.raises(InputError, match="no channel 9"):
        store.exchange.read(ChannelId(9), 0, 0)


def test_slices_outside_the_table_are_refused(store: Store) -> None:
    with pytest.raises(InputError, match="outside the table's 2 rows"):
        put(store, 0, ChannelAppend.sliced(rows(1, 2), [A, B], [1, 2]))


def test_a_channel_with_waiting_tuples_is_not_removed_unless_they_may_be_discarded(store: Store) -> None:
    put(store, 0, ChannelAppend.one(A, rows(1, 2)))
    with pytest.raises(InputError, match="channel 0 still holds 2 tuples"):
        store.commit(Commit(remove=(RemoveChannel(A),)))
    store.commit(Commit(consumed={A: 2}, remove=(RemoveChannel(A),)))
    put(store, 1, ChannelAppend.one(B, rows(1, 2)))
    store.commit(Commit(remove=(RemoveChannel(B, discard=True),)))
    assert store.exchange.channels() == (C,)
    assert store.stats().live_bytes == 0


def test_a_rewired_channel_keeps_its_content(store: Store) -> None:
    put(store, 0, ChannelAppend.one(A, rows(1, 2)))
    store.commit(Commit(rewire=(Rewire(A, FragmentId(3)),)))
    assert store.exchange.spec(A).receiver == 3
    assert store.exchange.end(A) == 2


def test_records_become_readable_after_the_emulated_latency_and_in_order(tmp_path: Path) -> None:
    clock = Clock()
    store = Store.open(tmp_path, clock=clock)
    store.commit(Commit(add=(channel(0, delay_ms=50),)))
    put(store, 0, ChannelAppend.one(A, rows(1, 2), marker=DRAIN))
    assert store.exchange.end(A) == 0
    assert store.exchange.next_ready_ms() == 1050
    assert store.exchange.counters(A).readable_tuples == 0
    clock.now_ms = 1049
    put(store, 1, ChannelAppend.one(A, rows(3)))
    assert store.exchange.end(A) == 0
    clock.now_ms = 1050
    assert store.exchange.end(A) == 3
    assert (store.exchange.counters(A).readable_tuples, store.exchange.counters(A).pending_tuples) == (2, 3)
    store.commit(Commit(rewire=(Rewire(A, F, 0),)))  # a shorter path: later records must not overtake earlier ones
    put(store, 2, ChannelAppend.one(A, rows(4)))
    assert store.exchange.end(A) == 3
    store.close()
    store = Store.open(tmp_path, clock=clock)
    assert (store.exchange.end(A), store.exchange.next_ready_ms()) == (3, 1099)
    clock.now_ms = 1099
    assert (store.exchange.end(A), store.exchange.next_ready_ms()) == (5, None)


def test_tuples_passed_through_within_a_step_are_counted_and_not_stored(store: Store) -> None:
    store.commit(Commit(passed=(Passed.of([A, B], [3, 0], [8, NO_WATERMARK]),)))
    assert (store.exchange.start(A), store.exchange.end(A)) == (4, 4)
    assert store.exchange.counters(A).consumed_tuples == 3
    assert store.exchange.watermarks([A]).tolist() == [8]
    assert store.stats().live_bytes == 0
    put(store, 0, ChannelAppend.one(A, rows(1)))
    assert records(store, A) == [(4, "row", 1)]
    with pytest.raises(CommitConflictError, match="not empty"):
        store.commit(Commit(passed=(Passed.of([A], [1]),)))


def test_memory_stays_within_its_budget_and_older_rows_are_read_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path, StoreOptions(memory_budget_bytes=20_000))
    store.commit(Commit(add=(channel(0),)))
    for batch in range(50):
        put(store, batch, ChannelAppend.one(A, rows(*range(batch * 100, batch * 100 + 100))))
    stats = store.stats()
    assert 0 < stats.memory_bytes <= 20_000 < stats.live_bytes
    assert store.exchange.read(A, 0, 5000).table.column("v").to_pylist() == list(range(5000))
    assert store.stats().spilled_reads > 0


def test_pressure_rises_with_what_waits_and_falls_when_it_is_consumed(tmp_path: Path) -> None:
    store = Store.open(tmp_path, StoreOptions(disk_budget_bytes=50_000))
    store.commit(Commit(add=(channel(0),)))
    batch = 0
    while store.pressure() < 1:
        put(store, batch, ChannelAppend.one(A, rows(*range(100))))
        batch += 1
    assert store.stats().channel_bytes >= 50_000
    put(store, batch, ChannelAppend.one(A, rows(1)))  # what is under way is still taken: nothing is dropped
    store.commit(Commit(consumed={A: store.exchange.end(A)}))
    assert store.pressure() == 0


def test_state_alone_never_stops_sources_for_good(tmp_path: Path) -> None:

    store = Store.open(tmp_path, StoreOptions(disk_budget_bytes=10_000))
    store.commit(Commit(add=(channel(0),)))
    store.commit(Commit(state_appends=(StateAppend.sliced(state_rows(*range(5000)), 0, [1], [0], [5000]),)))
    assert store.stats().state_bytes > 10_000
    assert store.pressure() == 0
    put(store, 0, ChannelAppend.one(A, rows(*range(100))))
    assert store.pressure() == 1


def test_disk_use_is_bounded_by_what_is_live(tmp_path: Path) -> None:
    store = Store.open(tmp_path, StoreOptions(segment_bytes=20_000))
    for number in range(20):
        store.commit(Commit(add=(channel(number),)))
    ids = np.arange(20)
    for batch in range(300):  # channel 0 has no receiver; its rows share payloads with those of all others
        heads = {ChannelId(c): 5 * batch for c in range(1, 20)}
        table = rows(*range(100))
        append = ChannelAppend.sliced(table, ids, np.full(20, 5))
        store.commit(Commit(consumed=heads, appends=(append,)))
    store.syncer.sync()  # what is not needed any more goes when that is known on the disk
    stats = store.stats()
    assert stats.snapshots > 10
    assert store.exchange.counters(A).pending_tuples == 1500
    assert stats.disk_bytes < 7 * stats.live_bytes + 20_000  # a segment may grow to four times its snapshot
    assert store.exchange.read(A, 0, 1500).table.num_rows == 1500


def test_a_channel_keeps_what_was_consumed_until_it_may_forget(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    store.commit(Commit(add=(channel(0),)))
    store.commit(Commit(rewire=(Rewire(A, F, keeps=True),)))
    for first in range(0, 40, 10):
        store.commit(Commit(appends=(ChannelAppend.one(A, rows(*range(first, first + 10)), watermark=first),)))
    store.commit(Commit(consumed={A: 15}))
    store.commit(Commit(consumed={A: 26}))
    kept = store.exchange.kept(A)
    assert kept.column(0).to_pylist() == list(range(24))  # two watermarks are records too
    counters = store.exchange.counters(A)
    assert (counters.consumed_tuples, counters.pending_tuples) == (24, 16)
    assert not store.exchange.is_passable(A)
    rest = store.exchange.read(A, 26, store.exchange.end(A)).table.column(0).to_pylist()
    assert rest == list(range(24, 40))
    store.snapshot()
    store.close()
    store = Store.open(tmp_path / "store")
    assert store.exchange.kept(A).equals(kept)
    store.commit(Commit(forget=(A,)))
    assert len(store.exchange.kept(A)) == 0
    store.commit(Commit(consumed={A: 28}))
    assert store.exchange.kept(A).column(0).to_pylist() == [24, 25]
    assert store.exchange.read(A, 28, store.exchange.end(A)).table.column(0).to_pylist() == rest[2:]
    store.commit(Commit(consumed={A: store.exchange.end(A)}, rewire=(Rewire(A, F, keeps=False),)))
    assert len(store.exchange.kept(A)) == 0
    assert store.stats().live_bytes == 0


def test_channels_with_other_names_for_the_same_types_are_read_as_one_table(store: Store) -> None:
    """Fragments of one template may have sources whose columns are called differently."""
    other = ChannelId(9)
    renamed = pa.schema([pa.field(f"other_{f.name}", f.type) for f in SCHEMA])
    store.commit(Commit(add=(ChannelSpec(other, renamed),)))
    put(store, 0, ChannelAppend.one(A, rows(10, 11)))
    put(store, 1, ChannelAppend.one(other, rows(12).rename_columns(renamed.names)))
    found = store.exchange.read_many([A, other], [0, 0], [2, 1])
    assert found.table.column_names == SCHEMA.names
    assert sorted(zip(found.owners.tolist(), found.table.column(0).to_pylist(), strict=True)) == sorted(
        zip([0, 0, 1], rows(10, 11, 12).column(0).to_pylist(), strict=True)
    )
    strange = ChannelId(10)
    store.commit(Commit(add=(ChannelSpec(strange, pa.schema([("x", pa.string())])),)))
    with pytest.raises(InputError, match="differ in schema"):
        store.exchange.read_many([A, strange], [0, 0], [2, 0])
