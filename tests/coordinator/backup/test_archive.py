"""Archives of backups: what was written is read, and everything else is refused as a whole."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from meander.coordinator.backup.archive import (
    CHECKSUMS,
    FORMAT,
    MANIFEST,
    ArchivedFile,
    BackupManifest,
    extract,
    written,
)
from meander.model.errors import InputError

FIRST = BackupManifest(FORMAT, "1.2", 1_790_000_000_000, 7, ("edge-1",))
LONG = "results/" + "long-" * 40 + "name.jsonl"


def archive(directory: Path) -> bytes:
    directory.mkdir()
    (directory / "a").write_bytes(b"settings")
    (directory / "b").write_bytes(bytes(range(256)) * 9_000)
    files = [
        ArchivedFile("meander.toml", directory / "a", 8),
        ArchivedFile("host/store/journal-0000000001.seg", directory / "b", 2_000_000),
        ArchivedFile(LONG, directory / "a", 3),
    ]
    return b"".join(written(FIRST, files))


def test_what_was_written_is_read_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    data, target = archive(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    assert extract(io.BytesIO(data), target) == FIRST
    assert (target / "meander.toml").read_bytes() == b"settings"
    assert (target / LONG).read_bytes() == b"set"
    segment = target / "host/store/journal-0000000001.seg"
    assert segment.read_bytes() == (bytes(range(256)) * 9_000)[:2_000_000]  # what came later is not in it
    assert segment.stat().st_mode & 0o777 == 0o600
    assert extract(io.BytesIO(data), None) == FIRST
    with tarfile.open(fileobj=io.BytesIO(data)) as found:  # any tar can look into it
        assert found.getnames()[0] == MANIFEST


def test_an_archive_that_was_cut_off_anywhere_or_changed_is_refused(tmp_path: Path) -> None:
    data = archive(tmp_path / "source")
    end = data.rindex(b"}") + 1
    for size in (0, 1, 511, 512, 700, 1024, 1536, 5_000, 1_000_000, end // 2, end - 600, end - 1):
        with pytest.raises(InputError, match=r"cut off|no whole backup|cannot be read"):
            extract(io.BytesIO(data[:size]), None)
    changed = bytearray(data)
    changed[1_000_000] ^= 1
    with pytest.raises(InputError, match=r"damaged: host/store/journal-0000000001.seg is not what was backed up"):
        extract(io.BytesIO(bytes(changed)), None)
    for other in (b"no archive at all" * 100, bytes(4096), json.dumps({"format": 1}).encode()):
        with pytest.raises(InputError, match=r"cut off|no whole backup"):
            extract(io.BytesIO(other), None)


def plain(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.size = len(content)
    return found, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found, b""


def made(*members: tuple[tarfile.TarInfo, bytes], manifest: object = None) -> io.BytesIO:
    """An archive of these, with a manifest before them and checksums that fit nothing behind."""
    told = {"format": FORMAT, "program": "9.9", "made_ms": 1, "epoch": 1, "sites": []} if manifest is None else manifest
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        ends = plain(MANIFEST, json.dumps(told).encode()), plain(CHECKSUMS, b"{}")
        for info, content in (ends[0], *members, ends[1]):
            archive.addfile(info, io.BytesIO(content))
    out.seek(0)
    return out


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (lambda: made(plain("../outside")), "outside of the directory"),
        (lambda: made(plain("host/../../outside")), "outside of the directory"),
        (lambda: made(plain("/outside")), "outside of the directory"),
        (lambda: made(plain("host//store")), "outside of the directory"),
        (lambda: made(plain("./meander.toml")), "outside of the directory"),
        (lambda: made(special("link", tarfile.SYMTYPE, "/etc"), plain("link/outside")), "no plain file"),
        (lambda: made(special("link", tarfile.LNKTYPE, "/etc/passwd")), "no plain file"),
        (lambda: made(special("device", tarfile.CHRTYPE)), "no plain file"),
        (lambda: made(special("pipe", tarfile.FIFOTYPE)), "no plain file"),
        (lambda: made(special("host", tarfile.DIRTYPE)), "no plain file"),
        (lambda: made(plain("meander.toml"), plain("meander.toml")), "twice"),
        (lambda: made(plain("meander.toml"), plain("meander.toml/below")), "cannot be written"),
        (lambda: made(plain("meander.toml")), "damaged: meander.toml"),
        (lambda: made(plain(CHECKSUMS, b"{}")), "follows the checksums"),
        (lambda: made(manifest={"format": FORMAT + 1, "program": "9.9"}), "restore it with version 9.9 or a newer one"),
        (lambda: made(manifest={"format": "x"}), "manifest cannot be read"),
        (lambda: made(manifest=[1]), "manifest cannot be read"),
    ],
)
def test_a_hostile_archive_writes_nothing_outside(tmp_path: Path, source: Callable[[], io.BytesIO], why: str) -> None:
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with pytest.raises(InputError, match=why):
        extract(source(), target)
    assert {p.name for p in tmp_path.rglob("*")} <= {"deep", "target", "meander.toml"}
