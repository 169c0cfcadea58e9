"""Recorded traces become the streams of the road; without them, the error says what to set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest

from lab.workloads import tcep as road
from lab.workloads.tcep_traces import DATA, files, recorded
from meander.model.errors import InputError
from meander.run.frames import arrow_schema


def check(tables: dict[str, pa.Table], seconds: int) -> None:
    assert set(tables) == set(road.streams())
    for name, stream in road.streams().items():
        assert tables[name].schema == arrow_schema(stream.schema)
        times = tables[name].column("ts").to_numpy()
        assert (np.diff(times) == 1000).all()
        assert len(times) == seconds


@pytest.mark.skipif(not files(), reason=f"no vehicle traces in {DATA}; set MEANDER_DATA to the folder above traces")
def test_recorded_vehicles_drive_on_every_stream() -> None:
    tables = recorded(120)
    check(tables, 120)
    speeds = np.concatenate([t.column("speed").to_numpy() for n, t in tables.items() if n.startswith("speed")])
    assert speeds.min() >= 0
    assert 20 < np.median(speeds) < 150
    moved = tables[road.speed_stream(1, 1)].column("position").to_numpy()
    assert (np.diff(moved) >= 0).all()


def test_a_trace_shared_by_several_vehicles_is_driven_one_behind_the_other(tmp_path: Path) -> None:
    time = np.arange(0, 300, 0.5)
    driven = np.maximum(time - 60, 0)
    columns = {"time": time, "position": driven, "lane": np.full(len(time), 500.0), "speed": 50 + driven / 10}
    pc.write_csv(pa.table(columns), pa.CompressedOutputStream(str(tmp_path / "speed_trace_1.csv.gz"), "gzip"))
    tables = recorded(20, folder=tmp_path)
    check(tables, 20)
    first, second = (tables[road.speed_stream(1, n)].column("position").to_numpy() for n in (1, 2))
    assert np.allclose(second - first, 7.0)
    assert tables[road.density_stream(1)].column("density").to_numpy()[0] == pytest.approx(1800 / 52.5, rel=0.01)
    with pytest.raises(InputError, match="too early"):
        recorded(300, folder=tmp_path)


def test_without_traces_the_error_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MEANDER_DATA"):
        recorded(folder=tmp_path)
