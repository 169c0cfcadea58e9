"""Sorted runs give exactly the rows of the hashes that are asked for, merged, split and in files alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.run.resident import runs as module
from meander.run.resident.runs import Run, Runs


def rows_of(start: int, hashes: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + len(hashes)), pa.int64()), "h": pa.array(hashes, pa.int64())})


def found(runs: Runs, wanted: list[int]) -> list[int]:
    sought = np.unique(np.array(wanted, np.uint64))
    parts = [rows for run in runs.runs if (rows := run.find(sought)) is not None]
    return sorted(n for part in parts for n in part.column("n").to_pylist())


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), max_size=12), st.lists(st.integers(0, 11)))
def test_rows_are_found_however_they_came(batches: list[list[int]], wanted: list[int]) -> None:
    runs, all_hashes = Runs(), list[int]()
    for batch in batches:
        runs.add(np.array(batch, np.uint64), rows_of(len(all_hashes), batch))
        all_hashes += batch
    assert found(runs, wanted) == [n for n, h in enumerate(all_hashes) if h in wanted]


def test_there_are_few_runs_and_none_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_ROWS", 64)
    runs = Runs()
    for start in range(0, 600, 3):
        runs.add(np.arange(start, start + 3, dtype=np.uint64), rows_of(start, [start, start + 1, start + 2]))
        assert all(len(run.rows) <= 64 for run in runs.runs)
    assert len(runs.runs) <= 600 / 48 + 4
    runs.add(np.arange(200, dtype=np.uint64), rows_of(1000, list(range(200))))
    assert all(len(run.rows) <= 64 for run in runs.runs)
    assert found(runs, [5, 199]) == [5, 199, 1005, 1199]


def test_what_went_to_files_is_found_as_before_and_counts_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_ROWS", 64)
    runs = Runs()
    for start in range(0, 256, 32):
        runs.add(np.arange(start, start + 32, dtype=np.uint64) % 10, rows_of(start, [0] * 32))
    before, memory = found(runs, [3, 7]), runs.bytes
    runs.spill(tmp_path / "files")
    assert runs.bytes < memory
    assert any(run.is_mapped for run in runs.runs)
    assert list((tmp_path / "files").iterdir()) == []
    assert found(runs, [3, 7]) == before
    runs.add(np.array([3], np.uint64), rows_of(999, [3]))
    assert found(runs, [3, 7]) == [*before, 999]


def test_one_run_keeps_its_rows_in_place() -> None:
    run = Run.of(np.array([5, 1, 5], np.uint64), rows_of(0, [5, 1, 5]))
    rows = run.find(np.array([5], np.uint64))
    assert rows is not None
    assert rows.column("n").to_pylist() == [0, 2]
    assert run.find(np.array([2], np.uint64)) is None
