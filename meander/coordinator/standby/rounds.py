"""Rounds: all that a standby lacks of the coordinator's directory, as a stream, in an order in which it fits together.

First the store's journal, up to one moment; then files such as results, which hold at least what the store says of
them; then the ledger, as pages that differ from the last ones. A round counts once all of it has arrived. Each piece is
a line of JSON, which says how many bytes follow it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from meander.coordinator.backup.capture import other_files
from meander.model.errors import InputError

PAGE = 4096
PIECE_BYTES = 1_000_000
LONGEST_HEAD = 4_000_000
GROWING = ("results/", "host/")
"""Where files only grow, or are cut: what is there already need not come again."""


def piece(head: Mapping[str, Any], data: bytes = b"") -> bytes:
    """One piece of a stream."""
    return json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data


def pieces(source: IO[bytes]) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """The pieces of a stream, as they come."""
    while line := source.readline(LONGEST_HEAD):
        try:
            head = json.loads(line)
            size = int(head["bytes"])
        except (ValueError, KeyError, TypeError):
            raise InputError(
                "the coordinator's answer is not understood; update the standby or the coordinator"
            ) from None
        if size > PIECE_BYTES + PAGE:
            raise InputError("the coordinator's answer has a piece that is too large")
        data = source.read(size)
        if len(data) < size:
            return
        yield head, data


# ---------------------------------------------------------------- files


def files_lacking(base: Path, has: Mapping[str, Any]) -> Iterator[bytes]:
    """The pieces that bring files up to date; `has` has sizes and times of change as they were told before."""
    told: dict[str, list[int]] = {}
    for path in other_files(base):
        try:
            found = path.stat()
            name = path.relative_to(base).as_posix()
            size, changed = found.st_size, found.st_mtime_ns
            told[name] = [size, changed]
            before = has.get(name)
            if before == [size, changed]:
                continue
            grows = before is not None and name.startswith(GROWING) and before[0] < size
            yield from _file_pieces(path, name, before[0] if grows and before is not None else 0, size)
        except FileNotFoundError:  # such as a result file that was too old
            told.pop(path.relative_to(base).as_posix(), None)
    yield piece({"files": told})


def _file_pieces(path: Path, name: str, first: int, size: int) -> Iterator[bytes]:
    yield piece({"file": name, "offset": first, "begins": True})
    with path.open("rb") as source:
        source.seek(first)
        left = size - first
        while left and (data := source.read(min(PIECE_BYTES, left))):
            yield piece({"file": name, "offset": size - left}, data)
            left -= len(data)


# ---------------------------------------------------------------- the ledger


class LedgerPages:
    """The ledger at the last round, so that the next one has the pages that changed only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last, self._version = b"", 0

    def lacking(self, has: int) -> Iterator[bytes]:
        """The pieces that bring a copy of version `has` up to date."""
        before = self._last if has == self._version else b""
        now = serialised(self._path)
        if now == before:
            yield piece({"ledger": self._version, "size": len(now)})
            return
        self._last, self._version = now, self._version + 1
        changed = [at for at in range(0, len(now), PAGE) if now[at : at + PAGE] != before[at : at + PAGE]]
        for first in range(0, len(changed), PIECE_BYTES // PAGE):
            some = changed[first : first + PIECE_BYTES // PAGE]
            yield piece({"pages": some}, b"".join(now[at : at + PAGE] for at in some))
        yield piece({"ledger": self._version, "size": len(now)})


def serialised(path: Path) -> bytes:
    """A ledger as it is at one moment."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
        return source.serialize()
