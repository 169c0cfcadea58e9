"""Random commits, repeats, snapshots, restarts, full disks and crashes against a model of dictionaries and lists."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meander.run.channels.base import Int64s
from meander.run.store.commit import Commit, CommitConflictError
from meander.run.store.journal import DiskFullError, Durability
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, check_accounts, observed
from tests.run.store.crash.commits import random_commit
from tests.run.store.crash.faults import Crash, FaultyFiles
from tests.run.store.crash.model import Model

SEEDS = st.integers(0, 2**32)


def sorted_rows(table: pa.Table, owners: Int64s) -> tuple[pa.Table, Int64s]:
    """A merge that keeps all rows of each partition, in order of value."""
    order = np.lexsort((np.asarray(table.column("k")), owners))
    return table.take(pa.array(order)), owners[order]


class StoreMachine(RuleBasedStateMachine):
    """The store must show what the model shows after every step."""

    @initialize(durability=st.sampled_from(Durability), segment_bytes=st.sampled_from([1500, 8000, 10**6]))
    def begin(self, durability: Durability, segment_bytes: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="meander-store-"))
        self.options = StoreOptions(
            durability, segment_bytes, segment_records=20, memory_budget_bytes=3000, sync_interval_s=None
        )
        self.files = FaultyFiles()
        self.store = Store.open(self.directory, self.options, files=self.files)
        self.model = Model()
        self.last: Commit | None = None
        self._commit(Commit(add=tuple(channel(i) for i in range(3))))

    def _commit(self, commit: Commit) -> None:
        self.store.commit(commit)
        self.model.apply(commit)
        self.last = commit if commit.writer else self.last

    def _reopen(self) -> None:
        with contextlib.suppress(Crash):
            self.store.close()
        self.files = FaultyFiles()
        self.store = Store.open(self.directory, self.options, files=self.files)

    @rule(seed=SEEDS, slot=st.integers(0, 2))
    def commit(self, seed: int, slot: int) -> None:
        self._commit(random_commit(self.model, random.Random(seed), slot))

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self) -> None:
        assert self.last is not None
        assert self.store.commit(self.last).repeated
        with pytest.raises(CommitConflictError, match="different content"):
            self.store.commit(replace(self.last, records=(*self.last.records, DeliveryRecord("other"))))

    @rule()
    def compact(self) -> None:
        crowded = [crowd.key for crowd in self.store.state.crowds(2)]
        assert self.store.state.compact(crowded, sorted_rows) == len(crowded)
        for key in crowded:
            self.model.state[key.fragment, key.operator, key.bucket].sort()

    @rule()
    def snapshot(self) -> None:
        self.store.snapshot()

    @rule()
    def reopen(self) -> None:
        self._reopen()

    @rule(seed=SEEDS, room=st.integers(0, 3000), snapshot=st.booleans())
    def disk_full(self, seed: int, room: int, snapshot: bool) -> None:
        commit = random_commit(self.model, random.Random(seed))
        self.files.room_bytes = room
        with contextlib.suppress(DiskFullError):
            if snapshot:
                self.store.snapshot()
        refused = False
        try:
            self.store.commit(commit)
        except DiskFullError:
            refused = True
        self.files.room_bytes = None
        if refused:
            assert observed(self.store) == self.model.shown()
            self.store.commit(commit)
        self.model.apply(commit)
        self.last = commit

    @rule(seed=SEEDS, calls=st.integers(0, 6), part=st.floats(0, 1), snapshot=st.booleans())
    def crash(self, seed: int, calls: int, part: float, snapshot: bool) -> None:
        """The process stops in the middle of a commit or a snapshot: the commit is there as a whole or not at all."""
        commit = random_commit(self.model, random.Random(seed))
        self.files.crash_at, self.files.written_part = self.files.calls + calls, part
        done = False
        try:
            if snapshot:
                self.store.snapshot()
            self.store.commit(commit)
            done = True
        except Crash:
            pass
        self._reopen()
        after = self.model.copy()
        after.apply(commit)
        if done or observed(self.store) == after.shown():
            self.model, self.last = after, commit

    @invariant()
    def shows_what_the_model_shows(self) -> None:
        assert observed(self.store) == self.model.shown()
        check_accounts(self.store)

    @invariant()
    def only_needed_segments_are_kept(self) -> None:
        self.store.syncer.sync()  # which others are, is known on the disk only then
        stats = self.store.stats()
        assert stats.disk_bytes >= stats.live_bytes or stats.live_bytes == 0
        assert stats.segments <= 2 + len({p.place.segment for p in self.store.payloads.by_number.values()})

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
