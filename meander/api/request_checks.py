"""The checks of every request: size limit, headers, and rights.

All of them are asynchronous although nothing waits: FastAPI runs plain functions in other threads, and every change of
thread waits for the interpreter, which costs more than all checks together.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meander.api.errors import respond
from meander.coordinator.core.commands import Key
from meander.coordinator.problems import ServiceRefusedError
from meander.coordinator.security.tokens import Identity, Role
from meander.coordinator.service.service import Service

MOST_BYTES = 1_000_000
MOST_THROWN_AWAY = 16_000_000
"""So much of a body that is too large is read and thrown away: who still sends cannot read why it was refused."""
LONGEST_KEY = 200
SECURITY = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    b"connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}

_bearer = HTTPBearer(auto_error=False, description="A token of `meander token make`.")


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(service_of)]


def client_of(request: Request) -> str:
    """The address that a request comes from; a proxy's, if there is one in front."""
    return request.client.host if request.client is not None else ""


async def identity_of(
    request: Request,
    service: ServiceOf,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
) -> Identity:
    """The user who asks."""
    if given is None:
        raise ServiceRefusedError(
            HTTPStatus.UNAUTHORIZED, "send `Authorization: Bearer TOKEN`; `meander token make` makes one"
        )
    found = service.authenticator.identity_of(given.credentials)
    if found is None:
        if service.authenticator.failed.is_over(client_of(request)):
            raise ServiceRefusedError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many failed logins from here; wait a minute, or use a valid token"
            )
        raise ServiceRefusedError(
            HTTPStatus.UNAUTHORIZED, "this token is not known; `meander token list` shows who has one"
        )
    return found


IdentityOf = Annotated[Identity, Depends(identity_of)]


async def may_read(identity: IdentityOf) -> None:
    """Lets everybody read but devices, which only send rows."""
    _check(identity, Role.READER)


async def may_send(identity: IdentityOf) -> None:
    """Devices may send rows, and operators."""
    _check(identity, Role.DEVICE)


async def may_change(identity: IdentityOf) -> None:
    """Only operators and administrators may change things."""
    _check(identity, Role.OPERATOR)


async def may_administer(identity: IdentityOf) -> None:
    """Only administrators say who may do what, and see what was done."""
    _check(identity, Role.ADMIN)


def _check(identity: Identity, needed: Role) -> None:
    if not identity.role.allows(needed):
        raise ServiceRefusedError(
            HTTPStatus.FORBIDDEN,
            f"this needs the role {needed.value}, and {identity.name!r} has the role {identity.role.value}; "
            "`meander token make` makes tokens with other roles",
        )


async def key_of(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=LONGEST_KEY, description="The same request with the same key has one effect."),
    ] = None,
) -> Key | None:
    """The identity of this request, if the client gives one."""
    if idempotency_key is None:
        return None
    body = await request.body()
    head = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return Key(idempotency_key, hashlib.sha256(head + body).hexdigest())


KeyOf = Annotated[Key | None, Depends(key_of)]


class Headers:
    """Puts the security headers on every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        api = scope["path"].startswith("/api/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                headers.extend(SECURITY.items())
                if api and not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        await self.app(scope, receive, with_headers)


class SizeLimit:
    """Refuses bodies that are too large, whether they say so or not."""

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not said.isdigit() or int(said) > MOST_THROWN_AWAY:
            await self._refuse(scope, receive, send)
            return
        body, size = bytearray(), 0
        more = read = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        while more and size <= MOST_THROWN_AWAY:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            part = message.get("body", b"")
            size += len(part)
            if max(size, int(said)) <= self.most_bytes:
                body += part
            more = message.get("more_body", False)
        if max(size, int(said)) > self.most_bytes:
            await self._refuse(scope, receive, send)
            return
        pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}] if read else []

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self.app(scope, replay, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"the request is too large; at most {self.most_bytes:,} bytes are taken, so send less at a time"
        response = respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, scope["path"])
        response.headers["connection"] = "close"
        await response(scope, receive, send)
