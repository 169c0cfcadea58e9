"""The capture of a coordinator's directory at one moment, while it runs: files are linked, not copied, none waits.

The store's journal comes first: all of its segments, up to where they are written at that moment. Then results, which
hold at least what the store says that sinks have acknowledged, and may hold more: that is cut off when sinks are
opened. The ledger comes last, as it is written before the store is: a coordinator that starts finds what was to be
done.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from meander.coordinator.backup.archive import FORMAT, ArchivedFile, BackupManifest, written
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.epochs import newest
from meander.coordinator.problems import conflict
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError

LinkSegments = Callable[[Path], Mapping[str, int]]
"""Links the segments of a running store into a directory; gives their names and how far each is written."""
STORE = "host/store"
_PREFIX = ".backup-"
_LEFT_OUT = frozenset({"lock", "service.json", "standby.json", "replicas", "host/slots", STORE})
"""Paths that a directory has for one process only, or that are captured in another way."""


class Backups:
    """The backups of one directory, one at a time."""

    def __init__(self, home: CoordinatorDirectory, link_segments: LinkSegments | None = None) -> None:
        """Without `link_segments` no process runs on the directory."""
        self._home, self._link_segments = home, link_segments
        self._turn = threading.BoundedSemaphore()  # given back by whichever thread sends the last byte

    def stream(self) -> Iterator[bytes]:
        """The bytes of an archive of all that is there now; captured before the first of them is given."""
        if not self._turn.acquire(blocking=False):
            raise conflict("a backup is being made already; wait for that one")
        try:
            manifest, files = self._captured()
        except BaseException as error:
            self._end()
            if isinstance(error, OSError):
                raise InputError(f"the backup cannot be made: {error.strerror}", str(error.filename)) from None
            raise
        return self._streamed(manifest, files)

    def _streamed(self, manifest: BackupManifest, files: list[ArchivedFile]) -> Iterator[bytes]:
        try:
            yield from written(manifest, files)
        finally:
            self._end()

    def _end(self) -> None:
        self._clean()
        self._turn.release()

    def _clean(self) -> None:
        for left in self._home.directory.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)

    # ---------------------------------------------------------------- capturing

    def _captured(self) -> tuple[BackupManifest, list[ArchivedFile]]:
        self._clean()  # what a process that was killed has left
        into = self._home.directory / f"{_PREFIX}{os.getpid()}"
        into.mkdir(mode=0o700)
        made_ms = wall_clock_ms()
        files = self._segments(into / "store")
        files += [
            found
            for path in other_files(self._home.directory)
            if path not in (self._home.network_keys, self._home.secret)  # what proves identity is made or learned anew
            if (found := self._linked(path, into / "files")) is not None
        ]
        ledger = into / "ledger.db"
        epoch, sites = _copy_ledger(self._home.ledger, ledger)
        if ledger.exists():
            files.append(ArchivedFile("ledger.db", ledger, ledger.stat().st_size))
        return BackupManifest(FORMAT, version("meander"), made_ms, epoch, sites), files

    def _segments(self, into: Path) -> list[ArchivedFile]:
        into.mkdir(parents=True)
        if self._link_segments is not None:
            extents = dict(self._link_segments(into))
        else:
            extents = {}
            for path in sorted((self._home.host / "store").glob("journal-*.seg")):
                link(path, into / path.name)
                extents[path.name] = path.stat().st_size
        return [ArchivedFile(f"{STORE}/{name}", into / name, size) for name, size in extents.items()]

    def _linked(self, path: Path, into: Path) -> ArchivedFile | None:
        name = path.relative_to(self._home.directory)
        try:
            if path.is_symlink() or not path.is_file():
                return None
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            link(path, into / name)
            return ArchivedFile(name.as_posix(), into / name, (into / name).stat().st_size)
        except FileNotFoundError:  # such as a result file that was too old: it is not there any more
            return None


def other_files(base: Path) -> Iterator[Path]:
    """The files that belong to a coordinator's directory, besides ledger and store."""
    for folder, folders, names in os.walk(base):
        here = Path(folder).relative_to(base)
        folders[:] = sorted(n for n in folders if not _is_left_out(here / n))
        yield from (base / here / name for name in sorted(names) if not _is_left_out(here / name))


def link(path: Path, to: Path) -> None:
    """Another name for a file; a copy where the file system knows no such thing."""
    try:
        os.link(path, to)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, to)


def _is_left_out(path: Path) -> bool:
    first = path.parts[0]
    return path.as_posix() in _LEFT_OUT or first.startswith((_PREFIX, "ledger.db")) or path.name.endswith(".new")


def _copy_ledger(path: Path, to: Path) -> tuple[int, tuple[str, ...]]:
    """Copies a ledger as it is at one moment; gives the epoch in it, and the sites that have joined."""
    if not path.exists():
        return 0, ()
    origin = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    with closing(origin), closing(sqlite3.connect(to)) as target:
        origin.backup(target)
    with closing(sqlite3.connect(to)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        epoch = newest(copy)
        sites = tuple(name for (name,) in copy.execute("SELECT name FROM sites ORDER BY name"))
    return 0 if epoch is None else epoch.number, sites
