"""State tables: ranges of buckets, drops, merges, sizes, transfers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from meander.model.errors import InputError
from meander.model.ids import FragmentId
from meander.reconfigure.state.transfer import Export, TransferError, import_state
from meander.run.channels.base import Int64s
from meander.run.store.commit import (
    Commit,
    CommitConflictError,
    StateAppend,
    StateCopy,
    StateDrop,
    StateMerge,
    StateRename,
)
from meander.run.store.partitions import PartitionKey
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import check_accounts, observed, partitions, state_rows

F, G = FragmentId(1), FragmentId(2)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def keep(store: Store, fragment: int, bucket: int, *values: int, operator: int = 0) -> None:
    store.commit(
        Commit(state_appends=(StateAppend.sliced(state_rows(*values), operator, [fragment], [bucket], [len(values)]),))
    )


def test_partitions_of_many_fragments_are_read_as_one_table(store: Store) -> None:
    store.commit(
        Commit(state_appends=(StateAppend.sliced(state_rows(1, 2, 3, 4), 0, [F, F, G], [10, 20, 10], [1, 2, 1]),))
    )
    keep(store, F, 10, 5)
    reading = store.state.read([F, G], 0, stop=20)
    assert reading.table is not None
    assert reading.fragments.tolist() == [F, G]
    assert reading.buckets.tolist() == [10, 10]
    assert reading.rows.tolist() == [2, 1]
    found = sorted(zip(reading.fragments[reading.owners], reading.table.column("k").to_pylist(), strict=True))
    assert found == [(F, 1), (F, 5), (G, 4)]
    different = store.state.read([F, G], 0, start=[20, 0], stop=[30, 10])
    assert different.buckets.tolist() == [20]
    assert store.state.read([FragmentId(9)], 0).table is None


def test_passed_buckets_are_dropped_and_sizes_follow(store: Store) -> None:
    for bucket in (10, 20, 30):
        keep(store, F, bucket, bucket, bucket + 1)
    keep(store, F, 10, 99, operator=1)
    assert store.state.size(F).rows == 7
    store.commit(Commit(state_drops=(StateDrop.of(0, [F, G], [30, 30], below=True),)))
    assert partitions(store) == {(F, 0, 30): [30, 31], (F, 1, 10): [99]}
    store.commit(Commit(state_drops=(StateDrop.of([0, 1], [F, F], [30, 10]),)))
    assert store.state.size(F).rows == store.state.size(F).bytes == 0
    assert store.stats().state_bytes == 0


def test_dropping_and_appending_in_one_commit_replaces_a_partition(store: Store) -> None:
    keep(store, F, 10, 1, 2)
    store.commit(
        Commit(
            state_drops=(StateDrop.of(0, [F], [10]),),
            state_appends=(StateAppend.sliced(state_rows(3), 0, [F], [10], [1]),),
        )
    )
    assert partitions(store) == {(F, 0, 10): [3]}


def test_state_is_renamed_at_once_also_crosswise(store: Store, tmp_path: Path) -> None:
    keep(store, F, 10, 1, 2)
    keep(store, G, 10, 3)
    before = store.stats().state_bytes
    store.commit(Commit(state_renames=(StateRename(F, 0, G, 0), StateRename(G, 0, F, 16)), retire=(F,)))
    assert partitions(store) == {(G, 0, 10): [1, 2]}  # what fragment 1 got, it took with it
    store.commit(Commit(state_renames=(StateRename(G, 0, F, 16), StateRename(G, 5, F, 5))))
    assert partitions(store) == {(F, 16, 10): [1, 2]}
    assert store.stats().state_bytes < before
    assert store.state.size(F).rows == 2
    check_accounts(store)
    keep(store, G, 10, 7)
    with pytest.raises(CommitConflictError, match="fragment 1, operator 16 has state already"):
        store.commit(Commit(state_renames=(StateRename(G, 0, F, 16),)))
    store.close()
    assert partitions(Store.open(tmp_path / "store")) == {(F, 16, 10): [1, 2], (G, 0, 10): [7]}


def test_a_copy_of_state_stays_when_the_original_goes_on(store: Store, tmp_path: Path) -> None:
    keep(store, F, 10, 1, 2)
    keep(store, G, 30, 9)
    store.commit(Commit(state_copies=(StateCopy(F, G),)))
    keep(store, F, 10, 3)
    store.commit(Commit(state_drops=(StateDrop.of(0, [F], [20], below=True),)))
    assert partitions(store) == {(G, 0, 10): [1, 2]}
    check_accounts(store)
    store.close()
    store = Store.open(tmp_path / "store")
    assert partitions(store) == {(G, 0, 10): [1, 2]}
    store.commit(Commit(retire=(G,)))
    assert store.stats().live_bytes == 0


def test_state_of_one_operator_has_one_schema(store: Store) -> None:
    keep(store, F, 10, 1)
    wrong = StateAppend.sliced(pa.table({"k": pa.array(["a"])}), 0, [F], [20], [1])
    with pytest.raises(InputError, match=r"state of fragment 1, operator 0: column 'k' is string instead of int64"):
        store.commit(Commit(state_appends=(wrong,)))
    right = StateAppend.sliced(state_rows(1), 0, [G], [20], [1])
    other = StateAppend.sliced(pa.table({"k": pa.array(["a"])}), 0, [G], [20], [1])
    with pytest.raises(InputError, match=r"state of fragment 2, operator 0"):
        store.commit(Commit(state_appends=(right, other)))
    assert partitions(store) == {(F, 0, 10): [1]}


def total(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
    """The sum of each partition."""
    summed = table.append_column("owner", pa.array(owners)).group_by("owner").aggregate([("k", "sum")])
    return pa.table({"k": summed.column("k_sum")}), np.asarray(summed.column("owner"))


def test_crowded_partitions_are_merged_and_stay_merged_after_a_restart(store: Store, tmp_path: Path) -> None:
    for value in range(10):
        keep(store, F, 10, value)
    keep(store, F, 20, 5)
    assert [c.key for c in store.state.crowds(3)] == [PartitionKey(F, 0, 10)]
    for value in range(5):
        keep(store, G, 10, value)
    merged = {(F, 0, 10): [45], (F, 0, 20): [5], (G, 0, 10): [10]}
    commits = store.commits
    assert store.state.compact([*(c.key for c in store.state.crowds(3)), PartitionKey(F, 0, 20)], total) == 2
    assert store.commits == commits + 1
    assert partitions(store) == merged
    assert store.state.size(F).rows == 2
    check_accounts(store)
    store.close()
    assert partitions(Store.open(tmp_path / "store")) == merged


def test_what_is_appended_while_a_partition_is_merged_is_kept(store: Store) -> None:
    keep(store, F, 10, 1)
    keep(store, F, 10, 2)

    def slow(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
        keep(store, F, 10, 100)
        return total(table, owners)

    assert store.state.compact([PartitionKey(F, 0, 10)], slow) == 1
    assert partitions(store) == {(F, 0, 10): [3, 100]}


def test_a_merge_is_given_up_when_its_partition_was_dropped_meanwhile(store: Store) -> None:
    keep(store, F, 10, 1)
    keep(store, F, 10, 2)

    def dropped(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
        store.commit(Commit(state_drops=(StateDrop.of(0, [F], [10]),)))
        keep(store, F, 10, 7)
        keep(store, F, 10, 8)
        return total(table, owners)

    assert store.state.compact([PartitionKey(F, 0, 10)], dropped) == 0
    assert partitions(store) == {(F, 0, 10): [7, 8]}
    gone = StateMerge(state_rows(1), *(np.array([n]) for n in (F, 0, 99, 0, 1, 0, 1)))
    with pytest.raises(CommitConflictError, match="merge it again"):
        store.commit(Commit(state_merges=(gone,)))


def test_a_retired_fragment_leaves_nothing_behind(store: Store) -> None:
    keep(store, F, 10, 1)
    store.commit(Commit(versions={F: 3}, counters={(F, "late"): 2}))
    assert (store.version(F), store.counter(F, "late")) == (3, 2)
    store.commit(Commit(retire=(F,)))
    assert (store.version(F), store.counter(F, "late"), partitions(store)) == (None, 0, {})


@pytest.mark.parametrize("chunk_bytes", [1, 2000, 10**6])
def test_state_arrives_elsewhere_as_it_was(tmp_path: Path, store: Store, chunk_bytes: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        keep(store, F, int(rng.integers(0, 9)), *rng.integers(0, 99, 5).tolist(), operator=int(rng.integers(0, 2)))
    keep(store, G, 1, 1)
    chunks = list(Export(store, F, chunk_bytes=chunk_bytes))
    assert (len(chunks) > 1) == (chunk_bytes < 10**6)
    other = Store.open(tmp_path / "other", StoreOptions(segment_bytes=5000))
    arrivals = [import_state(other, FragmentId(8), "move 1", chunk) for chunk in chunks]
    assert [a.last for a in arrivals] == [False] * (len(chunks) - 1) + [True]
    expected = {(8, o, b): v for (f, o, b), v in partitions(store).items() if f == F}
    assert partitions(other) == expected
    assert import_state(other, FragmentId(8), "move 1", chunks[0]).repeated
    assert partitions(other) == expected


def test_an_export_is_of_one_moment_whatever_happens_afterwards(store: Store) -> None:
    for value in range(10):
        keep(store, F, value, value)
    chunks = iter(Export(store, F, chunk_bytes=1))
    first = next(chunks)
    store.commit(Commit(retire=(F,)))
    store.snapshot()
    assert len([first, *chunks]) == 10


def test_a_fragment_without_state_has_one_empty_chunk(store: Store, tmp_path: Path) -> None:
    (chunk,) = Export(store, F)
    arrival = import_state(Store.open(tmp_path / "other"), F, "move", chunk)
    assert (arrival.rows, arrival.last) == (0, True)


def test_a_damaged_or_early_chunk_is_refused_without_effect(store: Store, tmp_path: Path) -> None:
    for value in range(5):
        keep(store, F, value, value)
    chunks = list(Export(store, F, chunk_bytes=1))
    other = Store.open(tmp_path / "other")
    before = observed(other)
    damaged = bytearray(chunks[0])
    damaged[-9] ^= 1
    with pytest.raises(TransferError, match="damaged; send it again"):
        import_state(other, F, "move", bytes(damaged))
    with pytest.raises(TransferError, match="send in order"):
        import_state(other, F, "move", chunks[1])
    assert observed(other) == before
