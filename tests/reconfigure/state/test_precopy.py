"""Pre-copies: whatever happens to a state while it is sent ahead, it arrives as it is when its operator stops."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.ids import FragmentId
from meander.reconfigure.state import Hop, Job, Migration
from meander.reconfigure.state.manifest import missing_bytes
from meander.reconfigure.state.precopy import AHEAD, LocalRounds, Precopy
from meander.reconfigure.state.transfer import Export, TransferError, import_state
from meander.run.store.commit import Commit, StateAppend, StateDrop
from meander.run.store.partitions import PartitionKey
from meander.run.store.store import Store
from tests.reconfigure.state.states import KEYS, Append, F, G, appends, filled, held, renamed, table
from tests.run.observe import check_accounts

INTO = FragmentId(AHEAD)
PLACES = {key: place for place, key in enumerate(KEYS)}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 100.0

    def __call__(self) -> float:
        return self.now_ms


def append(store: Store, wanted: Sequence[Append], seed: int = 500) -> None:
    for number, (key, buckets) in enumerate(wanted):
        sizes = [rows for _, rows in buckets]
        part = StateAppend.sliced(
            table(key, sum(sizes), seed + number), key, [F] * len(sizes), [b for b, _ in buckets], sizes
        )
        store.commit(Commit(state_appends=(part,)))


def drop(store: Store, below: int) -> None:
    store.commit(Commit(state_drops=(StateDrop.of(list(KEYS), [F] * 3, [below] * 3, below=True),)))


def merge(store: Store, key: int) -> None:
    with store.lock:
        found = store.views.state.find(F, key)
        partitions = [PartitionKey(F, key, b) for b in (found.buckets if found else ())]
    store.state.compact(partitions, lambda rows, owners: (rows, owners))


change = st.one_of(
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("drop"), st.integers(-3, 6)),
    st.tuples(st.just("merge"), st.sampled_from(KEYS)),
)


def do(store: Store, what: str, how: object) -> None:
    match what, how:
        case "append", list():
            append(store, how)
        case "drop", int():
            drop(store, how)
        case "merge", int():
            merge(store, how)


@given(appends, st.lists(st.lists(change, max_size=4), min_size=1, max_size=4), st.sampled_from([90, 1000, 100_000]))
def test_differences_make_of_what_was_sent_what_is_there_now(
    wanted: list[Append], rounds: list[list[tuple[str, object]]], chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = filled(Path(directory) / "a", wanted), Store.open(Path(directory) / "b")
        after = None
        for number, changes in enumerate([*rounds, []]):
            export = Export(source, F, operators=KEYS, chunk_bytes=chunk_bytes, after=after)
            expected = held(source, F)
            for what, how in changes:  # while it is on its way
                do(source, what, how)
            for chunk in export:
                known = None if after is None else after.digest
                import_state(target, G, f"round {number}", chunk, PLACES, known)
            assert held(target, G) == renamed(expected, PLACES)
            after = export.manifest
        assert after is not None
        assert missing_bytes(source, F, KEYS, after) == 0
        check_accounts(target)
        source.close()
        target.close()


def test_what_changed_since_something_else_is_refused_without_effect(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a", [(0, [(1, 20)])]), Store.open(tmp_path / "b")
    first = Export(source, F, operators=KEYS)
    import_state(target, G, "all", first.chunk(0), PLACES)
    append(source, [(0, [(1, 5), (2, 5)])])
    later = Export(source, F, operators=KEYS, after=first.manifest)
    before = held(target, G)
    for after in (None, first.digest + 1):
        with pytest.raises(TransferError, match="ask for all of it"):
            import_state(target, G, "rest", later.chunk(0), PLACES, after)
    assert held(target, G) == before


def rounds_of(store: Store, clock: Clock, least_bytes: float = 0.0, mbps: float | None = 8.0) -> LocalRounds:
    return LocalRounds(store, F, KEYS, INTO, lambda: [Hop(5.0, mbps)], clock, least_bytes)


def large(tmp_path: Path) -> Store:
    return filled(tmp_path / "store", [(1, [(bucket, 5_000) for bucket in range(4)])] * 4)


def test_only_what_came_since_the_last_round_is_sent_after_the_operator_stopped(tmp_path: Path) -> None:
    store, clock = large(tmp_path), Clock()
    whole = sum(len(chunk) for chunk in Export(store, F, operators=KEYS))
    copy = Precopy(INTO, store, rounds_of(store, clock, mbps=80.0), clock, background=False)
    while not copy.poll():
        clock.now_ms += 20
        append(store, [(1, [(0, 3)])])
    assert copy.rounds >= 2  # what came during the first one was worth a second
    append(store, [(1, [(0, 10)])])
    manifest = copy.take()
    assert manifest is not None
    rest = Migration(
        Job(store, F, store, INTO, "rest", PLACES, [Hop(5.0, 80.0)], after=manifest), clock_ms=clock, background=False
    )
    rest.start()
    while (wait_ms := rest.poll()) is not None:
        clock.now_ms += wait_ms
    assert held(store, INTO) == renamed(held(store, F), PLACES)
    assert rest.bytes < 0.05 * whole < copy.bytes


def test_a_small_state_is_not_sent_ahead(tmp_path: Path) -> None:
    store, clock = filled(tmp_path / "store", [(0, [(1, 20)])]), Clock()
    copy = Precopy(INTO, store, rounds_of(store, clock, least_bytes=1e6), clock, background=False)
    assert (copy.poll(), copy.rounds, copy.take()) == (True, 0, None)


def test_what_was_on_its_way_when_the_operator_stopped_is_of_no_use(tmp_path: Path) -> None:
    store, clock = large(tmp_path), Clock()
    copy = Precopy(INTO, store, rounds_of(store, clock), clock, background=False)
    assert not copy.poll()
    assert copy.take() is None


def test_one_that_is_dropped_gives_back_its_room(tmp_path: Path) -> None:
    store, clock = large(tmp_path), Clock()
    copy = Precopy(INTO, store, rounds_of(store, clock), clock, background=False)
    for _ in range(3):
        clock.now_ms += 1_000
        copy.poll()
    assert held(store, INTO)
    copy.drop()
    assert not held(store, INTO)
    assert not [w for w in store.views.writers if w.startswith(f"fragment {INTO} ")]
    check_accounts(store)


def test_one_that_waits_for_its_change_takes_what_came_meanwhile_when_that_begins(tmp_path: Path) -> None:
    store, clock = large(tmp_path), Clock()
    copy = Precopy(INTO, store, rounds_of(store, clock), clock, background=False, refresh_ms=60_000)
    while not copy.poll():
        clock.now_ms += 100
    append(store, [(1, [(0, 9_000)])])
    clock.now_ms += 1_000
    assert copy.poll()
    assert missing_bytes(store, F, KEYS, copy._manifest) > 64_000
    copy.hurry()
    while not copy.poll():
        clock.now_ms += 100
    assert missing_bytes(store, F, KEYS, copy.take()) == 0
