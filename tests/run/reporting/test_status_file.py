"""The status of a run as a file: whole at any moment, and honest about who is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from meander.model.errors import InputError
from meander.run.delivery.delivery import DeliveryMetrics
from meander.run.delivery.latency import Percentiles
from meander.run.host import HostStatus
from meander.run.reporting.status_file import NAME, STALE_S, RunPhase, StatusFile, announce, read_status
from meander.run.slots import StepTotals
from meander.run.step.compaction import CompactionMetrics
from meander.run.store.store import Store

NAN = float("nan")


@pytest.fixture
def status(tmp_path: Path) -> HostStatus:
    store = Store.open(tmp_path / "store")
    stats = store.stats()
    store.close()
    return HostStatus(
        healthy=True,
        problems=(),
        alive=True,
        slots=("a",),
        fragments=3,
        paused={},
        totals=StepTotals(steps=7, seconds=0.5),
        pending_tuples=2,
        state_bytes=100,
        store=stats,
        compaction=CompactionMetrics(),
        rebindings=0,
        ingest=None,
        delivery=DeliveryMetrics(5, {}, {"slow": Percentiles(0, NAN, NAN, NAN, 0.0)}),
    )


def test_a_run_is_seen_while_it_runs_and_afterwards_as_ended(tmp_path: Path, status: HostStatus) -> None:
    assert read_status(tmp_path) is None
    announce(tmp_path)
    seen = read_status(tmp_path)
    assert seen is not None
    assert (seen.running, seen.phase, seen.status) == (True, RunPhase.STARTING, None)
    with StatusFile(tmp_path, lambda: status) as shown:
        seen = read_status(tmp_path)
        assert seen is not None
        assert (seen.running, seen.phase, seen.process) == (True, RunPhase.RUNNING, os.getpid())
        assert seen.status is not None
        assert seen.status["totals"]["steps"] == 7
        assert seen.status["delivery"]["latency"]["slow"]["p50_ms"] is None
        shown.phase = RunPhase.DRAINING
        shown.write()
        seen = read_status(tmp_path)
        assert seen is not None
        assert (seen.running, seen.phase) == (True, RunPhase.DRAINING)
    seen = read_status(tmp_path)
    assert seen is not None
    assert (seen.running, seen.phase) == (False, RunPhase.ENDED)


def test_a_process_that_is_gone_or_silent_does_not_run(tmp_path: Path, status: HostStatus) -> None:
    StatusFile(tmp_path, lambda: status).write()
    silent = read_status(tmp_path, now=time.time() + STALE_S + 1)
    assert silent is not None
    assert not silent.running
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    content = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(content | {"process": child.pid}))
    killed = read_status(tmp_path)
    assert killed is not None
    assert (killed.running, killed.phase) == (False, RunPhase.RUNNING)


def test_a_reader_never_sees_half_a_status(tmp_path: Path, status: HostStatus) -> None:
    large = replace(status, problems=("x" * 200_000,))
    stop = threading.Event()
    file = StatusFile(tmp_path, lambda: large)

    def write() -> None:
        while not stop.is_set():
            file.write()

    file.write()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [read_status(tmp_path) for _ in range(100)]
    finally:
        stop.set()
        writer.join()
    assert all(seen and seen.status and len(seen.status["problems"][0]) == 200_000 for seen in found)
    assert [p.name for p in tmp_path.iterdir() if "status" in p.name] == [NAME]


def test_a_status_that_cannot_be_written_ends_nothing(tmp_path: Path, status: HostStatus) -> None:
    with StatusFile(tmp_path / "gone", lambda: status):
        pass
    assert not (tmp_path / "gone").exists()


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("[]")
    with pytest.raises(InputError, match="this is not the status of a run"):
        read_status(tmp_path)
