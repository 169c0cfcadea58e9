"""The memory of this process, now and at its peak."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Resident memory now; where the system does not say, the most there has been."""
    return _status("VmRSS") or _peak_of_usage()


def peak_resident_mb() -> float:
    """The most resident memory since this program started."""
    return _status("VmHWM") or _peak_of_usage()


def _status(key: str) -> float:
    if not _STATUS.exists():
        return 0.0
    line = next((line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:")), "")
    return float(line.split()[1]) * 1024 / 1e6 if line else 0.0


def _peak_of_usage() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
