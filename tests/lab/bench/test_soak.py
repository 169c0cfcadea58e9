"""Measures that a soak takes of processes, and the growth that it reports."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from pathlib import Path

import pytest

from lab.bench import bench, soak
from lab.bench.report import Report
from lab.bench.soak import Reading, reading
from lab.testbed.process import Process
from lab.testbed.world import Verdict

GOOD = Verdict(10, 0, 0, 0)


def report(readings: list[Reading], verdict: Verdict = GOOD) -> Report:
    return soak._report(100.0, readings, 1, 10, verdict)


def flat(at_s: float) -> Reading:
    return Reading(at_s, 500.0 + at_s % 3, 900.0, 20.0, 300, 200)


def test_a_run_that_stays_where_it_is_holds_and_says_its_slopes() -> None:
    found = report([flat(t) for t in range(0, 100, 5)])
    assert found.holds
    slopes = {f.name: f.measured for f in found.figures if f.name.endswith("slope")}
    assert slopes["threads, slope"] == 0
    assert set(slopes) == {f"{target.name}, slope" for target in soak.TARGETS}


@pytest.mark.parametrize("grows", ["python_mb", "java_mb", "disk_mb", "threads", "files"])
def test_whatever_grows_is_a_target_that_does_not_hold(grows: str) -> None:
    readings = [dataclasses.replace(flat(t), **{grows: round(1_000 * (1 + t / 50))}) for t in range(0, 100, 5)]
    missed = [target.name for target in report(readings).targets if not target.holds]
    assert len(missed) == 1


def test_growth_while_things_get_warm_is_not_counted() -> None:
    early = [Reading(t, 10.0 * t, 10.0 * t, 1.0, 10, 10) for t in range(0, 25, 5)]
    assert report([*early, *(flat(t) for t in range(25, 100, 5))]).holds


def test_results_that_are_lost_are_a_target_too() -> None:
    assert not report([flat(t) for t in range(0, 100, 5)], Verdict(10, 1, 0, 0)).holds


def test_processes_are_read_with_their_children(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(bytes(100_000))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "many.jsonl").write_bytes(bytes(10_000_000))
    script = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "print('up', flush=True); time.sleep(60)"
    )
    process = Process("sleeper", [sys.executable, "-c", script], tmp_path / "logs" / "log")
    process.start()
    try:
        while not process.has_said("up"):
            threading.Event().wait(0.01)
        found = reading(0.0, [process], tmp_path)
    finally:
        process.kill()
    assert found.threads == 2
    assert found.files >= 6
    assert 5 < found.python_mb < 200
    assert found.java_mb == 0
    assert 0.09 < found.disk_mb < 1
    assert os.getpid() != process.number


def test_only_a_soak_lasts_as_long_as_one_likes() -> None:
    assert bench("soak").run_for is not None
    assert bench("topology").run_for is None
