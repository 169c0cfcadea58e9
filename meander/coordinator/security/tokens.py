"""Named tokens of users, each with a role. They are shown once, when they are made; the file has their hashes only."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from meander.coordinator.problems import conflict, not_found
from meander.coordinator.request_values import check_name
from meander.coordinator.security.private import OTHERS, write_private
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError, unknown
from meander.model.locks import lock

FORMAT = 2
"""The first one had the texts of two tokens."""
LOCAL, ANONYMOUS = "local", "anonymous"
"""The owner of the directory, as the audit log calls them, and requests without a valid token."""
RESERVED = ("home", "coordinator", "operator", "reader", LOCAL, ANONYMOUS)
"""Names that are not given to users or sites: those of other actors."""
LEAST_CHARACTERS = 16


class Role(StrEnum):
    """The rights of a user: each role may do what those before it may, but a device only sends rows."""

    DEVICE = "device"
    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        order = list(Role)
        if Role.DEVICE in (self, needed):
            return self is needed or order.index(self) >= order.index(Role.OPERATOR)
        return order.index(self) >= order.index(needed)


def role_by(text: str) -> Role:
    """The role of this name.

    >>> role_by("reader")
    <Role.READER: 'reader'>
    """
    if text not in set(Role):
        raise unknown("role", text, set(Role))
    return Role(text)


@dataclass(frozen=True, slots=True)
class Identity:
    """The user behind a request."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A user's token, as it is kept."""

    name: str
    role: Role
    digest: str
    made_ms: int

    def as_json(self) -> dict[str, Any]:
        """Everything but the hash."""
        return {"name": self.name, "role": self.role.value, "made_ms": self.made_ms}


class Tokens:
    """The tokens of one directory, from any thread."""

    def __init__(self, path: Path | None = None, known: Iterable[NamedToken] = ()) -> None:
        """Without a path, they are forgotten with the process."""
        self._path = path
        self._lock = lock("tokens")
        self._by_digest = {token.digest: token for token in known}

    def identity_of(self, token: str) -> Identity | None:
        """The owner of a token. It is found by its hash, so the time that takes says nothing about the token."""
        found = self._by_digest.get(digest(token))
        return None if found is None else Identity(found.name, found.role)

    def listed(self) -> list[NamedToken]:
        return sorted(self._by_digest.values(), key=lambda token: token.name)

    def make(self, name: str, role: Role, *, renew: bool = False) -> str:
        """A new token, which is shown once. An older one of the same name is good no more when `renew` is set."""
        check_name(name, "a user's name")
        if name in RESERVED:
            raise InputError(f"{name!r} is what another actor is called in the audit log; choose another name")
        token = secrets.token_urlsafe(24)
        with self._lock:
            others = [each for each in self._by_digest.values() if each.name != name]
            if not renew and len(others) < len(self._by_digest):
                raise conflict(f"{name!r} has a token already; revoke it first, or renew it")
            self._save([*others, NamedToken(name, role, digest(token), wall_clock_ms())])
        return token

    def revoke(self, name: str) -> None:
        """A token is good no more."""
        with self._lock:
            others = [each for each in self._by_digest.values() if each.name != name]
            if len(others) == len(self._by_digest):
                raise not_found(unknown("token", name, [each.name for each in others]))
            self._save(others)

    def _save(self, known: list[NamedToken]) -> None:
        if self._path is not None:
            write(self._path, known)
        self._by_digest = {token.digest: token for token in known}

    @staticmethod
    def load(path: Path) -> Tokens:
        """Those of a file; one of the first format is brought up to date."""
        try:
            if path.stat().st_mode & OTHERS:
                raise InputError("others can read the tokens; run `chmod 600` on this file", str(path))
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.get("format", 1) not in (1, FORMAT):
                raise InputError("a newer version wrote this; install that version or restore a backup", str(path))
            known = _upgraded(found) if "format" not in found else [_token_of(each) for each in found["tokens"]]
        except FileNotFoundError:
            raise InputError("there are no tokens here; make the directory with `meander init`", str(path)) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the tokens cannot be read: {error}; remove the file and run `meander init`", str(path)
            ) from None
        if "format" not in found:
            write(path, known)
        return Tokens(path, known)


def write(path: Path, known: Iterable[NamedToken] = ()) -> None:
    """Replaces the file as a whole."""
    shown = [{**token.as_json(), "digest": token.digest} for token in known]
    write_private(path, json.dumps({"format": FORMAT, "tokens": shown}, indent=2))


def digest(token: str) -> str:
    """The hash of a token. Tokens are random and long, so a slow hash would protect nothing more."""
    return hashlib.sha256(token.encode()).hexdigest()


def _token_of(found: dict[str, Any]) -> NamedToken:
    return NamedToken(str(found["name"]), Role(found["role"]), str(found["digest"]), int(found["made_ms"]))


def _upgraded(found: dict[str, Any]) -> list[NamedToken]:
    """The two tokens of the first format go on with the rights that they had."""
    reader, operator = str(found["reader"]), str(found["operator"])
    if min(len(reader), len(operator)) < LEAST_CHARACTERS or reader == operator:
        raise ValueError(f"the two tokens must differ and have at least {LEAST_CHARACTERS} characters")
    both = (("reader", Role.READER, reader), ("operator", Role.ADMIN, operator))
    return [NamedToken(name, role, digest(text), 0) for name, role, text in both]
