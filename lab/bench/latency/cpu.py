"""The processor time of this process and all that it started, Java and Python workers included."""

from __future__ import annotations

import os
from pathlib import Path

PROCESSES = Path("/proc")
TICKS_S = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Seconds so far."""
    times: dict[int, tuple[int, float]] = {}
    for path in PROCESSES.iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            times[int(path.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_S
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in mine} - mine:
        mine |= more
    return sum(times[pid][1] for pid in mine if pid in times)
