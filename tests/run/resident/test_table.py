"""A resident table gives what the store has, whatever happens to the state: added, dropped, merged, renamed, copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from meander.model.ids import FragmentId
from meander.run.channels.base import int64s
from meander.run.operators.state import StateColumn, StateTable
from meander.run.resident import runs, table
from meander.run.resident.table import Probe, ResidentTable
from meander.run.store.commit import Commit, StateAppend, StateCopy, StateDrop, StateRename
from meander.run.store.store import Store

SPEC = StateTable(
    "left", tuple(StateColumn(n, "BIGINT", pa.int64()) for n in ("k", "n")), consumed=False, watermark=False
)
FRAGMENTS = [FragmentId(f) for f in (1, 2, 3)]
BUCKETS = (0, 10, 20, 30)
OPERATOR = 16


class Checked:
    """A store with a resident table beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.number = directory, 0
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.directory)
        self.resident = ResidentTable(self.store.state, OPERATOR, SPEC, ["k"])

    def append(self, rng: np.random.Generator) -> None:
        """To a few partitions at once."""
        count = int(rng.integers(1, 30))
        cuts = np.sort(rng.choice([(f, b) for f in FRAGMENTS for b in BUCKETS], 3, replace=False), axis=0)
        cuts = np.unique(cuts, axis=0)
        lengths = np.bincount(rng.integers(0, len(cuts), count), minlength=len(cuts))
        rows = pa.table({"k": rng.integers(0, 6, count), "n": np.arange(self.number, self.number + count)})
        self.number += count
        append = StateAppend.sliced(rows, OPERATOR, int64s(cuts[:, 0]), int64s(cuts[:, 1]), int64s(lengths))
        self.store.commit(Commit(state_appends=(append,)))

    def trouble(self, rng: np.random.Generator) -> None:
        fragment, other = (int(f) for f in rng.choice(FRAGMENTS, 2, replace=False))
        bucket = int(rng.choice(BUCKETS))
        match int(rng.integers(0, 7)):
            case 0:
                self.store.commit(Commit(state_drops=(StateDrop.of(OPERATOR, [fragment], [bucket]),)))
            case 1:
                below = StateDrop.of(OPERATOR, [fragment], [40], below=True)
                self.store.commit(Commit(state_drops=(below,)))
            case 2:
                drop = StateDrop.of(OPERATOR, [other], [40], below=True)
                rename = StateRename(FragmentId(fragment), OPERATOR, FragmentId(other), OPERATOR)
                self.store.commit(Commit(state_drops=(drop,), state_renames=(rename,)))
            case 3:
                self.store.commit(Commit(state_copies=(StateCopy(FragmentId(fragment), FragmentId(other)),)))
            case 4:
                self.store.close()
                self.open()
            case _:
                crowded = [crowd.key for crowd in self.store.state.crowds(2)]
                self.store.state.compact(crowded, lambda rows, owners: (rows, owners))

    def check(self, rng: np.random.Generator) -> None:
        """All rows with the keys are there once, and no row that has another key or is not in the store."""
        chosen = sorted(rng.choice(FRAGMENTS, 2, replace=False).tolist())
        fragments = [FragmentId(f) for f in chosen]
        keys = rng.integers(0, 8, 3)
        first, stop = int64s([0, 10]), int64s([31, 31])
        probes = [Probe(np.array([f] * 3, np.int64), [pa.chunked_array([pa.array(keys)])]) for f in fragments]
        found = self.resident.find(fragments, first, stop, probes)
        given = {(f, k, n) for f, k, n in zip(*(found.column(i).to_pylist() for i in range(3)), strict=True)}
        assert len(given) == len(found)
        reading = self.store.state.read(fragments, OPERATOR, [0, 0], [31, 31])
        if reading.table is None:
            assert not given
            return
        owners = reading.fragments[reading.owners].tolist()
        buckets = reading.buckets[reading.owners].tolist()
        kept = list(zip(owners, *(reading.table.column(i).to_pylist() for i in range(2)), buckets, strict=True))
        low = dict(zip(fragments, first.tolist(), strict=True))
        assert given == {(f, k, n) for f, k, n, b in kept if k in keys and b >= low[FragmentId(f)]}


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_of_a_key_are_those_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(table, "FORGET_EVERY", 3)
    monkeypatch.setattr(runs, "LARGEST_ROWS", 40)
    rng, checked = np.random.default_rng(seed), Checked(tmp_path / "store")
    for _ in range(120):
        checked.append(rng)
        if rng.random() < 0.4:
            checked.trouble(rng)
        if rng.random() < 0.1:
            checked.resident.spill(tmp_path / "files")
        checked.check(rng)
    checked.store.close()


def test_buckets_that_time_has_passed_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FORGET_EVERY", 1)
    checked, rng = Checked(tmp_path / "store"), np.random.default_rng(0)
    for _ in range(20):
        checked.append(rng)
    checked.check(rng)
    assert checked.resident.bytes > 0
    for fragment in FRAGMENTS:
        checked.store.commit(Commit(state_drops=(StateDrop.of(OPERATOR, [fragment], [40], below=True),)))
    checked.check(rng)
    assert checked.resident.bytes == 0
    checked.store.close()
