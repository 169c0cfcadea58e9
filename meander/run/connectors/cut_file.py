"""A file that grows, and is cut back to its acknowledged length when it is opened again after a crash."""

from __future__ import annotations

import os
from pathlib import Path

from meander.run.connectors.base import ConnectorError


class CutFile:
    """Appends bytes; `length` is what to acknowledge."""

    def __init__(self, path: Path, length: int) -> None:
        """Opens or creates the file and drops everything behind `length`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        size = os.fstat(self._descriptor).st_size
        if size < length:
            os.close(self._descriptor)
            raise ConnectorError(
                f"{path} is {size} bytes long, but {length} were written; put the file back, or use another path"
            )
        os.ftruncate(self._descriptor, length)
        self.length = length

    def append(self, data: bytes) -> int:
        """Writes all of it; says how long the file is now. On failure the length stays as it was."""
        at, view = self.length, memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, at)
            at, view = at + written, view[written:]
        self.length = at
        return at

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
