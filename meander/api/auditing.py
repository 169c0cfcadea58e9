"""The audit of requests: every request that would change something, and every one that was not allowed, is written
down.

Sites join and leave through the membership, which writes that down itself; heartbeats are too many and say nothing.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meander.api.errors import is_malformed, reason_of
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.security.tokens import ANONYMOUS
from meander.coordinator.service.service import Service
from meander.model.clock import wall_clock_ms

LOOKING = ("GET", "HEAD", "OPTIONS")
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
LONGEST = 300
FOLLOW = "/standby/follow"


class Audited:
    """Passes requests on and notes what became of them."""

    def __init__(self, app: ASGIApp, service: Service, base: str) -> None:
        self.app, self.service, self.base = app, service, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self.base):
            await self.app(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, int(message["status"]))
            await send(message)

        await self.app(scope, receive, noting)

    def _note(self, scope: Scope, status: int) -> None:
        auditor = self.service.auditor
        if auditor is None or status == HTTPStatus.TOO_MANY_REQUESTS:
            return
        unwritten: int | None = 0
        if status == HTTPStatus.UNAUTHORIZED:
            unwritten = self.service.authenticator.failed.failed((scope.get("client") or ("",))[0])
        if unwritten is None or not (status in REFUSED or scope["method"] not in LOOKING):
            return
        who = self.service.who(_token(scope))
        path = scope["path"].removeprefix(self.base)
        if path == FOLLOW and status not in REFUSED:  # of a standby, many times a second
            return
        noted = path == "/sites" or (path.startswith("/sites/") and status not in REFUSED)
        if noted and who != ANONYMOUS and not is_malformed(scope):  # the membership has done so, or it is a heartbeat
            return
        if path == "/login" or (path.startswith("/tokens") and status < HTTPStatus.BAD_REQUEST):  # they have done so
            return
        outcome = ": ".join(filter(None, (str(status), reason_of(scope))))
        if unwritten:
            outcome = f"{unwritten} more before; {outcome}"
        auditor.note(AuditEntry(wall_clock_ms(), who, scope["method"], path[:LONGEST], outcome[:LONGEST]))


def _token(scope: Scope) -> str | None:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    kind, _, token = given.decode("latin-1").partition(" ")
    return token if kind.lower() == "bearer" and token else None
