"""Links to the page that can be used once, and the sessions that they open.

A printed address may end up in a log. So it has no token, but a code that is good for one exchange and for an hour; the
browser gets a token of its own for it, which is good until the process ends, twelve hours at most.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from meander.coordinator.security.tokens import Identity, digest
from meander.model.locks import lock

LINK_S, SESSION_S = 3_600.0, 12 * 3_600.0
MOST = 1_000
"""Links, and sessions, that are known at the same time; the oldest go first."""


class PageSession(NamedTuple):
    """The user who opened a link, and until when that counts."""

    identity: Identity
    until: float


class PageSessions:
    """In memory only, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = lock("page sessions")
        self._links: dict[str, PageSession] = {}
        self._sessions: dict[str, PageSession] = {}

    def link(self, identity: Identity) -> str:
        """A code that opens one session for this user."""
        code = secrets.token_urlsafe(16)
        with self._lock:
            self._put(self._links, code, PageSession(identity, self._clock() + LINK_S))
        return code

    def exchange(self, code: str) -> tuple[str, Identity] | None:
        """The token of a new session; None when the code was used, is too old, or never was one."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            found = self._links.pop(digest(code), None)
            if found is None or found.until < self._clock():
                return None
            self._put(self._sessions, token, PageSession(found.identity, self._clock() + SESSION_S))
        return token, found.identity

    def identity_of(self, token: str) -> Identity | None:
        found = self._sessions.get(digest(token))
        return found.identity if found is not None and found.until >= self._clock() else None

    def end(self, name: str) -> None:
        """The links and sessions of a user whose token was revoked."""
        with self._lock:
            self._links = {key: s for key, s in self._links.items() if s.identity.name != name}
            self._sessions = {key: s for key, s in self._sessions.items() if s.identity.name != name}

    def _put(self, where: dict[str, PageSession], text: str, session: PageSession) -> None:
        now = self._clock()
        for key in [key for key, each in where.items() if each.until < now]:
            del where[key]
        while len(where) >= MOST:
            del where[next(iter(where))]
        where[digest(text)] = session
