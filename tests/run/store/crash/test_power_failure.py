"""The power fails at any moment, on a disk that lies: the store opens with a prefix of its commits, with all settled.

`MEANDER_CRASH_POINTS` says how many moments are tried, `MEANDER_CRASH_SEED` which ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meander.run.channels.base import Int64s
from meander.run.store.commit import Commit
from meander.run.store.journal import Durability, JournalError
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, check_accounts, observed
from tests.run.store.crash.commits import random_commit
from tests.run.store.crash.lying_disk import LyingDisk
from tests.run.store.crash.model import Model

POINTS = int(os.environ.get("MEANDER_CRASH_POINTS", "600"))
SEED = int(os.environ.get("MEANDER_CRASH_SEED", "1"))
DIRECTORY = Path("/on/the/disk/that/lies")
COMMITS = 30


def sorted_rows(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
    order = np.lexsort((np.asarray(table.column("k")), owners))
    return table.take(pa.array(order)), owners[order]


class Life:
    """One store from its opening to its end, and what must be there if the power fails at a moment."""

    def __init__(self, seed: int, disk: LyingDisk, model: Model, points: int) -> None:
        self.rng = random.Random(seed)
        self.points = points
        self.disk, self.model = disk, model
        self.options = StoreOptions(
            durability=self.rng.choice(list(Durability)),
            segment_bytes=self.rng.choice([1500, 8000, 60_000, 10**6]),
            segment_records=self.rng.choice([5, 20, 1000]),
            memory_budget_bytes=3000,
            sync_interval_s=None,
        )
        self.failures: list[tuple[LyingDisk, int, int]] = []
        """Disks as they were found, with the first and the last state that may be in them."""
        self.states = [model.copy().shown()]
        self.settled = 0
        self.store: Store | None = None
        self._ends: list[tuple[int, int]] = []
        """The number of the next record after each state that may be lost."""

    def run(self) -> None:
        self.disk.before_change = self._perhaps_fail
        self.store = Store.open(DIRECTORY, self.options, files=self.disk)
        if not self.model.channels:
            self._commit(Commit(add=tuple(channel(i) for i in range(4))))
        for _ in range(COMMITS):
            self._step()
        if self.rng.random() < 0.5:
            self.store.close()
            self.settled = len(self.states) - 1
        self._fail(self.disk)
        self.disk.before_change = lambda: None

    def _perhaps_fail(self) -> None:
        if len(self.failures) < self.points and self.rng.random() < self.points / 120:
            self._fail(self.disk)

    def _fail(self, disk: LyingDisk) -> None:
        self._notice_settled()
        self.failures.append((disk.crash(self.rng), self.settled, len(self.states) - 1))

    def _notice_settled(self) -> None:
        if self.store is not None:
            on_disk = self.store.syncer.settled
            self.settled = max([self.settled, *(state for state, end in self._ends if end <= on_disk)])

    def _step(self) -> None:
        assert self.store is not None
        match self.rng.randint(0, 19):
            case 0:
                self.store.snapshot()
            case 1 | 2:
                self.store.syncer.sync()
                self.settled = len(self.states) - 1
            case 3:
                self._compact()
            case _:
                self._commit(random_commit(self.model, self.rng, self.rng.randint(0, 2)))

    def _commit(self, commit: Commit) -> None:
        assert self.store is not None
        self.model.apply(commit)
        self.states.append(self.model.copy().shown())
        state = len(self.states) - 1
        result = self.store.commit(commit)
        self._ends.append((state, result.number + 1))
        if self.options.durability is Durability.DISK:
            assert result.number < self.store.syncer.settled
            self.settled = state

    def _compact(self) -> None:
        assert self.store is not None
        for crowd in self.store.state.crowds(2):
            merged = self.model.copy()
            merged.state[crowd.key.fragment, crowd.key.operator, crowd.key.bucket].sort()
            self.states.append(merged.copy().shown())
            assert self.store.state.compact([crowd.key], sorted_rows) == 1
            self.model = merged


def found_after(life: Life, disk: LyingDisk, first: int, last: int) -> Model:
    """Opens what a power failure left, as it is on another disk, and checks it; the model of what is there."""
    disk = disk.crash(life.rng)
    store = Store.open(DIRECTORY, life.options, files=disk)
    shown = observed(store)
    assert any(shown == life.states[state] for state in range(last, first - 1, -1)), "not what was committed"
    check_accounts(store)
    # And goes on: what it writes now is there after the next failure, whatever comes back of what was lost.
    alive = DeliveryRecord("alive")
    store.commit(Commit(records=(alive,)))
    store.syncer.sync()
    after = observed(store)
    assert after == shown | {"records": shown["records"] | {("delivery", "alive"): alive}}
    again = Store.open(DIRECTORY, life.options, files=disk.crash(life.rng))
    assert observed(again) == after
    return model_of(shown)


def model_of(shown: dict[str, Any]) -> Model:
    """A model that shows this."""
    model = Model()
    for number, channel_ in shown["channels"].items():
        copy = model.channels[number] = _channel(channel_)
        copy.records = list(channel_["records"])
    model.state = {key: list(values) for key, values in shown["state"].items()}
    model.batches, model.versions = dict(shown["batches"]), dict(shown["versions"])
    model.counters, model.acknowledged = dict(shown["counters"]), dict(shown["acknowledged"])
    model.records = dict(shown["records"])
    return model


def _channel(shown: dict[str, Any]) -> Any:
    from tests.run.store.crash.model import ModelChannel

    found = ModelChannel(shown["ends"])
    found.head, found.tail = shown["bounds"]
    found.appended, found.consumed, _ = shown["tuples"]
    found.watermark, found.consumed_watermark = shown["watermarks"]
    return found


def test_a_store_opens_after_any_power_failure_with_all_that_was_settled() -> None:
    tried, seed = 0, SEED * 1_000_003
    disk, model = LyingDisk(), Model()
    while tried < POINTS:
        seed += 1
        life = Life(seed, disk, model, points=8)
        life.run()
        for failed, first, last in life.failures:
            tried += 1
            model = found_after(life, failed, first, last)
            disk = failed
        if len(model.channels) > 12 or life.rng.random() < 0.3:
            disk, model = LyingDisk(), Model()


class WithoutSync(LyingDisk):
    """A store that forgets to bring files on the disk."""

    def sync(self, descriptor: int) -> None:
        self.before_change()


class WithoutNames(LyingDisk):
    """A store that forgets to bring names on the disk."""

    def sync_directory(self, path: Path) -> None:
        self.before_change()


class WithoutEnds(LyingDisk):
    """A store that brings all but the end of files on the disk."""

    def sync(self, descriptor: int) -> None:
        self.before_change()
        file = self._open[descriptor]
        file.synced = bytes(file.content[:-64])


@pytest.mark.parametrize("planted", [WithoutSync, WithoutNames, WithoutEnds])
def test_faults_that_are_planted_are_found(planted: type[LyingDisk]) -> None:
    """The check can fail: what the store must not do is noticed within a few lives."""

    def lives() -> None:
        for seed in range(40):
            life = Life(seed, planted(), Model(), points=8)
            life.run()
            for failed, first, last in life.failures:
                found_after(life, failed, first, last)

    with pytest.raises((AssertionError, JournalError)):
        lives()
