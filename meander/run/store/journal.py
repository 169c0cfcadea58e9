"""The journal: one append-only log per site host, in segments, from which everything durable is a view.

A segment starts with a snapshot of all that came before, so only the newest segment is replayed and older ones are
kept for the payloads in them alone. A record counts when its checksums are right: a torn last record is cut, damage
anywhere else is an error. The journal knows bytes; what records mean is left to the store.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.run.store.framing import Frame, FrameKind, Place, Section, checksum, encode
from meander.run.store.mapped_files import SystemFiles
from meander.run.store.recovery import Recovery, Segment

LOCK_NAME = "lock"
_SEGMENT_NAME = re.compile(r"journal-(\d{10})\.seg")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(error: BaseException) -> bool:
    """Whether it is for want of room on a disk."""
    return isinstance(error, OSError) and error.errno in _FULL


class Durability(Enum):
    """The failures that a returned commit survives."""

    PROCESS = "process"
    """The end of the process (written to the operating system, and synced to the disk soon after)."""
    DISK = "disk"
    """A power failure (synced to the disk; commits that wait at the same time share one sync)."""


def durability_by(name: str) -> Durability:
    """The durability of this name, as settings give it."""
    try:
        return Durability(name)
    except ValueError:
        raise InputError(
            f"durability {name!r} is not known; write process (a power failure takes the last second at most) or disk "
            "(it takes nothing that was acknowledged)"
        ) from None


class JournalError(Exception):
    """The journal cannot do what was asked. Nothing of the refused record was kept."""


class JournalCorruptError(JournalError):
    """Bytes that were once complete are damaged."""


class JournalInUseError(JournalError):
    """Another process works on the directory."""


class DiskFullError(JournalError):
    """There was no room for the record. It was taken back; the same record can be appended again later."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record lies: its number and the places of its sections."""

    number: int
    places: tuple[Place, ...]


def refusal_of(problem: OSError, directory: Path) -> JournalError:
    """Why something could not be written, and what to do."""
    if is_full(problem):
        return DiskFullError(
            f"no room for the next record in {directory} ({problem.strerror}). Nothing was lost; "
            "free some space there and it goes on"
        )
    return JournalError(f"cannot write to {directory}: {problem.strerror}. Nothing was lost; check the disk")


