"""Steps that read only the rows of state that new tuples can meet give the oracle's output, within any memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.channels.base import int64s
from meander.run.execution.runner import PlainRunner
from meander.run.resident import resident, runs
from meander.run.resident.resident import ResidentState
from meander.run.resident.table import ResidentTable
from meander.run.store.commit import Commit, StateAppend
from meander.run.store.store import Store
from tests.run.harness import STREAMS, Plane, queries, rows_of
from tests.run.resident.test_partners import stage_of

JOIN = "SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s"
SEQUENCE = "SELECT a.id, b.mm FROM cars AS a, rain AS b MATCH a THEN b WITHIN 1 s WHERE a.road = b.road AND a.id > 0"
ROWS = 300


@pytest.fixture
def _found_by_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "LEAST_ROWS", 0)
    monkeypatch.setattr(resident, "FEW", 0)


@pytest.mark.usefixtures("_found_by_keys")
def test_what_is_found_is_all_that_is_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LARGEST_ROWS", 32)
    wanted = queries(f"CREATE QUERY j AS {JOIN} INTO one; CREATE QUERY s AS {SEQUENCE} INTO two;")
    plane, rng = Plane(tmp_path / "plane", PlainRunner(spark), wanted), np.random.default_rng(3)
    plane.stepper.resident._budget_bytes = 100
    for moment in range(4):
        for stream in STREAMS:
            times = moment * 400 + np.sort(rng.integers(0, 400, 15))
            plane.enter(stream, STREAMS[stream].nodes[0], rows_of(stream, rng, times))
        plane.step()
    plane.finish()
    found = plane.compare(spark)
    assert {name: c for name, c in found.items() if not c.equal} == {}
    assert min(c.expected for c in found.values()) > 50
    assert plane.stepper.resident.readings > 4


class Remembered:
    """The left state of a join with rows in it, and the state as it is found by keys."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 0.0
        self.stage = stage_of(JOIN)
        self.store = Store.open(directory / "store")
        spec = self.stage.states[0]
        columns = {n: pa.array(np.arange(ROWS) % 7).cast(spec.schema.field(n).type) for n in spec.names}
        append = StateAppend.sliced(pa.table(columns), 0, int64s([5]), int64s([0]), int64s([ROWS]))
        self.store.commit(Commit(state_appends=(append,)))
        self.resident = ResidentState(self.store.state, directory / "files", 1 << 30, lambda: self.now_s)

    def read(self, new: int) -> pa.Table | None:
        """With so many new tuples on the other side."""
        cars, rain = (schema.empty_table() for schema in self.stage.frame_schemas[:2])
        given = {n: pa.array(np.arange(new) % 5).cast(rain.schema.field(n).type) for n in rain.column_names}
        given["_fragment"] = pa.array(np.full(new, 5, np.int32))
        tables = [cars, pa.table(given, schema=rain.schema)]
        return self.resident.read(self.stage, 0, 0, tables, [5], int64s([0]), int64s([1]))  # type: ignore[list-item]


def test_little_state_and_large_batches_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = Remembered(tmp_path)
    assert remembered.read(2) is None
    monkeypatch.setattr(resident, "LEAST_ROWS", ROWS)
    assert remembered.read(ROWS) is None
    rows = remembered.read(2)
    assert rows is not None
    assert set(rows.column("sc2").to_pylist()) == {"0", "1"}
    assert len(rows) == len([n for n in range(ROWS) if n % 7 < 2])
    assert rows.schema.equals(remembered.stage.frame_schemas[2])


@pytest.mark.usefixtures("_found_by_keys")
def test_what_no_step_reads_any_more_is_given_up(tmp_path: Path) -> None:
    remembered = Remembered(tmp_path)
    assert remembered.read(3) is not None
    remembered.now_s = resident.UNUSED_S - 1
    remembered.resident.evict_unused()
    assert remembered.resident.bytes > 0
    remembered.now_s += 1
    remembered.resident.evict_unused()
    assert remembered.resident.bytes == 0
    assert remembered.read(3) is not None


@pytest.mark.usefixtures("_found_by_keys")
def test_a_full_disk_costs_memory_and_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ResidentTable, directory: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ResidentTable, "spill", full)
    remembered = Remembered(tmp_path)
    remembered.resident._budget_bytes = 0
    first = remembered.read(3)
    again = remembered.read(3)
    assert first is not None
    assert again is not None
    assert first.equals(again)
