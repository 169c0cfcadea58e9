"""The few system calls that the journal makes, in one place, so that a test can make any of them fail or stop."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

BUFFERS_PER_CALL = 512  # below the usual limit of 1024 buffers per gathering write
BYTES_PER_CALL = 512 * 1024
"""Larger writes make the kernel take larger free pages, which a virtual machine often has not touched yet: slower."""


class SystemFiles:
    """The real file system."""

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
        os.fdatasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Makes created and deleted names survive a power failure."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def map(self, path: Path) -> pa.Buffer:
        """The file's present bytes, mapped read-only. They stay readable after the file is deleted."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))

    def lock(self, path: Path) -> int | None:
        """Takes the lock of a directory for this process; None if another one holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor
