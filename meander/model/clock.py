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
from collections.abc import Callable
from pathlib import Path

VARIABLE = "MEANDER_CLOCK_FILE"
_OFF_MS = struct.Struct("<q")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000 + _off_ms()


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


def milliseconds_in(variable: str) -> Callable[[], int]:
    """The milliseconds in the file that a variable of the environment names, as they are now; 0 without one."""
    name = os.environ.get(variable)
    if not name:
        return lambda: 0
    with open(name, "rb") as file:
        found = mmap.mmap(file.fileno(), _OFF_MS.size, access=mmap.ACCESS_READ)
    return lambda: int(_OFF_MS.unpack_from(found)[0])


_off_ms = milliseconds_in(VARIABLE)
