"""Commits: whole or not at all, once, from several slots, across restarts."""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend
from meander.run.store.commit import Commit, CommitConflictError, StateAppend, slot_writer, transfer_writer
from meander.run.store.commit_check import CommitCheck
from meander.run.store.encoding import Numbers, prepare
from meander.run.store.journal import DiskFullError, JournalCorruptError, JournalError
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, observed, partitions, records, rows, state_rows
from tests.run.store.crash.commits import random_commit
from tests.run.store.crash.faults import FaultyFiles
from tests.run.store.crash.model import Model

A, B = ChannelId(0), ChannelId(1)
F = FragmentId(1)
A_RECORD = DeliveryRecord("a", 1)


def opened(directory: Path, **options: int) -> Store:
    store = Store.open(directory, StoreOptions(**options))  # type: ignore[arg-type]
    for number in range(2):
        store.commit(Commit(add=(channel(number),)))
    return store


def test_versions_are_read_as_journals_had_them_at_first(tmp_path: Path) -> None:
    store = opened(tmp_path)
    views = store.views
    envelope = CommitCheck(views, prepare(Commit(slot_writer(0), 1))).envelope()
    views.apply(9, envelope, {"versions": [[1, 3], [2, 5]]}, Numbers(np.empty(0, np.int64)), ())
    assert [store.version(FragmentId(f)) for f in (1, 2)] == [3, 5]
    store.close()


