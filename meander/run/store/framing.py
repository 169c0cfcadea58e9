"""Journal frames: how one record of the journal lies in a file.

A frame is a prefix, a table of section lengths and checksums, a header, and sections (arrays, Arrow batches), all
padded to 8 bytes so that a section can be used where it lies in a mapped file. The prefix carries the checksum of
prefix, table and header; the table carries each section's. So a frame is valid as a whole or not at all, and a section
can be checked on its own when it is read back much later.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

MAGIC = b"MDRj"
ALIGNMENT = 8
_PREFIX = struct.Struct("<4sIQQIIII")  # magic, checksum, number, settled, kind, sections, header length, reserved
_SECTION = struct.Struct("<QQ")  # length, checksum
_CHECKED_FROM = 8  # the checksum does not cover the magic and itself

SUMMED_FROM_BYTES = 32 * 1024
_BLOCK_WORDS = 512


class FrameKind(IntEnum):
    SNAPSHOT = 1
    COMMIT = 2


def checksum(data: Any) -> int:
    """Detects torn and rotten bytes. Long data is summed per 4 KB block (at the speed of memory) before the CRC.

    A zeroed, swapped or damaged block changes its sum or the order of sums; the CRC alone runs at a third of the speed.
    """
    view = memoryview(data).cast("B")
    if len(view) < SUMMED_FROM_BYTES:
        return zlib.crc32(view)
    whole = len(view) // (8 * _BLOCK_WORDS) * 8 * _BLOCK_WORDS
    words = np.frombuffer(view[:whole], dtype="<u8").reshape(-1, _BLOCK_WORDS)
    return zlib.crc32(view[whole:], zlib.crc32(np.add.reduce(words, axis=1).data))


def padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


class Section(NamedTuple):
    """Bytes to be written, with their checksum."""

    data: Any
    length: int
    checksum: int


def section(data: Any) -> Section:
    """Seals bytes; done before any lock is taken, because it reads them all."""
    view = memoryview(data).cast("B")
    return Section(view, len(view), checksum(view))


class Place(NamedTuple):
    """Where a section lies."""

    segment: int
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A valid frame as found in a segment. All records numbered below `settled` were durable before it was written."""

    number: int
    settled: int
    kind: int
    header: bytes
    places: tuple[Place, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FrameFault:
    """Why the bytes at `start` are no valid frame."""

    start: int
    reason: str


def encode(
    number: int, settled: int, kind: int, header: bytes, sections: Sequence[Section]
) -> tuple[list[Any], list[int], int]:
    """The buffers to write, the offset of each section from the frame's start, and the frame's length."""
    table = b"".join([_SECTION.pack(s.length, s.checksum) for s in sections])
    checked = _PREFIX.pack(MAGIC, 0, number, settled, kind, len(sections), len(header), 0)[_CHECKED_FROM:]
    crc = zlib.crc32(header, zlib.crc32(table, zlib.crc32(checked)))
    head = b"".join([MAGIC, crc.to_bytes(4, "little"), checked, table, header])
    at = padded(len(head))
    buffers: list[Any] = [head + bytes(at - len(head))]
    offsets = []
    for each in sections:
        offsets.append(at)
        at += each.length
        if each.length:
            buffers.append(each.data)
        if at % ALIGNMENT:
            gap = padded(at) - at
            buffers.append(bytes(gap))
            at += gap
    return buffers, offsets, at


def _head(view: memoryview, start: int, segment: int) -> Frame | FrameFault:
    """The frame at `start` by its prefix, table and header alone."""
    if start + _PREFIX.size > len(view):
        return FrameFault(start, "the frame is cut short")
    magic, crc, number, settled, kind, count, header_length, _ = _PREFIX.unpack_from(view, start)
    if magic != MAGIC:
        return FrameFault(start, "there is no frame mark")
    table = start + _PREFIX.size
    header = table + count * _SECTION.size
    end = header + header_length
    if end > len(view):
        return FrameFault(start, "the frame is cut short")
    if zlib.crc32(view[start + _CHECKED_FROM : end]) != crc:
        return FrameFault(start, "the checksum of its header differs")
    places, at = [], padded(end - start) + start
    for index in range(count):
        length, section_checksum = _SECTION.unpack_from(view, table + index * _SECTION.size)
        places.append(Place(segment, at, length, section_checksum))
        at = padded(at + length)
    return Frame(number, settled, kind, bytes(view[header:end]), tuple(places), start, at)


def _checked(view: memoryview, start: int, segment: int) -> Frame | FrameFault:
    """The frame at `start` with all its bytes verified."""
    frame = _head(view, start, segment)
    if isinstance(frame, FrameFault):
        return frame
    if frame.end > len(view):
        return FrameFault(start, "the frame is cut short")
    for place in frame.places:
        if checksum(view[place.offset : place.offset + place.length]) != place.checksum:
            return FrameFault(start, "the checksum of its content differs")
    return frame


def scan(data: Any, segment: int) -> Iterator[Frame | FrameFault]:
    """All frames from the segment's start; the last item is a fault unless the segment ends with a valid frame."""
    view, at, expected = memoryview(data).cast("B"), 0, None
    while at < len(view):
        frame = _checked(view, at, segment)
        if isinstance(frame, Frame) and expected is not None and frame.number != expected:
            frame = FrameFault(at, f"its number is {frame.number} where {expected} should be")
        yield frame
        if isinstance(frame, FrameFault):
            return
        at, expected = frame.end, frame.number + 1


def later_frames(data: Any, after: int, segment: int) -> Iterator[Frame]:
    """Valid frames that begin behind `after`, found by their mark: they say what was on the disk before them."""
    content = memoryview(data).cast("B")
    rest = bytes(content[after + 1 :])
    at = rest.find(MAGIC)
    while at >= 0:
        start = after + 1 + at
        if start % ALIGNMENT == 0:
            frame = _checked(content, start, segment)
            if isinstance(frame, Frame):
                yield frame
        at = rest.find(MAGIC, at + 1)
