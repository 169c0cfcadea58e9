"""A disk in memory that says it has written and has not: a power failure takes what was not synced, and not in order.

Of each file any 4 KB page that was written since the last sync is there as it was before any of those writes, as one
of them left it, or torn between two sectors; its size is one of those it had. Of each name in a directory that was
created, renamed or deleted since the directory was synced, any of its states is there, whatever became of others and
of the files. What was synced is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.run.store.mapped_files import SystemFiles

PAGE, SECTOR = 4096, 512
LOCK = -1


class _File:
    """What it holds, what of that is on the disk, and what was done to it since: pairs of an offset and bytes, or of a
    size and nothing."""

    def __init__(self, synced: bytes = b"") -> None:
        self.content = bytearray(synced)
        self.synced = synced
        self.since: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes) -> None:
        _put(self.content, offset, data)
        self.since.append((offset, data))

    def truncate(self, size: int) -> None:
        _cut(self.content, size)
        self.since.append((size, None))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.since.clear()

    def after_crash(self, rng: random.Random) -> bytes:
        match rng.randint(0, 4) if self.since else 0:
            case 0:
                return self.synced
            case 1:
                return bytes(self.content)
            case 2:
                return self._prefix(rng.randint(0, len(self.since)), rng)
            case _:
                return self._scattered(rng)

    def _prefix(self, count: int, rng: random.Random) -> bytes:
        """What was done first is there, and a part of what came next."""
        found = bytearray(self.synced)
        for at, data in self.since[:count]:
            _do(found, at, data)
        if count < len(self.since) and (following := self.since[count])[1] is not None:
            _put(found, following[0], following[1][: rng.randint(0, len(following[1]))])
        return bytes(found)

    def _scattered(self, rng: random.Random) -> bytes:
        """Each page is there or not, whatever became of those before it."""
        running = bytearray(self.synced)
        sizes, versions = [len(running)], dict[int, list[bytes]]()
        for at, data in self.since:
            before = len(running)
            _do(running, at, data)
            sizes.append(len(running))
            low, high = (at, at + len(data)) if data is not None else (min(before, at), max(before, at))
            for page in range(min(low, before) // PAGE, -(-high // PAGE)):
                versions.setdefault(page, [_page(self.synced, page)]).append(_page(running, page))
        found = bytearray(self.synced)
        for page, states in versions.items():
            _put(found, page * PAGE, _torn(rng.choice(states), rng.choice(states), rng))
        _cut(found, rng.choice([*sizes, len(running)]))
        return bytes(found)


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _cut(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _do(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        _cut(content, at)
    else:
        _put(content, at, data)


def _page(content: bytes | bytearray, page: int) -> bytes:
    return bytes(content[page * PAGE : (page + 1) * PAGE]).ljust(PAGE, b"\0")


def _torn(first: bytes, second: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, PAGE // SECTOR) * SECTOR if rng.random() < 0.5 else PAGE
    return first[:at] + second[at:]


class LyingDisk(SystemFiles):
    """All files of one power supply. `before_change` is called before anything that changes them."""

    def __init__(self) -> None:
        self.names: dict[Path, _File] = {}
        self.synced_names: dict[Path, _File] = {}
        self.states: dict[Path, list[_File | None]] = {}
        """What each name stood for since its directory was synced."""
        self.before_change: Callable[[], None] = lambda: None
        self._open: dict[int, _File] = {}
        self._next = 100

    def crash(self, rng: random.Random) -> LyingDisk:
        """The disk that is found when the power is back."""
        found, files = LyingDisk(), dict[int, _File]()
        names: dict[Path, _File | None] = dict(self.synced_names)
        for path, states in self.states.items():
            names[path] = rng.choice([self.synced_names.get(path), *states])
        for path, file in names.items():
            if file is not None:
                found.names[path] = files.setdefault(id(file), _File(file.after_crash(rng)))
        found.synced_names = dict(found.names)
        return found

    # What may be lost

    def create(self, path: Path) -> int:
        self.before_change()
        if (file := self.names.get(path)) is None:
            file = self._name(path, _File())
        else:
            file.truncate(0)
        return self._opened(file)

    def write(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        self.before_change()
        data = b"".join(bytes(b) for b in buffers)
        self._open[descriptor].write(offset, data)
        return len(data)

    def truncate(self, descriptor: int, size: int) -> None:
        self.before_change()
        self._open[descriptor].truncate(size)

    def unlink(self, path: Path) -> None:
        self.before_change()
        if self.names.pop(path, None) is not None:
            self.states.setdefault(path, []).append(None)

    def rename(self, path: Path, to: Path) -> None:
        self.before_change()
        self._name(to, self.names.pop(path))
        self.states.setdefault(path, []).append(None)

    def _name(self, path: Path, file: _File) -> _File:
        self.names[path] = file
        self.states.setdefault(path, []).append(file)
        return file

    # What makes it stay

    def sync(self, descriptor: int) -> None:
        self.before_change()
        self._open[descriptor].sync()

    def sync_directory(self, path: Path) -> None:
        self.before_change()
        for name in [n for n in self.states if n.parent == path]:
            del self.states[name]
            if name in self.names:
                self.synced_names[name] = self.names[name]
            else:
                self.synced_names.pop(name, None)

    # The rest

    def make_directory(self, path: Path) -> None:
        pass

    def sizes(self, directory: Path) -> dict[str, int]:
        return {path.name: len(file.content) for path, file in self.names.items() if path.parent == directory}

    def open(self, path: Path) -> int:
        return self._opened(self.names[path])

    def _opened(self, file: _File) -> int:
        self._next += 1
        self._open[self._next] = file
        return self._next

    def close(self, descriptor: int) -> None:
        if descriptor != LOCK:
            del self._open[descriptor]

    def map(self, path: Path) -> pa.Buffer:
        return pa.py_buffer(bytes(self.names[path].content))

    def lock(self, path: Path) -> int | None:
        return LOCK