def test_a_step_changes_positions_outputs_state_and_facts_together(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.commit(Commit(transfer_writer(F, "1"), 0, versions={F: 1}, appends=(ChannelAppend.one(A, rows(1, 2, 3)),)))
    outcome = store.commit(
        Commit(
            slot_writer(0),
            12,
            versions={F: 1},
            consumed={A: 2},
            appends=(ChannelAppend.one(B, rows(10), watermark=5),),
            state_appends=(StateAppend.sliced(state_rows(7), 0, [F], [100], [1]),),
            counters={(F, "late"): 2, (F, "malformed"): 1},
            acknowledged={"out": 40},
            records=(DeliveryRecord("source", 40, {"file": "a.csv", "offset": 12}),),
        )
    )
    assert not outcome.repeated
    for again in (store, None):
        if again is None:
            store.close()
            store = Store.open(tmp_path)
        assert records(store, A) == [(2, "row", 3)]
        assert records(store, B) == [(0, "row", 10), (1, "watermark", 5)]
        assert partitions(store) == {(F, 0, 100): [7]}
        assert store.last_batch(slot_writer(0)) == 12
        assert (store.counter(F, "late"), store.counter(F, "malformed")) == (2, 1)
        assert (store.acknowledged("out"), store.acknowledged("other")) == (40, 0)
        assert store.record(DeliveryRecord, "source") == DeliveryRecord("source", 40, {"file": "a.csv", "offset": 12})


def test_a_refused_commit_has_no_effect_at_all(tmp_path: Path) -> None:
    store = opened(tmp_path)
    before, size = observed(store), store.stats().disk_bytes
    good = ChannelAppend.one(A, rows(1))
    with pytest.raises(InputError):
        store.commit(Commit(records=(A_RECORD,), appends=(good, ChannelAppend.one(ChannelId(9), rows(1)))))
    with pytest.raises(CommitConflictError):
        store.commit(Commit(records=(A_RECORD,), appends=(good,), consumed={B: 1}))
    assert observed(store) == before
    assert store.stats().disk_bytes == size


def test_a_record_that_is_not_json_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a record is not plain JSON \(.*set.*\); use numbers"):
        opened(tmp_path).commit(Commit(records=(replace(A_RECORD, note={1, 2}),)))


def test_a_replayed_batch_is_recognised_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    commit = Commit(slot_writer(3), 5, appends=(ChannelAppend.one(A, rows(1)),))
    number = store.commit(commit).number
    store.snapshot()
    store.close()
    store = Store.open(tmp_path)
    again = store.commit(commit)
    assert (again.repeated, again.number) == (True, number)
    assert store.commit(Commit(slot_writer(3), 4)).repeated
    with pytest.raises(CommitConflictError, match="batch 5 of slot 3"):
        store.commit(Commit(slot_writer(3), 5, appends=(ChannelAppend.one(A, rows(2)),)))
    assert store.exchange.end(A) == 1


def test_slots_that_commit_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=20_000, memory_budget_bytes=5_000)
    problems: list[Exception] = []

    def work(slot: int) -> None:
        try:
            for batch in range(60):
                append = ChannelAppend.one(A, rows(*range(1000 * slot + batch * 10, 1000 * slot + batch * 10 + 10)))
                state = StateAppend.sliced(state_rows(batch), 0, [slot], [batch % 5], [1])
                store.commit(Commit(slot_writer(slot), batch, appends=(append,), state_appends=(state,)))
                store.exchange.read(A, store.exchange.start(A), store.exchange.end(A))
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    before = observed(store)
    values = [v for _, _, v in records(store, A)]
    assert sorted(values) == sorted(1000 * s + i for s in range(4) for i in range(600))
    for slot in range(4):
        mine = [v for v in values if v // 1000 == slot]
        assert mine == sorted(mine)
    store.close()
    assert observed(Store.open(tmp_path)) == before


@given(seed=st.integers(0, 2**32), commits=st.integers(1, 12), segment_bytes=st.sampled_from([500, 5000, 10**6]))
def test_views_after_a_restart_equal_views_before(
    tmp_path_factory: pytest.TempPathFactory, seed: int, commits: int, segment_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    options = StoreOptions(segment_bytes=segment_bytes, memory_budget_bytes=1000)
    rng, model = random.Random(seed), Model()
    store = Store.open(directory, options)
    commit = Commit(add=tuple(channel(i) for i in range(3)))
    for _ in range(commits):
        store.commit(commit)
        model.apply(commit)
        commit = random_commit(model, rng)
    before = observed(store)
    assert before == model.shown()
    store.close()
    again = Store.open(directory, options)
    assert observed(again) == before
    again.close()


def test_a_full_disk_loses_nothing_and_the_same_commit_succeeds_later(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = Store.open(tmp_path, files=files)
    store.commit(Commit(add=(channel(0),)))
    commit = Commit(slot_writer(0), 0, appends=(ChannelAppend.one(A, rows(*range(100))),))
    files.room_bytes = 500
    with pytest.raises(DiskFullError, match="Nothing was lost; free some space"):
        store.commit(commit)
    assert (store.exchange.end(A), store.last_batch(slot_writer(0)), store.stats().refused_writes) == (0, None, 1)
    files.room_bytes = None
    assert not store.commit(commit).repeated
    store.close()
    assert Store.open(tmp_path).exchange.end(A) == 100


def test_a_disk_too_full_for_a_snapshot_still_takes_commits(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = Store.open(tmp_path, StoreOptions(segment_bytes=3000), files=files)
    store.commit(Commit(add=(channel(0),)))
    for batch in range(9):
        files.failing = {"create": errno.ENOSPC} if batch < 5 else {}
        store.commit(Commit(slot_writer(0), batch, appends=(ChannelAppend.one(A, rows(*range(50))),)))
        if batch == 4:
            assert "no room" in (store.stats().snapshot_problem or "")
    assert store.stats().snapshot_problem is None
    assert store.stats().refused_writes >= 1
    assert store.stats().snapshots >= 2
    store.close()
    assert Store.open(tmp_path).exchange.end(A) == 450


def test_a_missing_segment_is_named_when_the_store_is_opened(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=3000)
    for batch in range(10):
        store.commit(Commit(slot_writer(0), batch, appends=(ChannelAppend.one(A, rows(*range(50))),)))
    store.close()
    min(tmp_path.glob("*.seg")).unlink()
    with pytest.raises(JournalCorruptError, match=r"segment 1 is missing from .*; restore the directory from a copy"):
        Store.open(tmp_path)


def test_damage_in_an_old_segment_does_not_stop_commits_and_is_shown(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=6000, memory_budget_bytes=0)
    for batch in range(3):
        store.commit(Commit(slot_writer(0), batch, appends=(ChannelAppend.one(A, rows(*range(50))),)))
    store.snapshot()
    place = max(store.payloads.by_number.values(), key=lambda p: p.number).place
    old = min(tmp_path.glob("*.seg"))
    content = bytearray(old.read_bytes())
    content[place.offset + place.length - 1] ^= 1
    old.write_bytes(content)
    store.commit(Commit(consumed={A: 100}))  # the old segment is mostly dead now: the next snapshot packs what lives
    for batch in range(3, 12):
        store.commit(Commit(slot_writer(0), batch, appends=(ChannelAppend.one(B, rows(*range(50))),)))
    assert "damaged at byte" in (store.stats().snapshot_problem or "")
    assert store.exchange.read(B, 0, 450).table.num_rows == 450
    with pytest.raises(JournalCorruptError, match="checksum of its content differs"):
        store.exchange.read(A, 100, 150)
    store.close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot use .*file.*; give a directory that can be written"):
        Store.open(tmp_path / "file" / "store")


def test_schemas_that_a_snapshot_leaves_out_are_known_again_when_they_come_back(tmp_path: Path) -> None:
    store = opened(tmp_path)
    append = StateAppend.sliced(state_rows(1), 0, [F], [10], [1])
    store.commit(Commit(state_appends=(append,)))
    store.commit(Commit(retire=(F,)))
    store.snapshot()
    store.commit(Commit(state_appends=(append,)))
    store.close()
    assert partitions(Store.open(tmp_path)) == {(F, 0, 10): [1]}


def test_waiting_ends_with_the_next_commit(tmp_path: Path) -> None:
    store = opened(tmp_path)
    seen = store.changes
    assert store.wait(seen, 0) == seen
    thread = threading.Thread(target=lambda: store.commit(Commit(records=(A_RECORD,))))
    thread.start()
    assert store.wait(seen, 10) == seen + 1
    thread.join()


def test_a_store_can_be_closed_while_its_first_sync_is_about_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joined a thread that had not been started yet."""
    start, is_starting, go = threading.Thread.start, threading.Event(), threading.Event()

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "store sync":
            is_starting.set()
            go.wait(10)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    store, problems = Store.open(tmp_path / "store"), list[Exception]()

    def close() -> None:
        try:
            store.close()
        except Exception as problem:
            problems.append(problem)

    writer = threading.Thread(target=lambda: store.commit(Commit(records=(A_RECORD,))))
    closer = threading.Thread(target=close)
    writer.start()
    assert is_starting.wait(10)
    closer.start()
    closer.join(0.1)
    go.set()
    closer.join()
    writer.join()
    assert problems == []
