"""The wall clock of this process: coordinator, sites and hosts read the time of day only here.

Test beds can make it wrong: `MEANDER_CLOCK_FILE` names a file of eight bytes, the milliseconds by which it is off now.
It is read with every question, so a clock can also jump while the process runs. The times of Spark and of the log are
not shifted; nothing is decided by them.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "MEANDER_CLOCK_FILE"
_OFF_MS = struct.Struct("<q")


def wall_clock_ms() -> int:
    now_ms = time.time_ns() // 1_000_000
    return now_ms if _off is None else now_ms + int(_OFF_MS.unpack_from(_off)[0])


def set_off(path: Path, off_ms: int) -> None:
    """Lets the clocks that look at this file be wrong by so much."""
    if not path.exists():
        path.write_bytes(_OFF_MS.pack(off_ms))
        return
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, _OFF_MS.pack(off_ms), 0)
    finally:
        os.close(descriptor)


def _mapped(name: str | None) -> mmap.mmap | None:
    if not name:
        return None
    with open(name, "rb") as file:
        return mmap.mmap(file.fileno(), _OFF_MS.size, access=mmap.ACCESS_READ)


_off = _mapped(os.environ.get(VARIABLE))
