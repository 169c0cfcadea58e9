"""Tokens: the rights to look, and to change things. They are kept in a file that only its owner can read."""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from meander.model.errors import InputError


class Role(StrEnum):
    """The rights of a token's owner."""

    READER = "reader"
    OPERATOR = "operator"

    def allows(self, needed: Role) -> bool:
        return self is Role.OPERATOR or needed is Role.READER


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token for each role."""

    reader: str
    operator: str

    @staticmethod
    def fresh() -> Tokens:
        return Tokens(secrets.token_urlsafe(24), secrets.token_urlsafe(24))

    def role_of(self, token: str) -> Role | None:
        """The role of a token, found in a time that does not depend on how much of it is right."""
        given = token.encode()
        operator = hmac.compare_digest(given, self.operator.encode())
        reader = hmac.compare_digest(given, self.reader.encode())
        return Role.OPERATOR if operator else Role.READER if reader else None

    def save(self, path: Path) -> None:
        """Writes a new file that only its owner can ever read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"reader": self.reader, "operator": self.operator}, file, indent=2)

    @staticmethod
    def load(path: Path) -> Tokens:
        try:
            if path.stat().st_mode & 0o077:
                raise InputError("others can read the tokens; run `chmod 600` on this file", str(path))
            found = json.loads(path.read_text(encoding="utf-8"))
            tokens = Tokens(str(found["reader"]), str(found["operator"]))
        except FileNotFoundError:
            raise InputError("there are no tokens here; make the directory with `meander init`", str(path)) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"the tokens cannot be read: {error}; remove the file and run `meander init`", str(path)
            ) from None
        if min(len(tokens.reader), len(tokens.operator)) < 16 or tokens.reader == tokens.operator:
            raise InputError("the two tokens must differ and have at least 16 characters", str(path))
        return tokens
