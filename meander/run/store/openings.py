"""The openings of a store: it may have lost its end since the last one only on another machine or in another place.

What a process wrote survives the process, so a store that is opened again on a machine that went on running has all of
it. After a start of the machine, or in a directory that was put back from a copy, it may lack what was written last.
"""

from __future__ import annotations

from pathlib import Path

NAME = "opened"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def may_have_lost(directory: Path, kept: Path) -> bool:
    """Whether that is so. `kept` is a file of the directory that is written once only."""
    try:
        return (directory / NAME).read_text() != _opening(kept)
    except (OSError, ValueError):  # it was never opened by this version, the note is damaged, or the disk is a test's
        return True


def remember(directory: Path, kept: Path) -> None:
    """From now on this opening is the last one."""
    partial = directory / f".{NAME}"
    try:
        partial.write_text(_opening(kept))
        partial.replace(directory / NAME)
    except OSError:  # the next opening counts as another life, too
        partial.unlink(missing_ok=True)


def _opening(kept: Path) -> str:
    """Another text after each start of the machine, and in each copy of the directory."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:  # the system does not tell
        boot = "unknown"
    made = kept.stat()
    return f"{boot} {made.st_ino} {made.st_ctime_ns}\n"
