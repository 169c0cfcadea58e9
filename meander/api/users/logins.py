"""Users: their tokens, and the links that open the page."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from meander.api.request_checks import IdentityOf, ServiceOf, client_of, may_administer
from meander.api.responses import shown
from meander.api.users import models
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.problems import ServiceRefusedError
from meander.coordinator.security.tokens import Identity, role_by
from meander.coordinator.service.service import Service
from meander.model.clock import wall_clock_ms

open_router = APIRouter()
"""For those who have no token yet."""
router = APIRouter()


@open_router.post("/login", responses={200: {"model": models.LoginAnswer}}, response_class=Response)
async def log_in(service: ServiceOf, body: models.LoginCode, request: Request) -> Response:
    """Exchange the code of a link to the page for the token of a session. A code is good once, and for an hour."""
    try:
        token, identity = service.authenticator.log_in(body.code)
    except ServiceRefusedError:
        failed, client = service.authenticator.failed, client_of(request)
        failed.failed(client)
        if failed.is_over(client):
            text = "too many failed logins from here; wait a minute, or use a valid link"
            raise ServiceRefusedError(HTTPStatus.TOO_MANY_REQUESTS, text) from None
        raise
    _note(service, identity, "log in", identity.role.value)
    return shown({"token": token, "name": identity.name, "role": identity.role.value})


@router.get("/tokens", dependencies=[Depends(may_administer)], responses={200: {"model": list[models.UserToken]}},
            response_class=Response)  # fmt: skip
async def tokens(service: ServiceOf) -> Response:
    """List the users who have a token, with their roles."""
    return shown([token.as_json() for token in service.authenticator.tokens.listed()])


@router.post(
    "/tokens",
    status_code=201,
    dependencies=[Depends(may_administer)],
    responses={201: {"model": models.UserTokenCreated}},
    response_class=Response,
)
def make_token(service: ServiceOf, identity: IdentityOf, body: models.UserTokenRequest) -> Response:
    """Make a token for a user. It is shown once; only its hash is kept."""
    service.check_new_user(body.name)
    token = service.authenticator.tokens.make(body.name, role_by(body.role), renew=body.renew)
    if body.renew:
        service.authenticator.sessions.end(body.name)
    _note(service, identity, "make token", f"{body.name}, {body.role}")
    return shown({"name": body.name, "role": body.role, "token": token}, HTTPStatus.CREATED)


@router.delete("/tokens/{name}", status_code=204, dependencies=[Depends(may_administer)], response_class=Response)
def revoke(service: ServiceOf, identity: IdentityOf, name: str) -> Response:
    """A user's token is good no more, at once, and neither are sessions of the page that it opened."""
    service.authenticator.revoke(name)
    _note(service, identity, "revoke token", name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/links", status_code=201, responses={201: {"model": models.PageLink}}, response_class=Response)
async def link(service: ServiceOf, identity: IdentityOf) -> Response:
    """Make a link that opens the page once, with the rights of the requester, at most those of an operator."""
    return shown({"link": "/" + service.authenticator.link(identity)}, HTTPStatus.CREATED)


def _note(service: Service, identity: Identity, did: str, about: str) -> None:
    if service.auditor is not None:
        service.auditor.note(AuditEntry(wall_clock_ms(), identity.name, did, about))
