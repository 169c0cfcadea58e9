"""A file system that stops, fills up or fails where a test wants it to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from meander.run.store.mapped_files import SystemFiles

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone: nothing may handle this."""


class FaultyFiles(SystemFiles):
    """Counts the calls that change something. `crash_at` stops at that call, after a part of a write was done."""

    def __init__(self) -> None:
        self.calls = 0
        self.crash_at: int | None = None
        self.written_part = 0.0
        self.room_bytes: int | None = None
        self.failing: dict[str, int] = {}
        self.crashed = False

    def _step(self, name: str, action: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        if self.crashed:
            raise Crash(f"{name} after the crash")
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))
        if self.calls == self.crash_at:
            self.crashed = True
            if torn is not None:
                torn()
            raise Crash(name)
        self.calls += 1
        return action()

    def create(self, path: Path) -> int:
        return self._step("create", lambda: super(FaultyFiles, self).create(path))

    def write(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        data = b"".join(bytes(b) for b in buffers)

        def part() -> None:
            os.pwrite(descriptor, data[: int(len(data) * self.written_part)], offset)

        def whole() -> int:
            if self.room_bytes is None:
                return super(FaultyFiles, self).write(descriptor, buffers, offset)
            if self.room_bytes == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = os.pwrite(descriptor, data[: self.room_bytes], offset)
            self.room_bytes -= count
            return count

        return self._step("write", whole, part)

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate", lambda: super(FaultyFiles, self).truncate(descriptor, size))

    def sync(self, descriptor: int) -> None:
        if not self.crashed:  # a store that is closed after its crash leaves nothing behind
            self._step("sync", lambda: None)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory", lambda: None)

    def unlink(self, path: Path) -> None:
        self._step("unlink", lambda: super(FaultyFiles, self).unlink(path))
