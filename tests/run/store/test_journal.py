"""The journal: frames, torn tails, damage, full disks, durability."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.run.store.framing import Frame, FrameFault, checksum, encode, scan, section
from meander.run.store.journal import (
    DiskFullError,
    Durability,
    Journal,
    JournalCorruptError,
    JournalError,
    JournalInUseError,
    Written,
    durability_by,
)
from tests.run.store.crash.faults import FaultyFiles


def started(directory: Path, files: FaultyFiles | None = None, durability: Durability = Durability.PROCESS) -> Journal:
    """A journal that is ready for appends."""
    journal = Journal(directory, files=files, durability=durability)
    if not list(journal.replay()):
        journal.roll(b"snapshot", [])
    return journal


def append(journal: Journal, text: bytes) -> Written:
    return journal.append(text, [section(text * 10)])


def headers(directory: Path, durability: Durability = Durability.PROCESS) -> list[bytes]:
    journal = Journal(directory, durability=durability)
    try:
        return [frame.header for frame in journal.replay()]
    finally:
        journal.close()


@given(st.binary(max_size=200), st.lists(st.binary(max_size=100), max_size=4), st.integers(0, 2**40))
def test_a_frame_reads_back_as_written_and_its_sections_are_aligned(
    header: bytes, contents: list[bytes], number: int
) -> None:
    buffers, offsets, size = encode(number, number, 2, header, [section(c) for c in contents])
    data = b"".join(bytes(b) for b in buffers)
    assert len(data) == size
    (frame,) = scan(data, 7)
    assert isinstance(frame, Frame)
    assert (frame.number, frame.header, frame.end) == (number, header, size)
    assert [p.offset for p in frame.places] == offsets
    assert all(offset % 8 == 0 for offset in offsets)
    assert [data[p.offset : p.offset + p.length] for p in frame.places] == contents


@given(st.data())
def test_any_changed_byte_of_a_frame_is_noticed(data: st.DataObject) -> None:
    long = bytes(range(256)) * 200  # long enough to be summed in blocks
    buffers, _, _ = encode(3, 3, 2, b"header", [section(b"short"), section(long)])
    whole = bytearray(b"".join(bytes(b) for b in buffers))
    at = data.draw(st.integers(0, len(whole) - 1))
    covered = at < 40 + 32 + 6 or whole[at] != 0  # padding between sections is not content
    whole[at] ^= data.draw(st.integers(1, 255))
    found = list(scan(bytes(whole), 1))
    if covered:
        assert isinstance(found[-1], FrameFault)


def test_swapped_and_zeroed_blocks_change_the_checksum() -> None:
    blocks = [bytes([i]) * 4096 for i in range(1, 20)]
    whole = checksum(b"".join(blocks))
    assert checksum(b"".join([blocks[1], blocks[0], *blocks[2:]])) != whole
    assert checksum(b"".join([*blocks[:5], bytes(4096), *blocks[6:]])) != whole


def test_records_are_replayed_in_order_and_sections_are_mapped_where_they_lie(tmp_path: Path) -> None:
    journal = started(tmp_path)
    written = [append(journal, b"record %d" % i) for i in range(5)]
    assert [w.number for w in written] == [1, 2, 3, 4, 5]
    assert journal.read(written[2].places[0], verify=True).to_pybytes() == b"record 2" * 10
    journal.close()
    assert headers(tmp_path) == [b"snapshot", *(b"record %d" % i for i in range(5))]


def test_only_the_newest_snapshot_and_what_follows_is_replayed(tmp_path: Path) -> None:
    journal = started(tmp_path)
    append(journal, b"old")
    journal.roll(b"second snapshot", [])
    append(journal, b"new")
    journal.close()
    assert headers(tmp_path) == [b"second snapshot", b"new"]


def test_a_torn_tail_is_cut_and_appending_goes_on(tmp_path: Path) -> None:
    journal = started(tmp_path)
    append(journal, b"kept")
    size = journal.active_bytes
    append(journal, b"torn")
    journal.close()
    (path,) = tmp_path.glob("*.seg")
    with path.open("r+b") as file:
        file.truncate(size + 11)
    journal = started(tmp_path)
    assert journal.active_bytes == size
    append(journal, b"next")
    journal.close()
    assert headers(tmp_path) == [b"snapshot", b"kept", b"next"]


def test_a_torn_snapshot_falls_back_to_the_segment_before(tmp_path: Path) -> None:
    journal = started(tmp_path)
    append(journal, b"kept")
    journal.roll(b"second snapshot", [])
    journal.close()
    newest = max(tmp_path.glob("*.seg"))
    newest.write_bytes(newest.read_bytes()[:20])
    assert headers(tmp_path) == [b"snapshot", b"kept"]
    assert not newest.exists()


def test_damage_before_valid_records_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    journal = started(tmp_path)
    middle = append(journal, b"first").places[0].offset
    journal.sync()
    append(journal, b"second")
    journal.close()
    (path,) = tmp_path.glob("*.seg")
    content = bytearray(path.read_bytes())
    content[middle] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorruptError, match=r"damaged at byte \d+: .*record 2 follows it.*Restore"):
        headers(tmp_path)
    assert path.read_bytes() == content


def test_damage_in_a_segment_that_was_replaced_is_noticed_when_its_content_is_read(tmp_path: Path) -> None:
    journal = started(tmp_path)
    place = append(journal, b"payload").places[0]
    journal.roll(b"second snapshot", [])
    path = min(tmp_path.glob("*.seg"))
    content = bytearray(path.read_bytes())
    content[place.offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorruptError, match="checksum"):
        journal.read(place, verify=True)
    journal.close()


def test_records_that_never_reached_the_disk_together_are_a_torn_tail(tmp_path: Path) -> None:
    """Two slots write before one sync; a power failure may keep the second and lose the first. Neither had returned."""
    journal = started(tmp_path, FaultyFiles(), Durability.DISK)
    journal.settle(append(journal, b"settled").number)
    lost = append(journal, b"lost").places[0].offset
    append(journal, b"kept by chance")
    journal.close()
    (path,) = tmp_path.glob("*.seg")
    content = bytearray(path.read_bytes())
    content[lost : lost + 8] = bytes(8)
    path.write_bytes(content)
    assert headers(tmp_path, Durability.DISK) == [b"snapshot", b"settled"]


def test_a_settled_record_that_is_damaged_is_not_taken_for_a_torn_tail(tmp_path: Path) -> None:
    journal = started(tmp_path, FaultyFiles(), Durability.DISK)
    damaged = append(journal, b"settled")
    journal.settle(damaged.number)
    append(journal, b"later")
    journal.close()
    (path,) = tmp_path.glob("*.seg")
    content = bytearray(path.read_bytes())
    content[damaged.places[0].offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorruptError):
        headers(tmp_path, Durability.DISK)


@pytest.mark.parametrize("room", [0, 1, 50, 100])
def test_a_full_disk_refuses_the_record_and_keeps_all_others(tmp_path: Path, room: int) -> None:
    files = FaultyFiles()
    journal = started(tmp_path, files)
    append(journal, b"before")
    size = journal.active_bytes
    files.room_bytes = room
    with pytest.raises(DiskFullError, match="free some space"):
        append(journal, b"refused")
    assert next(iter(tmp_path.glob("*.seg"))).stat().st_size == size
    files.room_bytes = None
    append(journal, b"after")
    journal.close()
    assert headers(tmp_path) == [b"snapshot", b"before", b"after"]


def test_a_full_disk_during_a_snapshot_leaves_the_present_segment_active(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = started(tmp_path, files)
    append(journal, b"before")
    files.room_bytes = 30
    with pytest.raises(DiskFullError):
        journal.roll(b"second snapshot", [section(b"x" * 1000)])
    files.room_bytes = None
    append(journal, b"after")
    journal.close()
    assert headers(tmp_path) == [b"snapshot", b"before", b"after"]


def test_a_partial_record_that_cannot_be_cut_off_stops_the_journal(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = started(tmp_path, files)
    append(journal, b"before")
    files.room_bytes, files.failing = 20, {"truncate": errno.EIO}
    with pytest.raises(DiskFullError):
        append(journal, b"refused")
    files.room_bytes = None
    with pytest.raises(JournalError, match=r"could not be cut off .* Start again"):
        append(journal, b"after")
    journal.close()
    assert headers(tmp_path) == [b"snapshot", b"before"]


def test_after_a_failed_sync_nothing_more_is_promised(tmp_path: Path) -> None:
    files = FaultyFiles()
    journal = started(tmp_path, files, Durability.DISK)
    written = append(journal, b"record")
    files.failing = {"sync": errno.EIO}
    with pytest.raises(JournalError, match="writing to the disk failed"):
        journal.settle(written.number)
    files.failing = {}
    with pytest.raises(JournalError, match="Start again"):
        journal.settle(written.number)
    journal.close()


def test_commits_that_wait_together_share_one_sync(tmp_path: Path) -> None:
    class SlowSync(FaultyFiles):
        syncs = 0

        def sync(self, descriptor: int) -> None:
            SlowSync.syncs += 1
            started_sync.set()
            release.wait(10)

    started_sync, release = threading.Event(), threading.Event()
    release.set()
    journal = started(tmp_path, SlowSync(), Durability.DISK)
    first = append(journal, b"0").number
    release.clear()
    started_sync.clear()
    before = SlowSync.syncs
    threads = [threading.Thread(target=journal.settle, args=(first,))]
    threads[0].start()
    assert started_sync.wait(10)
    for number in [append(journal, b"later").number for _ in range(8)]:
        threads.append(threading.Thread(target=journal.settle, args=(number,)))
        threads[-1].start()
    release.set()
    for thread in threads:
        thread.join(10)
    assert SlowSync.syncs - before == 2
    assert journal.settled == journal.next_number
    journal.close()


def test_a_directory_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    journal = started(tmp_path)
    with pytest.raises(JournalInUseError, match="in use by another process"):
        Journal(tmp_path)
    journal.close()
    started(tmp_path).close()


def test_what_was_read_stays_readable_when_its_segment_is_deleted(tmp_path: Path) -> None:
    journal = started(tmp_path)
    place = append(journal, b"payload").places[0]
    data: pa.Buffer = journal.read(place, verify=True)
    journal.roll(b"second snapshot", [])
    journal.delete(place.segment)
    journal.close()
    assert data.to_pybytes() == b"payload" * 10
    assert len(list(tmp_path.glob("*.seg"))) == 1


def test_durability_has_two_names(tmp_path: Path) -> None:
    assert [durability_by(name) for name in ("process", "disk")] == list(Durability)
    with pytest.raises(InputError, match="durability 'ram' is not known; write process"):
        durability_by("ram")
