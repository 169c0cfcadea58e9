"""Numbered batches of clients: which one is next, which ones were taken, and which are somebody else's.

A client numbers its batches one after the other. A number that was taken is acknowledged again if the rows are the
same, and refused aloud if they are not: then two use one name. A number that leaves some out is refused, so nobody can
make a device's next batches look old by sending a great number in its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

from meander.model.errors import InputError

REMEMBERED = 4
"""The newest batches of a client whose contents are known."""
MOST_CLIENTS, MOST_OF_ONE = 1_000, 200
"""Clients of a stream, and those in the name of one user; those that have been silent longest are forgotten first."""
OWNED = "/"
"""Stands between a user and the name of that user's client."""


class Numbering(Enum):
    """The place of a batch among those of its client."""

    NEXT = "next"
    REPEATED = "repeated"


class NumberConflictError(InputError):
    """A number that cannot be the client's next one, and is no repetition."""


class NumberedBatches:
    """The clients of one stream. Not for several threads."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """`saved` is as `saved` gives it; a version before saved the last number alone."""
        self._clients: dict[str, list[tuple[int, str]]] = {
            client: [(found, "")] if isinstance(found, int) else [(int(n), str(content)) for n, content in found]
            for client, found in (saved or {}).items()
        }

    def saved(self) -> dict[str, Any]:
        return {client: [list(each) for each in taken] for client, taken in self._clients.items()}

    def numbering(self, client: str, number: int, content: str, waiting: Mapping[int, str]) -> Numbering:
        """The place of a batch, where those that `waiting` names are on their way; raises NumberConflictError."""
        taken = dict(self._clients.get(client, ()))
        if number in waiting or number in taken:
            if (waiting.get(number) or taken.get(number) or content) != content:
                raise NumberConflictError(
                    f"number {number} of client {client!r} was another batch; two clients use one name, or one of them "
                    f"began anew. Its next number is {self._next(taken, waiting)}"
                )
            return Numbering.REPEATED
        following = self._next(taken, waiting)
        if following is not None and number != following:
            raise NumberConflictError(f"client {client!r} sent number {number}; its next number is {following}")
        return Numbering.NEXT

    def take(self, client: str, number: int, content: str) -> None:
        """The batch goes into the next commit."""
        taken = self._clients.pop(client, None)
        if taken is not None and taken[-1] == (number, content):
            self._clients[client] = taken
            return
        if taken is None:
            taken = []
            self._make_room(client)
        self._clients[client] = [*taken, (number, content)][-REMEMBERED:]

    def _make_room(self, client: str) -> None:
        owner = client.partition(OWNED)[0] if OWNED in client else None
        of_owner = [name for name in self._clients if owner is not None and name.startswith(f"{owner}{OWNED}")]
        if len(of_owner) >= MOST_OF_ONE:
            del self._clients[of_owner[0]]
        elif len(self._clients) >= MOST_CLIENTS:
            del self._clients[next(iter(self._clients))]

    @staticmethod
    def _next(taken: Mapping[int, str], waiting: Mapping[int, str]) -> int | None:
        known = (*taken, *waiting)
        return max(known) + 1 if known else None


def content_of(body: bytes) -> str:
    """A short hash of a batch."""
    return hashlib.sha256(body).hexdigest()[:16]
