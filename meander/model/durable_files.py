"""The file layer: the few system calls with which anything durable is written, in one place.

So a test can put another disk under it: one that fails, fills up, or loses at a power failure what was not synced.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meander.model.clock import milliseconds_in

BUFFERS_PER_CALL = 512  # below the usual limit of 1024 buffers per gathering write
BYTES_PER_CALL = 512 * 1024
"""Larger writes make the kernel take larger free pages, which a virtual machine often has not touched yet: slower."""

SLOW_DISK = "MEANDER_SLOW_DISK_FILE"
"""Names a file of eight bytes, as that of the clock: by how many milliseconds each sync takes longer, in test beds."""
_slower_ms = milliseconds_in(SLOW_DISK)


class Files:
    """The real file system."""

    def make_directory(self, path: Path) -> None:
        """Makes a directory and those above it, and lets their names survive a power failure."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in missing:
            self.sync_directory(each.parent)

    def sizes(self, directory: Path) -> dict[str, int]:
        """The files of a directory by name, with their sizes."""
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def create(self, path: Path) -> int:
        """Opens an empty file for reading and writing, new or emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        """Writes a prefix of the buffers at `offset`; says how many bytes."""
        chosen: list[Any] = []
        room = BYTES_PER_CALL
        for buffer in buffers[:BUFFERS_PER_CALL]:
            chosen.append(buffer if len(buffer) <= room else memoryview(buffer)[:room])
            room -= len(buffer)
            if room <= 0:
                break
        return os.pwritev(descriptor, chosen, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Returns when the file's content and size are on the disk; its name is not meant."""
        if slower_ms := _slower_ms():
            time.sleep(slower_ms / 1000)
        os.fdatasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Makes created, renamed and deleted names survive a power failure."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        os.replace(path, to)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def lock(self, path: Path) -> int | None:
        """Takes the lock of a directory for this process; None if another one holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def replace(self, path: Path, content: bytes) -> None:
        """Gives a file another content as a whole, on the disk when this returns: the old one or the new one is there,
        whenever the power fails."""
        partial = path.with_name(f"{path.name}.new")
        descriptor = self.create(partial)
        try:
            done = 0
            while done < len(content):
                done += self.write(descriptor, [memoryview(content)[done:]], done)
            self.sync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(partial, path)
        self.sync_directory(path.parent)


FILES = Files()
"""The one that everything uses that was not given another."""
