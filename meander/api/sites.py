"""Sites: how they join, are heard of and leave; their tokens; and the audit log.

What writes runs in a thread of the pool, because it waits for the decision core or the disk. Heartbeats do neither.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.responses import Response

from meander.api import site_models as models
from meander.api.request_checks import IdentityOf, ServiceOf, may_administer, may_change
from meander.api.responses import shown
from meander.coordinator.membership import checks
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.records import Heartbeat
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import Pass
from meander.coordinator.request_values import LARGEST_TIME
from meander.membership.protocol import Description, Epoch
from meander.model.clock import wall_clock_ms

site_router = APIRouter()
"""For sites, with their own tokens."""
router = APIRouter()
_bearer = HTTPBearer(auto_error=False, scheme_name="SiteToken", description="A token of `meander site token create`.")
LONGEST = 300


async def pass_of(
    service: ServiceOf, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> Pass:
    """The site that asks."""
    return service.sites.admit(None if given is None else given.credentials)


PassOf = Annotated[Pass, Depends(pass_of)]


async def check_protocol(service: ServiceOf, given: PassOf, request: Request) -> None:
    """Before anything else is looked at: another version may have other fields."""
    try:
        body = await request.json()
    except ValueError:
        return  # it is told what is wrong with it where it is read
    if isinstance(body, dict) and isinstance(body.get("protocol"), int):
        try:
            checks.check_protocol(body["protocol"])
        except SiteRefusedError as error:
            if service.auditor is not None:
                about = str(body.get("site", ""))[:LONGEST]
                service.auditor.note(AuditEntry(wall_clock_ms(), given.site, "join", about, f"refused: {error}"))
            raise


@site_router.post(
    "/sites",
    status_code=201,
    dependencies=[Depends(check_protocol)],
    responses={201: {"model": models.Registered}},
    response_class=Response,
)
def register(service: ServiceOf, given: PassOf, body: models.Registration) -> Response:
    """A site joins, or joins again: its nodes are there from now on. Needs the site's own token."""
    nodes = tuple(node.model_dump(exclude_none=True) for node in body.nodes)
    said = Description(body.site, nodes, body.address, body.instance, body.version, body.broker or "", body.protocol)
    return shown(service.sites.register(given, said, body.now_ms, _epoch(body.seen)), HTTPStatus.CREATED)


@site_router.post("/sites/{site}/heartbeats", responses={200: {"model": models.Heard}}, response_class=Response)
async def heartbeat(service: ServiceOf, given: PassOf, site: str, body: models.Heartbeat) -> Response:
    """A site is there. Needs the site's own token."""
    said = Heartbeat(body.session, body.protocol, body.now_ms, body.measures.model_dump())
    return shown(service.sites.heartbeat(given, site, said, _epoch(body.seen)))


@site_router.post("/sites/{site}/drain", responses={200: {"model": models.Heard}}, response_class=Response)
def drain(service: ServiceOf, given: PassOf, site: str, body: models.DrainRequest) -> Response:
    """Operators are moved away from a site's nodes, as far as possible. Needs the site's own token."""
    return shown(service.sites.drain(given, site, body.session, _epoch(body.seen)))


@site_router.delete("/sites/{site}", responses={200: {"model": models.Heard}}, response_class=Response)
def leave(service: ServiceOf, given: PassOf, site: str, session: Annotated[str, Query(max_length=200)]) -> Response:
    """A site leaves, and its nodes with it. Needs the site's own token."""
    return shown(service.sites.leave(given, site, session))


@site_router.post("/sites/{site}/restore", responses={200: {"model": models.RestoreAnswer}}, response_class=Response)
def restore(service: ServiceOf, given: PassOf, site: str, body: models.RestoreRequest) -> Response:
    """A site that starts asks where it gets its store from, if not from its disk. Needs the site's own token."""
    checks.check_own(given, site)
    return shown({"restore": service.replicas.restore(site, body.instance)})


@router.get("/sites", responses={200: {"model": list[models.SiteShown]}}, response_class=Response)
def sites(service: ServiceOf) -> Response:
    """All sites, also those that have a token and were never here."""
    return shown([_with_replicas(service, each) for each in service.sites.roster.shown()])


@router.get("/sites/{site}", responses={200: {"model": models.SiteShown}}, response_class=Response)
def site(service: ServiceOf, site: str) -> Response:
    """One site, with its last measures."""
    return shown(_with_replicas(service, service.sites.roster.site(site)))


@router.post(
    "/sites/{site}/release",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.SiteShown}},
    response_class=Response,
)
def release(service: ServiceOf, identity: IdentityOf, site: str) -> Response:
    """Take a site's nodes from it: it is not expected back, and another site may have them."""
    service.sites.release(site, identity.name)
    return shown(service.sites.roster.site(site))


@router.post(
    "/sites/{site}/forget",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.ForgetAnswer}},
    response_class=Response,
)
def forget(service: ServiceOf, identity: IdentityOf, site: str) -> Response:
    """Give up a site whose directory is lost for good: what ran there goes on elsewhere, or can be stopped."""
    return shown(service.replicas.forget(site, identity.name))


@router.get(
    "/site-tokens",
    dependencies=[Depends(may_administer)],
    responses={200: {"model": list[models.TokenShown]}},
    response_class=Response,
)
def tokens(service: ServiceOf) -> Response:
    """List the sites that have a token, with their nodes."""
    return shown([given.as_json() for given in service.sites.store.passes()])


@router.post(
    "/site-tokens",
    status_code=201,
    dependencies=[Depends(may_administer)],
    responses={201: {"model": models.TokenCreated}},
    response_class=Response,
)
def make_token(service: ServiceOf, identity: IdentityOf, body: models.TokenRequest) -> Response:
    """Make a token for a site. It is shown once; only its hash is kept."""
    token = service.sites.make_token(body.site, body.nodes, identity.name, renew=body.renew)
    return shown({"site": body.site, "nodes": body.nodes, "token": token}, HTTPStatus.CREATED)


@router.delete("/site-tokens/{site}", status_code=204, dependencies=[Depends(may_administer)], response_class=Response)
def revoke(service: ServiceOf, identity: IdentityOf, site: str) -> Response:
    """A site's token is good no more; if the site is there, its nodes go."""
    service.sites.revoke(site, identity.name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get(
    "/audit",
    dependencies=[Depends(may_administer)],
    responses={200: {"model": list[models.AuditEntry]}},
    response_class=Response,
)
def audit(
    service: ServiceOf,
    since: Annotated[int, Query(ge=0, le=LARGEST_TIME, description="Only those after this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the newest entries of the audit log, oldest first."""
    if service.auditor is not None:
        service.auditor.flush()
    return shown(service.sites.store.audit.newest(limit, since))


def _with_replicas(service: ServiceOf, site: dict[str, Any]) -> dict[str, Any]:
    """A site, with its replicas where it has some."""
    replicas = service.replicas_of(site["site"])
    return site if replicas is None else {**site, "replicas": replicas}


def _epoch(seen: models.SiteSeen | None) -> Epoch | None:
    return None if seen is None else Epoch(seen.epoch, seen.coordinator)
