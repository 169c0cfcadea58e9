"""Disks that are full for real, where they can be made."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lab.testbed.disks import Disks, can_be_full


def test_a_full_disk_takes_not_one_byte_until_it_is_emptied_and_leaves_what_was_on_it(tmp_path: Path) -> None:
    allowed, reason = can_be_full()
    if not allowed:
        pytest.skip(reason)
    place = tmp_path / "west"
    disks = Disks([place])
    try:
        (place / "before").write_text("here")
        disks.fill(place)
        assert disks.full == {place}
        with pytest.raises(OSError, match="No space left") as full:
            (place / "more").write_bytes(bytes(10_000))
        assert full.value.errno == errno.ENOSPC
        disks.empty(place)
        (place / "after").write_bytes(bytes(10_000))
        assert place.stat().st_dev != tmp_path.stat().st_dev
    finally:
        disks.close()
    assert place.stat().st_dev == tmp_path.stat().st_dev
    assert sorted(p.name for p in place.iterdir()) == ["after", "before", "more"]
