"""The copy of a coordinator's directory that a standby keeps: store, files and ledger, all of the same round."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.standby.rounds import PAGE
from meander.model.durable_files import FILES
from meander.model.errors import InputError
from meander.run.store.mirror import Mirror

OWN = ("meander.toml",)
"""Files that a standby may have of its own."""


class StandbyCopy:
    """Not for several threads."""

    def __init__(self, home: CoordinatorDirectory, segments: Mapping[str, Any]) -> None:
        """`segments` are how far the store was in the last whole round."""
        self._home = home
        self._mirror = Mirror(home.host / "store")
        self.segments = {int(s): int(size) for s, size in segments.items()}
        self._offered: dict[int, int] | None = None
        self._incarnation = ""
        self._offer: str | None = None
        self._files: dict[str, Any] = {}
        self._ledger, self._version, self._is_changed = bytearray(), 0, False
        self._kept = {name for name in OWN if (home.directory / name).exists()}

    def close(self) -> None:
        self._mirror.close()

    def has(self) -> dict[str, Any]:
        """The extent of all that is here, as the coordinator is told."""
        extents = self._mirror.extents
        store: dict[str, Any] = {
            "has": {str(s): n for s, n in extents.items()},
            "incarnation": self._incarnation,
            "offer": self._offer,
        }
        if not self._incarnation and extents:
            store["checksum"] = self._mirror.checksum(max(extents))
        self._offer, self._offered = None, None
        return {"store": store, "files": self._files, "ledger": self._version}

    def take(self, head: Mapping[str, Any], data: bytes) -> None:
        """One piece of a round."""
        if "segments" in head:
            for segment in head["anew"]:
                self._mirror.begin_anew(int(segment))
            self._incarnation = str(head["incarnation"])
            self._offered = {int(s): int(size) for s, size in head["segments"].items()}
        elif "segment" in head:
            self._mirror.write(int(head["segment"]), int(head["offset"]), data)
        elif "file" in head:
            self._write(str(head["file"]), int(head["offset"]), data, begins=bool(head.get("begins")))
        elif "files" in head:
            for name in self._files.keys() - head["files"].keys():
                self._path(name).unlink(missing_ok=True)
            self._files = dict(head["files"])
        elif "pages" in head:
            for index, at in enumerate(head["pages"]):
                self._put(int(at), data[index * PAGE : (index + 1) * PAGE])
        elif "ledger" in head:
            self._end_ledger(int(head["ledger"]), int(head["size"]))

    def end(self, offer: str | None) -> bool:
        """The round has ended; says whether all of it is here."""
        extents = self._mirror.extents
        if offer is None or self._offered is None:
            return False
        if any(extents.get(segment, 0) < size for segment, size in self._offered.items()):
            return False
        self._offer, self.segments = offer, self._offered
        return True

    def tidy(self) -> None:
        """Drops what the last whole round has not any more."""
        self._mirror.complete(list(self.segments))

    # ---------------------------------------------------------------- files and ledger

    def _path(self, name: str) -> Path:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise InputError(f"the coordinator names a file {name!r}, which would be outside of the directory")
        return self._home.directory / path

    def _write(self, name: str, offset: int, data: bytes, *, begins: bool) -> None:
        if name in self._kept:
            return
        path = self._path(name)
        if begins:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if begins:
                os.ftruncate(descriptor, offset)
            os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)

    def _put(self, at: int, page: bytes) -> None:
        if len(self._ledger) < at + len(page):
            self._ledger.extend(bytes(at + len(page) - len(self._ledger)))
        self._ledger[at : at + len(page)] = page
        self._is_changed = True

    def _end_ledger(self, version: int, size: int) -> None:
        if len(self._ledger) < size:
            raise InputError("the coordinator's ledger did not come as a whole")
        if self._is_changed or version != self._version:
            del self._ledger[size:]
            for end in ("-wal", "-shm"):
                self._home.ledger.with_name(f"{self._home.ledger.name}{end}").unlink(missing_ok=True)
            FILES.replace(self._home.ledger, bytes(self._ledger))
        self._version, self._is_changed = version, False

    # ---------------------------------------------------------------- taking over

    def is_whole(self) -> bool:
        """Whether the last whole round is still here."""
        extents = self._mirror.extents
        there = all(extents.get(segment, 0) >= size for segment, size in self.segments.items())
        return bool(self.segments) and there and self._mirror.is_whole and self._home.exists

    def cut(self) -> None:
        """Lets the store end where the last whole round did: files and ledger know nothing of what came later."""
        self._mirror.close()
        for segment in self._mirror.extents:
            path = self._mirror.path(segment)
            if segment not in self.segments:
                path.unlink()
            elif path.stat().st_size > self.segments[segment]:
                os.truncate(path, self.segments[segment])
