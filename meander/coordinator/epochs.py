"""Epochs: which coordinator of a directory may act. The newest start wins, and every site can tell which that is.

The name of a coordinator is signed with a secret of the directory, so that a site cannot make one up to stop another.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
from http import HTTPStatus

from meander.coordinator.problems import ServiceRefusedError
from meander.membership.protocol import Epoch


class SteppedDownError(ServiceRefusedError):
    """This coordinator is not the newest one any more; nothing was written."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message)


def begin(db: sqlite3.Connection, at_ms: int) -> Epoch:
    """Begins a new epoch, within a transaction of the caller."""
    row = db.execute("SELECT number, secret FROM epoch").fetchone()
    number, secret = (row[0] + 1, row[1]) if row is not None else (1, secrets.token_hex(16))
    chance = secrets.token_hex(4)
    epoch = Epoch(number, f"{chance}-{_signature(secret, number, chance)}")
    db.execute("INSERT OR REPLACE INTO epoch VALUES (1, ?, ?, ?, ?)", (number, epoch.coordinator, secret, at_ms))
    return epoch


def leap(db: sqlite3.Connection, at_ms: int) -> None:
    """Lets the next epoch be greater than any that began on another copy of the directory, by the clock: within a
    transaction of the caller."""
    db.execute("UPDATE epoch SET number = max(number, ?)", (at_ms // 1000,))


def newest(db: sqlite3.Connection) -> Epoch | None:
    """The last one that began on this directory."""
    row = db.execute("SELECT number, coordinator FROM epoch").fetchone()
    return None if row is None else Epoch(*row)


def check(db: sqlite3.Connection, mine: Epoch) -> None:
    """Raises when another coordinator has begun since."""
    found = newest(db)
    if found != mine:
        raise SteppedDownError(
            f"a coordinator of epoch {found.number if found else '?'} has taken over this directory; "
            f"this one, of epoch {mine.number}, does nothing any more"
        )


def is_genuine(db: sqlite3.Connection, epoch: Epoch) -> bool:
    """Whether a coordinator of this directory, or of a copy of it, made this epoch."""
    (secret,) = db.execute("SELECT secret FROM epoch").fetchone()
    chance, _, signature = epoch.coordinator.partition("-")
    expected = _signature(secret, epoch.number, chance)
    return hmac.compare_digest(signature.encode(), expected.encode())


def _signature(secret: str, number: int, chance: str) -> str:
    return hmac.new(secret.encode(), f"{number} {chance}".encode(), hashlib.sha256).hexdigest()[:16]