class Journal:
    """Appends, replays and deletes. Appends and rolls are serialised by the caller; `settle` may run beside them."""

    def __init__(
        self, directory: Path, *, files: SystemFiles | None = None, durability: Durability = Durability.PROCESS
    ) -> None:
        """Takes the directory. Call `replay` to the end, then `roll` if it was empty, before the first append."""
        self.directory = directory
        self.durability = durability
        self._files = files or SystemFiles()
        try:
            self._files.make_directory(directory)
            self._lock = self._files.lock(directory / LOCK_NAME)
        except OSError as problem:
            raise JournalError(
                f"cannot use {directory}: {problem.strerror}; give a directory that can be written"
            ) from problem
        if self._lock is None:
            raise JournalInUseError(
                f"{directory} is in use by another process; stop it, or give this one a directory of its own"
            )
        self._segments: dict[int, Segment] = {}
        for name, size in self._files.sizes(directory).items():
            if match := _SEGMENT_NAME.fullmatch(name):
                number = int(match.group(1))
                self._segments[number] = Segment(number, directory / name, size)
        self._active: Segment | None = None
        self._descriptor = -1
        self._number = 0  # of the next record
        self._settled = 0  # all records below are on the disk
        self._snapshot_number = 0  # of the snapshot with which the active segment begins
        self._closed: list[int] = []  # files of older segments that are not on the disk yet
        self._has_new_name = False
        self._syncing = lock("journal sync")
        self._broken: str | None = None
        self.frames_in_segment = 0
        self.snapshot_bytes = 0

    @property
    def active_segment(self) -> int:
        """Number of the segment that records go to; 0 before the first one."""
        return self._active.number if self._active else 0

    @property
    def active_bytes(self) -> int:
        return self._active.size if self._active else 0

    @property
    def disk_bytes(self) -> int:
        """Size of all segments."""
        return sum(s.size for s in self._segments.values())

    @property
    def segments(self) -> tuple[int, ...]:
        return tuple(sorted(self._segments))

    @property
    def next_number(self) -> int:
        return self._number

    @property
    def settled(self) -> int:
        """All records below this number are on the disk."""
        return self._settled

    @property
    def extents(self) -> dict[int, int]:
        """How far each segment is written, oldest first."""
        return {number: self._segments[number].size for number in sorted(self._segments)}

    def link(self, directory: Path) -> dict[str, int]:
        """Gives all segments another name in a directory; says how far each is written."""
        for segment in self._segments.values():
            os.link(segment.path, directory / segment.path.name)
        return {segment.path.name: segment.size for segment in self._segments.values()}

    def size_of(self, segment: int) -> int:
        return self._segments[segment].size

    # Opening

    def replay(self) -> Iterator[Frame]:
        """The newest snapshot that stands and all records after it.

        What a power failure left behind the last whole record is cut when the end is reached.
        """
        found = Recovery(self._segments, self._files, self._corrupt)
        yield from found.frames()
        self._drop(found.lost)  # before others get the numbers of the records in them
        if found.active is None:
            return
        first, last, segment = found.first, found.last, found.active
        self._descriptor = self._files.open(segment.path)
        if last.end < segment.size:
            self._files.truncate(self._descriptor, last.end)
            segment.size, segment.mapped = last.end, None  # what was mapped is not what will be there
        self._active, self._number, self._snapshot_number = segment, last.number + 1, first.number
        self.frames_in_segment, self.snapshot_bytes = last.number - first.number, first.end
        self._sync_found()
        self._settled = self._number

    def _drop(self, lost: list[Segment]) -> None:
        for segment in lost:
            self._files.unlink(segment.path)
            del self._segments[segment.number]
        if lost:
            self._files.sync_directory(self.directory)

    def _sync_found(self) -> None:
        """Brings on the disk what is built upon from here on, whoever wrote it."""
        for segment in self._segments.values():
            if segment is not self._active:
                descriptor = self._files.open(segment.path)
                try:
                    self._sync(descriptor)
                finally:
                    self._files.close(descriptor)
        self._sync(self._descriptor)
        self._files.sync_directory(self.directory)

    def _corrupt(self, segment: Segment, offset: int, reason: str) -> JournalCorruptError:
        return JournalCorruptError(
            f"{segment.path.name} is damaged at byte {offset}: {reason}. Nothing was changed. Restore {self.directory} "
            "from a copy, or move it away to start empty and let sources replay"
        )

    # Writing

    def append(self, header: bytes, sections: Sequence[Section]) -> Written:
        """Adds one record. When it returns, the record is there as a whole; when it raises, nothing of it is."""
        self._check_usable()
        segment = self._active
        assert segment is not None, "roll() begins the first segment"
        written, size = self._write(FrameKind.COMMIT, segment, self._descriptor, header, sections)
        segment.size += size
        self._number += 1
        self.frames_in_segment += 1
        return written

    def roll(self, header: bytes, sections: Sequence[Section]) -> Written:
        """Begins a new segment with a snapshot. If that fails, the present segment stays the active one.

        Nothing waits for the disk here, but for the snapshot with which the present segment begins: a power failure
        may take the new segment away, and then that one has to be there.
        """
        self._check_usable()
        if self._active and self._settled <= self._snapshot_number:
            self.sync()
        number = max(self._segments, default=0) + 1
        segment = Segment(number, self.directory / f"journal-{number:010d}.seg")
        written, descriptor = self._begin(segment, header, sections)
        self._has_new_name = True
        if self._descriptor >= 0:
            self._closed.append(self._descriptor)
        self._segments[number] = self._active = segment
        self._descriptor, self._snapshot_number = descriptor, self._number
        self._number += 1
        self.frames_in_segment, self.snapshot_bytes = 0, segment.size
        return written

    def _begin(self, segment: Segment, header: bytes, sections: Sequence[Section]) -> tuple[Written, int]:
        descriptor = -1
        try:
            descriptor = self._files.create(segment.path)
            written, segment.size = self._write(FrameKind.SNAPSHOT, segment, descriptor, header, sections)
            return written, descriptor
        except (OSError, JournalError) as problem:
            try:  # a complete snapshot left behind would hide records that are appended to the old segment later
                if descriptor >= 0:
                    self._files.truncate(descriptor, 0)
                    self._files.close(descriptor)
                self._files.unlink(segment.path)
            except OSError as second:
                self._break(f"{segment.path.name} could not be taken back ({second.strerror})")
            raise self._refused(problem) if isinstance(problem, OSError) else problem from problem

    def _write(
        self, kind: FrameKind, segment: Segment, descriptor: int, header: bytes, sections: Sequence[Section]
    ) -> tuple[Written, int]:
        start = segment.size
        buffers, offsets, size = encode(self._number, self._settled, kind, header, sections)
        try:
            _write_all(self._files, descriptor, buffers, start)
        except OSError as problem:
            self._take_back(descriptor, start, segment)
            raise self._refused(problem) from problem
        places = tuple(
            Place(segment.number, start + offset, s.length, s.checksum)
            for offset, s in zip(offsets, sections, strict=True)
        )
        return Written(self._number, places), size

    def _take_back(self, descriptor: int, size: int, segment: Segment) -> None:
        try:
            self._files.truncate(descriptor, size)
        except OSError as problem:
            self._break(f"a partial record in {segment.path.name} could not be cut off ({problem.strerror})")

    def _refused(self, problem: OSError) -> JournalError:
        return refusal_of(problem, self.directory)

    # Durability

    def settle(self, number: int) -> None:
        """Returns when record `number` survives what `durability` promises."""
        if self.durability is Durability.DISK:
            self.sync(number)

    def sync(self, number: int | None = None) -> None:
        """Returns when record `number` is on the disk, or all of them. Callers that wait share one sync.

        A new segment may begin meanwhile. What it changes is read in the order in which it does not matter: the number
        first, and the closed files, among which the active one may be by then, last.
        """
        with self._syncing:
            if self._settled > (self._number - 1 if number is None else number):
                return
            self._check_usable()
            written, descriptor, closed = self._number, self._descriptor, list(self._closed)
            for old in closed:
                self._sync(old)
            if self._has_new_name:
                self._has_new_name = False
                self._guarded(lambda: self._files.sync_directory(self.directory))
            self._sync(descriptor)
            self._settled = written
            for old in closed:
                self._closed.remove(old)
                self._files.close(old)

    def _sync(self, descriptor: int) -> None:
        self._guarded(lambda: self._files.sync(descriptor))

    def _guarded(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as problem:  # what reached the disk is unknown from here on, so nothing more may be promised
            self._break(f"writing to the disk failed ({problem.strerror})")
            self._check_usable()

    @property
    def broken(self) -> str | None:
        """Why nothing can be written any more, however long one waits."""
        return self._broken

    def _break(self, reason: str) -> None:
        self._broken = reason

    def _check_usable(self) -> None:
        if self._broken:
            raise JournalError(
                f"the journal in {self.directory} stopped: {self._broken}. Start again to recover from it"
            )

    # Reading back, deleting

    def read(self, place: Place, *, verify: bool) -> pa.Buffer:
        """The bytes at a place, mapped, not copied."""
        segment = self._segments.get(place.segment)
        if segment is None:
            raise JournalCorruptError(
                f"segment {place.segment} is missing from {self.directory}; restore the directory from a copy"
            )
        end = place.offset + place.length
        if segment.mapped is None or end > segment.mapped.size:
            try:
                segment.mapped = self._files.map(segment.path)
            except OSError as problem:
                raise JournalError(f"cannot read {segment.path}: {problem.strerror}; check the disk") from problem
        if end > segment.mapped.size:
            raise self._corrupt(segment, place.offset, "it ends before the content that was written to it")
        data = segment.mapped.slice(place.offset, place.length)
        if verify and checksum(data) != place.checksum:
            raise self._corrupt(segment, place.offset, "the checksum of its content differs")
        return data

    def delete(self, segment: int) -> None:
        """Deletes an old segment in which nothing is needed any more. What is mapped of it stays readable."""
        assert segment != self.active_segment, "the active segment is needed for replay"
        found = self._segments.pop(segment)
        try:
            self._files.unlink(found.path)
        except OSError:
            self._segments[segment] = found  # still there: the next snapshot or start tries again

    def close(self) -> None:
        """Gives the directory back. Writes nothing: every returned record is in the file already."""
        for closed in self._closed:
            self._files.close(closed)
        self._closed.clear()
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None
        self._broken = self._broken or "it was closed"


def _write_all(files: SystemFiles, descriptor: int, buffers: list[Any], offset: int) -> None:
    while buffers:
        count = files.write(descriptor, buffers, offset)
        offset += count
        done = 0
        while done < len(buffers) and count >= len(buffers[done]):
            count -= len(buffers[done])
            done += 1
        buffers = buffers[done:]
        if count:
            buffers[0] = memoryview(buffers[0])[count:]


class JournalSegments:
    """The segments of a journal as others see them: how far they are written, and what was."""

    def __init__(self, journal: Journal, lock: AbstractContextManager[Any]) -> None:
        """`lock` is held by those who append."""
        self._journal, self._lock = journal, lock

    def extents(self) -> tuple[int, dict[int, int]]:
        """The number of the next record, and how far each segment is written."""
        with self._lock:
            return self._journal.next_number, self._journal.extents

    def link(self, directory: Path) -> dict[str, int]:
        """Gives all segments another name in a directory of the same disk; says how far each is written, all at the
        same moment. What is added to them later comes behind that."""
        with self._lock:
            return self._journal.link(directory)

    def read(self, segment: int, offset: int, length: int) -> pa.Buffer:
        """Bytes of a segment as they were written."""
        return self._journal.read(Place(segment, offset, length, 0), verify=False)
