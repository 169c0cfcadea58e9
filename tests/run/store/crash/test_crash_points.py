"""Crashes at every call that changes a file and at bytes all over the last segment: what returned is there, whole."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from meander.run.store.commit import Commit
from meander.run.store.journal import Durability
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, check_accounts, observed
from tests.run.store.crash.commits import random_commit
from tests.run.store.crash.faults import Crash, FaultyFiles
from tests.run.store.crash.model import Model

SMALL: dict[str, Any] = {"segment_bytes": 6000, "memory_budget_bytes": 2000, "sync_interval_s": None}

ALIVE = DeliveryRecord("alive")


def workload(
    store: Store, seed: int, commits: int, done: list[dict[str, Any]], attempted: list[dict[str, Any]]
) -> None:
    """Random commits; `done` has what was shown after each one that returned, `attempted` what the last one tried."""
    rng, model = random.Random(seed), Model()
    first = Commit(add=tuple(channel(i) for i in range(4)))
    for index in range(commits):
        commit = first if index == 0 else random_commit(model, rng)
        model.apply(commit)
        attempted.append(model.copy().shown())
        store.commit(commit)
        done.append(attempted[-1])


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("seed", range(2))
def test_a_crash_at_any_file_system_call_keeps_what_returned(tmp_path: Path, seed: int, durability: Durability) -> None:
    options = StoreOptions(durability=durability, **SMALL)
    counting = FaultyFiles()
    workload(Store.open(tmp_path / "whole", options, files=counting), seed, 18, [], [])
    assert counting.calls > 25
    rng = random.Random(seed)
    for call in range(counting.calls):
        directory = tmp_path / str(call)
        files = FaultyFiles()
        files.crash_at, files.written_part = call, rng.choice([0.0, rng.random(), 1.0])
        done: list[dict[str, Any]] = [Model().shown()]
        attempted = [Model().shown()]
        with pytest.raises(Crash):
            open_and_work(directory, options, files, seed, done, attempted)
        with_recovery(directory, options, done[-1], attempted[-1])
        shutil.rmtree(directory)


def open_and_work(
    directory: Path,
    options: StoreOptions,
    files: FaultyFiles,
    seed: int,
    done: list[dict[str, Any]],
    attempted: list[dict[str, Any]],
) -> None:
    store = Store.open(directory, options, files=files)
    try:
        workload(store, seed, 18, done, attempted)
    finally:
        store.close()  # writes nothing; only gives the directory's lock back, as the end of a process does


def with_recovery(directory: Path, options: StoreOptions, before: dict[str, Any], after: dict[str, Any]) -> None:
    store = Store.open(directory, options)
    shown = observed(store)
    assert shown in (before, after)
    check_accounts(store)
    store.commit(Commit(records=(ALIVE,)))
    store.close()
    store = Store.open(directory, options)
    assert observed(store) == shown | {"records": shown["records"] | {("delivery", "alive"): ALIVE}}
    store.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_segment_cut_at_any_byte_shows_the_commits_before_it(tmp_path: Path, seed: int) -> None:
    options = StoreOptions(segment_bytes=10**6)
    rng, model = random.Random(seed), Model()
    store = Store.open(tmp_path / "whole", options)
    ends = [(store.stats().disk_bytes, observed(store))]
    commit = Commit(add=tuple(channel(i) for i in range(3)))
    for _ in range(8):
        model.apply(commit)
        store.commit(commit)
        ends.append((store.stats().disk_bytes, observed(store)))
        assert ends[-1][1] == model.shown()
        commit = random_commit(model, rng)
    store.close()
    (segment,) = (tmp_path / "whole").glob("*.seg")
    cuts = {rng.randint(ends[0][0], ends[-1][0]) for _ in range(60)} | {end + d for end, _ in ends for d in (-1, 0, 1)}
    for cut in sorted(c for c in cuts if ends[0][0] <= c <= ends[-1][0]):
        directory = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "whole", directory)
        with (directory / segment.name).open("r+b") as file:
            file.truncate(cut)
        again = Store.open(directory, options)
        assert observed(again) == [shown for end, shown in ends if end <= cut][-1]
        again.close()
        shutil.rmtree(directory)
