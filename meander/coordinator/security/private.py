"""Files and directories that nobody but their owner may read.

What is open to others is mended, with a warning, where that is possible. A key is never used while others can read it:
somebody may have it by now, so its owner has to hear of it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from meander.model.errors import InputError

_log = logging.getLogger(__name__)
OTHERS = 0o077
OWNERS_DIRECTORY, OWNERS_FILE = 0o700, 0o600
MOST_LOOKED_AT = 100_000
"""Files of one directory whose modes are looked at: below a directory that is closed they are out of reach anyway."""


def keep_private() -> None:
    """Makes this process create files and directories that only its owner can read; for processes of our own."""
    os.umask(OTHERS)


def private_directory(directory: Path) -> None:
    """Makes a directory, or closes one that is there and what is in it to others."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=OWNERS_DIRECTORY)
        if not directory.is_dir():
            raise NotADirectoryError
    except (FileExistsError, NotADirectoryError):
        raise InputError("this is a file, not a directory; choose another", str(directory)) from None
    except OSError as error:
        raise InputError(f"this directory cannot be made: {error.strerror}", str(directory)) from None
    was_open = _mend(directory, OWNERS_DIRECTORY)
    opened = sum(_mend(path, OWNERS_FILE) for path in _files(directory))
    if was_open or opened:
        what = f"and {opened:,} files in it " if opened else ""
        _log.warning("%s %swere open to other users of this machine; they are closed now", directory, what)


def check_key(path: Path) -> None:
    """Raises when others can read a private key. Its group may where root owns it, as mounted secrets are."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"this key cannot be read: {error.strerror}", str(path)) from None
    forbidden = 0o037 if found.st_uid == 0 and os.geteuid() != 0 else OTHERS
    if found.st_mode & forbidden:
        remedy = "run `chmod 600` on it, and make a new one if they may have done so"
        raise InputError(f"others can read this key; {remedy}", str(path))


def write_private(path: Path, text: str) -> None:
    """Replaces a file as a whole; only its owner can ever read it."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS_FILE)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _files(directory: Path) -> Iterator[Path]:
    """Its files and directories, without following links."""
    left = MOST_LOOKED_AT
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            left -= 1
            if left < 0:
                return
            yield Path(parent, name)


def _mend(path: Path, mode: int) -> bool:
    """Closes one to others; says whether it was open."""
    try:
        found = path.lstat().st_mode
        if stat.S_ISLNK(found) or not found & OTHERS:
            return False
        path.chmod(OWNERS_DIRECTORY if stat.S_ISDIR(found) else mode if not found & 0o100 else OWNERS_DIRECTORY)
    except FileNotFoundError:
        return False
    except PermissionError:
        _log.warning("%s is open to others and belongs to another user; let its owner run `chmod -R go-rwx`", path)
        return False
    return True
