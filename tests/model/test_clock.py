"""The wall clock, right and wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from meander.model.clock import VARIABLE, set_off, wall_clock_ms
from meander.model.durable_files import SLOW_DISK

ASK = (
    "import sys\nfrom meander.model.clock import wall_clock_ms\nfor _ in sys.stdin: print(wall_clock_ms(), flush=True)"
)
HOUR_MS = 3_600_000


def test_the_clock_is_the_machines() -> None:
    assert abs(wall_clock_ms() - time.time() * 1000) < 60_000


def test_the_clock_of_a_process_is_off_by_what_its_file_says_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    set_off(path, HOUR_MS)
    environment = {**os.environ, VARIABLE: str(path)}
    with subprocess.Popen(
        [sys.executable, "-c", ASK], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for hours in (1, -2, 0):
            set_off(path, hours * HOUR_MS)
            child.stdin.write("\n")
            child.stdin.flush()
            off_ms = int(child.stdout.readline()) - wall_clock_ms()
            assert abs(off_ms - hours * HOUR_MS) < HOUR_MS / 10
        child.stdin.close()


def test_a_disk_that_is_made_slow_is_slow_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    set_off(path, 0)
    script = (
        "import os, sys, time; from meander.model.durable_files import Files\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "for _ in sys.stdin:\n"
        "    began = time.monotonic(); Files().sync(file); print(time.monotonic() - began, flush=True)\n"
    )
    environment = {**os.environ, SLOW_DISK: str(path)}
    command = [sys.executable, "-c", script, str(tmp_path / "file")]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        set_off(path, 1_500)
        process.stdin.write("\n")
        process.stdin.flush()
        assert float(process.stdout.readline()) >= 1.5
        process.stdin.close()
