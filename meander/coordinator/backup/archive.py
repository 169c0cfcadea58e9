"""The archive of a backup: a tar file that begins with a manifest and ends with the checksums of all that is between.

It is written as a stream, so nothing has to fit into memory, and read as one: nothing is believed before the checksums
have been compared, so an archive that was cut off, changed, or made to harm is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from meander.model.errors import InputError

FORMAT = 1
"""The version of archives that this program writes; it reads this one and all before."""
MANIFEST, CHECKSUMS = "manifest.json", "checksums.json"
MOST_DESCRIBED = 64_000_000
"""The manifest and the checksums have at most so many bytes."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The description of a backup."""

    format: int
    program: str
    """The version of Meander that made it."""
    made_ms: int
    epoch: int
    """That of the coordinator which ran then."""
    sites: tuple[str, ...] = ()
    """The sites that had joined by then."""

    @staticmethod
    def of_json(found: Any) -> BackupManifest:
        try:
            told = (str(found["program"]), int(found["made_ms"]), int(found["epoch"]))
            return BackupManifest(int(found["format"]), *told, tuple(str(s) for s in found["sites"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"its manifest cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file that goes into an archive: its first `size` bytes."""

    name: str
    path: Path
    size: int


def written(manifest: BackupManifest, files: Iterable[ArchivedFile]) -> Iterator[bytes]:
    """The bytes of an archive."""
    sums: dict[str, str] = {}
    yield from _small(MANIFEST, asdict(manifest))
    for file in files:
        yield _header(file.name, file.size)
        digest, left = hashlib.sha256(), file.size
        with file.path.open("rb") as source:
            while left:
                block = source.read(min(_BLOCK, left))
                if not block:
                    raise InputError(f"{file.name} became shorter while the backup was made; try again")
                digest.update(block)
                left -= len(block)
                yield block
        yield bytes(-file.size % tarfile.BLOCKSIZE)
        sums[file.name] = digest.hexdigest()
    yield from _small(CHECKSUMS, sums)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _small(name: str, value: Any) -> Iterator[bytes]:
    data = json.dumps(value).encode()
    yield _header(name, len(data)) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    found = tarfile.TarInfo(name)
    found.size, found.mode = size, 0o600
    return found.tobuf(tarfile.GNU_FORMAT)


def extract(source: IO[bytes], directory: Path | None) -> BackupManifest:
    """Writes the files of an archive into an empty directory; without one, only looks whether it is whole.

    Raises InputError for what is no whole archive; the directory is of no use then.
    """
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            return _extract(archive, directory)
    except tarfile.TarError as error:
        raise InputError(f"this is no whole backup ({error}); it may have been cut off, so take another one") from None
    except EOFError:
        raise _cut_off() from None


def _cut_off() -> InputError:
    return InputError("the backup was cut off: it has no checksums at its end; take another one")


def _extract(archive: tarfile.TarFile, directory: Path | None) -> BackupManifest:
    manifest: BackupManifest | None = None
    found: dict[str, str] = {}
    sums: Mapping[str, str] | None = None
    for member in archive:
        if sums is not None:
            raise InputError(f"{member.name!r} follows the checksums; this is no backup as `meander backup` makes them")
        if manifest is None:
            manifest = _manifest_of(_described(archive, member, MANIFEST))
        elif member.name == CHECKSUMS:
            sums = _described(archive, member, CHECKSUMS)
        else:
            found[member.name] = _extract_file(archive, member, directory, found)
    if manifest is None or sums is None:
        raise _cut_off()
    wrong = sorted(name for name in {*sums, *found} if sums.get(name) != found.get(name))
    if wrong:
        raise InputError(f"the backup is damaged: {wrong[0]} is not what was backed up; take another one")
    return manifest


def _manifest_of(told: Any) -> BackupManifest:
    version = told.get("format") if isinstance(told, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise InputError(
            f"the backup has format {version}, and this version of Meander reads up to {FORMAT}; restore it with "
            f"version {told.get('program', '?')} or a newer one"
        )
    return BackupManifest.of_json(told)


def _described(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Any:
    if member.name != name or not _is_plain(member) or member.size > MOST_DESCRIBED:
        raise InputError("this is no backup: it does not begin with a manifest as `meander backup` writes it")
    try:
        return json.loads(_content(archive, member).read())
    except ValueError:
        raise InputError(f"{name} in the backup cannot be read; take another one") from None


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None, "plain files have a content"
    return content


def _extract_file(
    archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path | None, known: Mapping[str, str]
) -> str:
    """Writes one file, new and readable by its owner only; gives its checksum."""
    name = PurePosixPath(member.name)
    if not _is_plain(member):
        raise InputError(f"{member.name!r} in the backup is no plain file; nothing was restored")
    if name.is_absolute() or ".." in name.parts or not name.parts or str(name) != member.name or "\0" in member.name:
        raise InputError(f"{member.name!r} in the backup would be outside of the directory; nothing was restored")
    if member.name in known:
        raise InputError(f"{member.name!r} is in the backup twice; nothing was restored")
    digest, content = hashlib.sha256(), _content(archive, member)
    try:
        with _opened(None if directory is None else directory / name) as file:
            left = member.size
            while left:
                block = content.read(min(_BLOCK, left))
                if not block:
                    raise _cut_off()
                digest.update(block)
                file.write(block)
                left -= len(block)
    except OSError as error:
        raise InputError(f"{member.name!r} cannot be written: {error.strerror}; nothing was restored") from None
    return digest.hexdigest()


def _opened(path: Path | None) -> IO[bytes]:
    if path is None:
        return open(os.devnull, "wb")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
