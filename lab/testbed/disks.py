"""Disks that can be full: the directory of a site on a small file system of its own. They need root on Linux.

Their content is copied to the place where they were when they are taken away, for inspection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

SIZE = "128m"
"""Of one disk. Free space on it costs nothing."""
PIECES = (1_000_000, 4_096, 1)
"""A disk is filled with smaller and smaller pieces, until not one byte more fits."""
FILLING = "filling"


def can_be_full() -> tuple[bool, str]:
    """Whether disks can be made here; if not, why."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False, "disks that can be full need Linux and root"
    with tempfile.TemporaryDirectory(prefix="meander-try-") as place:
        if not _mount(Path(place)):
            return False, "this machine does not allow mounts: no disk can be full"
        _unmount(Path(place))
    return True, ""


class Disks:
    """One for each place. `close` takes them away."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._places: list[Path] = []
        self.full: set[Path] = set()
        try:
            for place in places:
                place.mkdir(parents=True, exist_ok=True)
                if not _mount(place):
                    raise OSError(errno.EPERM, f"no disk can be made at {place}")
                self._places.append(place)
        except BaseException:
            self.close()
            raise

    def fill(self, place: Path) -> None:
        """From now on nothing more fits."""
        self.full.add(place)
        descriptor = os.open(place / FILLING, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in PIECES:
                piece = bytes(size)
                with contextlib.suppress(OSError):
                    while True:
                        os.write(descriptor, piece)
        finally:
            os.close(descriptor)

    def empty(self, place: Path) -> None:
        (place / FILLING).unlink(missing_ok=True)
        self.full.discard(place)

    def close(self) -> None:
        while self._places:
            place = self._places.pop()
            self.empty(place)
            kept = place.with_name(f"{place.name}.kept")
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(place, kept)
            _unmount(place)
            with contextlib.suppress(OSError):
                place.rmdir()
                kept.rename(place)


def _mount(place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "meander-testbed", str(place)]
    return shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0


def _unmount(place: Path) -> None:
    """Also when something still looks at it: it is gone then when that ends."""
    if subprocess.run(["umount", str(place)], capture_output=True).returncode:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)
