"""Recovery: which snapshot and which records of a journal's segments count, after whatever stopped the process.

A record counts if it is whole and so are all before it. After a power failure any page that was not synced may be as it
was before, so a snapshot counts only if what it refers to does, and a new segment may be gone, or be there without the
end of the one before. Each record says which ones were on the disk when it was written: so what a power failure took
is told from damage to what had been on the disk, which is never cut silently. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from meander.run.store.framing import Frame, FrameFault, FrameKind, later_frames, scan
from meander.run.store.mapped_files import SystemFiles

NO_SNAPSHOT = "it should start with a snapshot"


class Segment:
    """One file. Its map is made when bytes are read back and renewed when they lie behind the mapped end."""

    __slots__ = ("mapped", "number", "path", "size")

    def __init__(self, number: int, path: Path, size: int = 0) -> None:
        self.number, self.path, self.size = number, path, size
        self.mapped: pa.Buffer | None = None


class Recovery:
    """The findings. `active`, `first`, `last` and `lost` are set when all frames were read."""

    first: Frame
    """The snapshot."""
    last: Frame
    """The last record that counts."""

    def __init__(
        self,
        segments: Mapping[int, Segment],
        files: SystemFiles,
        corrupt: Callable[[Segment, int, str], Exception],
    ) -> None:
        self._segments, self._files, self._corrupt = segments, files, corrupt
        self.active: Segment | None = None
        self.lost: list[Segment] = []
        """Segments that were begun and never got on the disk."""

    def frames(self) -> Iterator[Frame]:
        """The newest snapshot that stands and all records after it."""
        for number in sorted(self._segments, reverse=True):
            segment = self._segments[number]
            frames = scan(self._files.map(segment.path), number)
            first = next(frames, None)
            if isinstance(first, Frame) and first.kind == FrameKind.SNAPSHOT and self._stands(segment, first):
                self.active, self.first = segment, first
                yield first
                yield from self._rest(segment, first, frames)
                return
            if self.lost:  # a segment is begun only when the one before has a snapshot on the disk
                raise self._corrupt(segment, 0, first.reason if isinstance(first, FrameFault) else NO_SNAPSHOT)
            self.lost.append(segment)
        for segment in self.lost:
            if segment.number != 1:
                raise self._corrupt(segment, 0, f"{NO_SNAPSHOT}, and no older segment has one")
            self._must_be_unsettled(segment, 0, 0, NO_SNAPSHOT)

    def _stands(self, segment: Segment, snapshot: Frame) -> bool:
        """Whether everything is on the disk that a snapshot refers to: the records before it, to the last one."""
        before = self._segments.get(segment.number - 1)
        if snapshot.settled >= snapshot.number or before is None:  # which is deleted only when the snapshot is on disk
            return True
        content = self._files.map(segment.path)
        if any(f.settled >= snapshot.number for f in later_frames(content, snapshot.start, segment.number)):
            return True
        last = -1
        for frame in scan(self._files.map(before.path), before.number):
            last = frame.number if isinstance(frame, Frame) else last
        return last == snapshot.number - 1

    def _rest(self, segment: Segment, first: Frame, frames: Iterator[Frame | FrameFault]) -> Iterator[Frame]:
        self.last, reason = first, "it ends"
        for frame in frames:
            if isinstance(frame, FrameFault):
                reason = frame.reason
                self._must_be_unsettled(segment, frame.start, self.last.number + 1, reason)
                break
            self.last = frame
            yield frame
        for later in self.lost:
            self._must_be_unsettled(later, 0, self.last.number + 1, reason)

    def _must_be_unsettled(self, segment: Segment, start: int, number: int, reason: str) -> None:
        """Refuses to cut at a record that was on the disk once: that is damage, nothing that a power failure left."""
        for later in later_frames(self._files.map(segment.path), start - 1, segment.number):
            if later.settled > number:
                raise self._corrupt(segment, start, f"{reason}, yet record {later.number} follows it")
