"""The restoration of a backup into an empty directory, so that what starts there can never act beside what ran before.

A restored coordinator begins with an epoch that is greater than any that the sites can have met, since it is taken from
the clock: they refuse the one before from then on. Its numbers of operators, fragments and changes go on far behind
those of the backup, so that none that was given since is given again with another meaning.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.coordinator import epochs
from meander.coordinator.backup.archive import BackupManifest, extract
from meander.coordinator.backup.capture import STORE
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.ledger.migrations import migrate
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import NumbersRecord
from meander.run.store.store import Store

NUMBERS_APART = 1_000_000
"""More operators, fragments or changes than anybody makes between a backup and its restoration."""
NEEDED = ("tokens.json", "topology.yaml")


@dataclass(frozen=True, slots=True)
class Restoration:
    """The backup that a directory was restored from, as the directory remembers it."""

    made_ms: int
    restored_ms: int
    program: str
    epoch: int
    """That of the coordinator of the backup."""

    def as_json(self) -> dict[str, Any]:
        return {
            "made_ms": self.made_ms, "restored_ms": self.restored_ms, "program": self.program, "epoch": self.epoch
        }  # fmt: skip

    @staticmethod
    def of(home: CoordinatorDirectory) -> Restoration | None:
        """The backup that a directory was restored from, if it was."""
        try:
            found: Mapping[str, Any] = json.loads(home.restored.read_text(encoding="utf-8"))
            return Restoration(
                int(found["made_ms"]), int(found["restored_ms"]), str(found["program"]), int(found["epoch"])
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"this says not which backup was restored: {error}; remove it"
            raise InputError(reason, str(home.restored)) from None


def restore(archive: Path, directory: Path) -> BackupManifest:
    """Makes a coordinator's directory from a backup; nothing is there if that fails."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError("this is not empty; restore into a directory that is new or empty", str(directory))
    partial = directory.absolute().parent / f".{directory.absolute().name}.restoring-{secrets.token_hex(4)}"
    try:
        partial.mkdir(mode=0o700, parents=True)
        with archive.open("rb") as source:
            manifest = extract(source, partial)
        _prepare(CoordinatorDirectory(partial), manifest)
        partial.rename(directory)
    except OSError as error:
        raise InputError(f"it cannot be restored: {error.strerror}", str(error.filename or archive)) from None
    except InputError as error:
        raise error.at(str(archive)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _prepare(home: CoordinatorDirectory, manifest: BackupManifest) -> None:
    missing = [name for name in NEEDED if not (home.directory / name).is_file()]
    if missing:
        raise InputError(f"the backup has no {missing[0]}; is it one of a coordinator?")
    now_ms = wall_clock_ms()
    if home.ledger.exists():
        _renumber_ledger(home.ledger, now_ms)
    if (home.directory / STORE).is_dir():
        _renumber_store(home.directory / STORE)
    note = Restoration(manifest.made_ms, now_ms, manifest.program, manifest.epoch)
    home.restored.write_text(json.dumps(note.as_json()), encoding="utf-8")


def _renumber_ledger(path: Path, now_ms: int) -> None:
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            ((answer,),) = db.execute("PRAGMA integrity_check(1)").fetchall()
            if answer != "ok":
                raise InputError(f"its ledger is damaged: {answer}; take another backup")
            migrate(db)
            db.execute("BEGIN IMMEDIATE")
            epochs.leap(db, now_ms)
            highest = "SELECT max(coalesce((SELECT max(operator) FROM placements), 0), coalesce(max(first), 0))"
            last = db.execute(f"{highest}, max(batch), max(at_ms) FROM query_log").fetchone()
            if last[1] is not None:
                row = (last[1], last[2], last[0] + NUMBERS_APART)
                db.execute("INSERT INTO query_log (batch, at_ms, query, text, first) VALUES (?, ?, '', NULL, ?)", row)
            db.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise InputError(f"its ledger cannot be read: {error}; take another backup") from None


def _renumber_store(directory: Path) -> None:
    try:
        store = Store.open(directory)
    except JournalError as error:
        raise InputError(f"its store cannot be read: {error}") from None
    try:
        found = store.record(NumbersRecord) or NumbersRecord(1, 1, 1)
        numbers = (found.fragment, found.channel, found.reconfiguration)
        store.commit(Commit(records=(NumbersRecord(*(number + NUMBERS_APART for number in numbers)),)))
    finally:
        store.close()
