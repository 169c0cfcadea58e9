"""A mirror of another store's journal: the same segments, byte by byte, written in the order in which they grew.

It is a store's directory like any other: opened as one, it is what the other store was at its last whole record. While
it is a mirror nobody opens it, so it costs the writing and no memory.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from meander.run.store.journal import JournalError, refusal_of
from meander.run.store.mapped_files import SystemFiles

_NAME = re.compile(r"journal-(\d{10})\.seg")
_BLOCK = 1 << 20


def checksum_of(data: Any, checksum: int = 0) -> int:
    """The checksum by which two ends compare what they have, in as many parts as one likes."""
    return zlib.crc32(memoryview(data).cast("B"), checksum)


class Mirror:
    """Not for several threads."""

    def __init__(self, directory: Path, files: SystemFiles | None = None) -> None:
        self.directory, self._files = directory, files or SystemFiles()
        self._open: tuple[int, int] | None = None
        """The segment that grows now, and its file."""
        self._sizes = {int(m[1]): p.stat().st_size for p in self._paths() if (m := _NAME.fullmatch(p.name))}

    def _paths(self) -> list[Path]:
        return sorted(self.directory.iterdir()) if self.directory.is_dir() else []

    @property
    def is_whole(self) -> bool:
        """Whether it was complete once, and nothing that it had was taken back since."""
        return bool(self._sizes) and not self._mark.exists()

    @property
    def _mark(self) -> Path:
        return self.directory / "incomplete"

    def complete(self, segments: Collection[int]) -> None:
        """It has all of these segments: others are dropped."""
        for segment in self._sizes.keys() - set(segments):
            self._drop(segment)
        self._mark.unlink(missing_ok=True)

    @property
    def extents(self) -> dict[int, int]:
        """How far each segment is here."""
        return dict(sorted(self._sizes.items()))

    def path(self, segment: int) -> Path:
        return self.directory / f"journal-{segment:010d}.seg"

    def write(self, segment: int, offset: int, data: Any) -> None:
        """Adds bytes where a segment ends; those that are not next are refused."""
        if offset != self._sizes.get(segment, 0):
            raise JournalError(f"segment {segment} of a replica ends at {self._sizes.get(segment, 0)}, not at {offset}")
        try:
            if not self._sizes:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._mark.touch()
            view = memoryview(data).cast("B")
            descriptor = self._descriptor(segment)
            while len(view):
                count = self._files.write(descriptor, [view], offset)
                offset, view = offset + count, view[count:]
        except OSError as problem:  # what was written of it is written again
            raise refusal_of(problem, self.directory) from problem
        self._sizes[segment] = offset

    def begin_anew(self, segment: int) -> None:
        """Drops what is here of a segment that is to come again."""
        self._mark.touch()
        self._drop(segment)

    def _drop(self, segment: int) -> None:
        self._let_go()
        self._files.unlink(self.path(segment))
        self._sizes.pop(segment, None)

    def checksum(self, segment: int) -> int:
        """The checksum of all that is here of a segment."""
        found, left = 0, self._sizes.get(segment, 0)
        if not left:
            return 0
        with self.path(segment).open("rb") as file:
            while left and (block := file.read(min(_BLOCK, left))):
                found, left = checksum_of(block, found), left - len(block)
        return found

    def read(self, segment: int, offset: int, length: int) -> bytes:
        """Bytes of a segment, for one who takes the replica over."""
        with self.path(segment).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def _descriptor(self, segment: int) -> int:
        if self._open is None or self._open[0] != segment:
            self._let_go()
            path = self.path(segment)
            self._open = segment, self._files.open(path) if path.exists() else self._files.create(path)
        return self._open[1]

    def _let_go(self) -> None:
        if self._open is not None:
            self._files.close(self._open[1])
            self._open = None

    def close(self) -> None:
        self._let_go()
