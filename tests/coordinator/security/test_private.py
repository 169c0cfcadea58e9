"""Files that only their owner may read: closed when it is found open, and a key that was open is not used."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from meander.coordinator.security.private import check_key, private_directory, write_private
from meander.model.errors import InputError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_that_is_open_is_closed_with_all_that_is_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    (home / "host").mkdir(parents=True)
    for path, bits in ((home, 0o755), (home / "host", 0o777)):
        path.chmod(bits)
    (home / "ledger.db").write_text("")
    (home / "host" / "run.sh").write_text("")
    (home / "ledger.db").chmod(0o644)
    (home / "host" / "run.sh").chmod(0o755)
    (home / "elsewhere").symlink_to(tmp_path)
    before = mode(tmp_path)
    with caplog.at_level(logging.WARNING):
        private_directory(home)
    assert (mode(home), mode(home / "host")) == (0o700, 0o700)
    assert (mode(home / "ledger.db"), mode(home / "host" / "run.sh")) == (0o600, 0o700)
    assert mode(tmp_path) == before, "a link led out of the directory"
    assert "closed now" in caplog.text
    caplog.clear()
    private_directory(home)
    assert not caplog.records


def test_a_file_in_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(InputError, match="not a directory"):
        private_directory(tmp_path / "home")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    write_private(key, "secret")
    check_key(key)
    for bits in (0o640, 0o604, 0o666):
        key.chmod(bits)
        with pytest.raises(InputError, match="chmod 600"):
            check_key(key)
    with pytest.raises(InputError, match="cannot be read"):
        check_key(tmp_path / "none")
