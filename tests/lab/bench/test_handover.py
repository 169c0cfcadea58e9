"""Scenes of `meander bench handover`: recorded moves where they are at hand, and what is compared."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from lab.bench.handover.bench import AHEAD, PREDICTED, STOP, figures, large, scenes
from lab.bench.handover.recorded import stays_s
from lab.bench.handover.scene import HandoverRun


def write_trace(folder: Path, metres_per_s: float, seconds: int) -> None:
    rows = ["time,position,lane,speed", "0.0,9000.0,1,50"]
    rows += [f"{t}.0,{(9_000 + metres_per_s * max(0, t - 61)) % 10_000:.1f},1,50" for t in range(1, seconds)]
    with gzip.open(folder / "speed_trace_1.csv.gz", "wt") as file:
        file.write("\n".join(rows) + "\n")


def test_a_vehicle_stays_at_each_station_for_as_long_as_it_drives_past_it(tmp_path: Path) -> None:
    write_trace(tmp_path, 25.0, 61 + 1_510)
    stays = stays_s(4, 10.0, tmp_path)
    assert len(stays) == 1_500 * 25 // 2_500 - 1
    assert stays == pytest.approx([10.0] * len(stays), abs=0.2)


def test_without_recorded_moves_there_is_no_scene_of_vehicles(tmp_path: Path) -> None:
    assert stays_s(4, 10.0, tmp_path) == ()
    assert "vehicle" not in scenes(quick=True, folder=tmp_path)
    write_trace(tmp_path, 25.0, 1_000)
    assert {"ring line", "vehicle"} == scenes(quick=True, folder=tmp_path).keys()
    assert scenes(quick=False, folder=tmp_path).keys() >= {"ring line", "vehicle", "16 MB", "128 MB"}


def test_large_states_are_of_the_size_that_they_are_called_by() -> None:
    for name, scene in large().items():
        assert scene.ring.state_bytes / 1e6 == pytest.approx(float(name.split()[0]), rel=0.05)
        assert scene.ring.state_bytes * 8 / 1e6 / scene.ring.link_mbps < scene.ring.dwell_s


def test_ratios_are_of_the_same_scene_with_and_without_prediction() -> None:
    def run(effect_s: float, gap_s: float) -> HandoverRun:
        times: dict[str, Any] = {
            name: [gap_s]
            for name in ("gaps_s", "quiet_gaps_s", "p50_s", "p95_s", "worst_s", "quiet_p50_s", "quiet_p95_s")
        }
        return HandoverRun(**times, effect_s=[effect_s], pause_s=[0.1], state_bytes=[1e6])

    ways = {STOP: run(2.0, 2.0), AHEAD: run(2.0, 0.2), PREDICTED: run(0.1, 0.1)}
    found = {figure.name: figure for figure in figures("ring line", ways)}
    about = "ring line: predicted, to copied ahead"
    assert found[f"{about}: from the move until in effect"].measured == pytest.approx(0.05)
    assert found[f"{about}: gap in the output"].measured == pytest.approx(0.5)
    assert found["ring line, predicted: results lost or double"].holds
