"""A migration within one process: state arrives as it was, when the path says so, and as a whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.reconfigure.state import STATE_STRATEGIES, Forwarding, Hop, Job, Migration, MoveState, SourceOptions
from meander.reconfigure.state.transfer import Compression, is_complete
from meander.run.store.store import Store
from tests.reconfigure.state.states import KEYS, OTHER, Append, F, G, appends, filled, held, renamed
from tests.run.observe import check_accounts

WANTED: list[Append] = [(key, [(bucket, 20) for bucket in range(4)]) for key in KEYS] * 2


class Clock:
    def __init__(self) -> None:
        self.now_ms = 100.0

    def __call__(self) -> float:
        return self.now_ms


@contextmanager
def places(wanted: list[Append]) -> Iterator[tuple[Store, Store]]:
    with tempfile.TemporaryDirectory() as directory:
        source, target = filled(Path(directory) / "a", wanted), Store.open(Path(directory) / "b")
        yield source, target
        source.close()
        target.close()


def finish(migration: Migration, clock: Clock) -> list[float]:
    """Polls from arrival to arrival; says when it did."""
    times = []
    while (wait_ms := migration.poll()) is not None:
        clock.now_ms += wait_ms
        times.append(clock.now_ms)
    return times


hops = st.lists(st.builds(Hop, st.sampled_from([0.0, 5.0]), st.sampled_from([None, 0.5, 8.0])), max_size=4)
options = st.builds(
    SourceOptions,
    st.sampled_from([None, *Compression]),
    st.sampled_from([90, 1000, 5000, None]),
)
new_keys = st.sampled_from([None, {0: 0}, {1: 16, 17: 1}, {0: 17, 1: 0, 17: 1}])


@given(appends, hops, options, new_keys, st.sampled_from(Forwarding))
def test_state_arrives_as_it_was(
    wanted: list[Append],
    path: list[Hop],
    how: SourceOptions,
    keys: dict[int, int] | None,
    forwarding: Forwarding,
) -> None:
    with places(wanted) as (source, target):
        before, clock = held(source, F), Clock()
        job = Job(source, F, target, G, "move", keys, path, how)
        migration = Migration(job, forwarding, clock_ms=clock, background=False)
        assert (migration.progress, migration.state) == (0.0, MoveState.WAITING)
        migration.start()
        while (wait_ms := migration.poll()) is not None:
            assert not migration.done
            assert not is_complete(target, G, "move")
            assert migration.progress < 1
            clock.now_ms += wait_ms
        assert (migration.done, migration.progress, migration.error) == (True, 1.0, None)
        assert is_complete(target, G, "move")
        assert held(target, G) == renamed(before, keys)
        assert held(source, F) == before
        check_accounts(target)


def test_within_one_store_other_fragments_stay_as_they_are(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", WANTED)
    other, expected = held(store, OTHER), renamed(held(store, F), {0: 1, 1: 0})
    migration = Migration(Job(store, F, store, G, "move", {0: 1, 1: 0}))
    migration.start()
    assert migration.wait(20)
    assert held(store, G) == expected
    assert held(store, OTHER) == other


@pytest.mark.parametrize("intermediates", [0, 2, 16])
def test_hops_work_at_the_same_time_unless_they_wait_for_the_whole(tmp_path: Path, intermediates: int) -> None:
    source = filled(tmp_path / "a", WANTED * 20)
    path = [Hop(2.0, 8.0)] * (intermediates + 1)
    took = {}
    for forwarding in Forwarding:
        clock = Clock()
        target = Store.open(tmp_path / forwarding.value)
        job = Job(
            source, F, target, G, "move", None, path, SourceOptions(chunk_bytes=2000, compression=Compression.NONE)
        )
        migration = Migration(job, forwarding, clock_ms=clock, background=False)
        migration.start()
        finish(migration, clock)
        took[forwarding] = migration.seconds
        once = migration.bytes * 8 / 8e6
    latency = 0.002 * len(path)
    assert took[Forwarding.WHOLE] == pytest.approx(once * len(path) + latency)
    assert once + latency <= took[Forwarding.PIPELINED] < once * 1.1 + latency + 0.003 * intermediates


def test_oldest_windows_come_first(tmp_path: Path) -> None:
    source, target, clock = filled(tmp_path / "a", WANTED), Store.open(tmp_path / "b"), Clock()
    how = SourceOptions(Compression.NONE, 300)
    migration = Migration(Job(source, F, target, G, "move", None, [Hop(0, 1.0)], how), clock_ms=clock, background=False)
    migration.start()
    clock.now_ms += migration.poll() or 0.0
    migration.poll()
    assert {bucket for _, bucket in held(target, G)} == {0}


@given(appends, st.integers(0, 20))
def test_a_cancelled_migration_leaves_nothing_behind(wanted: list[Append], polls: int) -> None:
    with places(wanted) as (source, target):
        before, clock = held(source, F), Clock()
        ends: list[Migration] = []
        job = Job(source, F, target, G, "move", None, [Hop(1.0, 1.0)], SourceOptions(chunk_bytes=100))
        migration = Migration(job, clock_ms=clock, background=False, on_end=ends.append)
        migration.start()
        for _ in range(polls):
            clock.now_ms += migration.poll() or 0.0
        done = migration.done
        assert migration.cancel() == (not done)
        assert migration.cancel() == (not done)
        assert ends == [migration]
        assert held(target, G) == (before if done else {})
        assert is_complete(target, G, "move") == done
        assert held(source, F) == before
        if not done:
            assert migration.state is MoveState.CANCELLED
            again = Migration(job, clock_ms=clock, background=False)
            again.start()
            finish(again, clock)
            assert again.error is not None
            assert "cancelled; begin another one" in again.error


@given(appends, st.integers(0, 10), st.booleans())
def test_another_attempt_goes_on_or_replaces_what_the_first_one_left(
    wanted: list[Append], polls: int, recut: bool
) -> None:
    with places(wanted) as (source, target):
        expected, clock = held(source, F), Clock()
        job = Job(source, F, target, G, "move", None, [Hop(1.0, 1.0)], SourceOptions(chunk_bytes=100))
        first = Migration(job, clock_ms=clock, background=False)
        first.start()
        for _ in range(polls):
            clock.now_ms += first.poll() or 0.0
        if recut:
            job = Job(source, F, target, G, "move", None, (), SourceOptions(chunk_bytes=170))
        second = Migration(job, clock_ms=clock, background=False)
        second.start()
        if not recut:
            assert second.chunks == first.chunks
        finish(second, clock)
        assert second.done
        assert held(target, G) == expected


def test_keys_without_a_new_name_are_not_taken_by_accident(tmp_path: Path) -> None:
    source = filled(tmp_path / "a", WANTED)
    with pytest.raises(InputError, match="bandwidth_mbps is 0"):
        Hop(0, 0)
    job = Job(source, F, Store.open(tmp_path / "b"), G, "move", {0: 4, 1: 4})
    migration = Migration(job, background=False)
    migration.start()
    migration.poll()
    assert migration.state is MoveState.FAILED
    assert migration.error is not None
    assert "two state keys get the same new one" in migration.error
    with pytest.raises(InputError, match="has started already"):
        migration.start()


@pytest.mark.parametrize("strategy", STATE_STRATEGIES[:2], ids=lambda s: s.name)
def test_strategies_move_state(tmp_path: Path, strategy: object) -> None:
    source, target = filled(tmp_path / "a", WANTED), Store.open(tmp_path / "b")
    move = strategy.begin(Job(source, F, target, G, "move"))  # type: ignore[attr-defined]
    move.start()
    assert move.wait(20)
    assert held(target, G) == held(source, F)
