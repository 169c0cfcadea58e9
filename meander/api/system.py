"""Health, metrics, and resuming."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from meander.api import models
from meander.api.request_checks import ServiceOf, may_administer, may_change
from meander.api.responses import shown
from meander.coordinator.metrics import CONTENT_TYPE, exposition

ARCHIVE = "application/x-tar"
STREAM = "application/x-meander-round"
open_router = APIRouter()
router = APIRouter()
metrics_router = APIRouter()


@open_router.get("/health", responses={200: {"model": models.Health}}, response_class=Response)
async def health(service: ServiceOf) -> Response:
    """Whether the coordinator runs, and its problems. Needs no token."""
    return shown(service.health())


@router.get(
    "/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}, response_class=Response
)
def metrics(service: ServiceOf) -> Response:
    """Metrics in Prometheus' text format; also at `/metrics`."""
    return Response(exposition(service), media_type=CONTENT_TYPE)


@router.get("/doctor", responses={200: {"model": models.Examination}}, response_class=Response)
def doctor(service: ServiceOf) -> Response:
    """Compare the running fragments, here and at all sites, with the catalog; lists the differences."""
    return shown(service.hosts.doctor())


@router.post(
    "/resume",
    dependencies=[Depends(may_change)],
    responses={200: {"model": list[models.Resumed]}},
    response_class=Response,
)
def resume(service: ServiceOf, body: models.ResumeRequest) -> Response:
    """Try failed parts that are paused again: streams, sink bindings and fragments, here and at all sites."""
    return shown(service.hosts.resume(body.name))


@router.post(
    "/backup",
    dependencies=[Depends(may_administer)],
    responses={200: {"content": {ARCHIVE: {"schema": {"type": "string", "format": "binary"}}}}},
    response_class=Response,
)
def backup(service: ServiceOf) -> Response:
    """A backup of all that the coordinator needs to start again, as it is now, tokens included: a tar archive for
    `meander restore`. Everything runs on meanwhile."""
    return StreamingResponse(service.backup(), media_type=ARCHIVE)


@router.post(
    "/standby/follow",
    dependencies=[Depends(may_administer)],
    responses={200: {"content": {STREAM: {"schema": {"type": "string", "format": "binary"}}}}},
    response_class=Response,
)
def follow(service: ServiceOf, body: models.FollowRequest) -> Response:
    """All that a standby lacks of this coordinator, tokens included; waits for a moment if that is nothing."""
    return StreamingResponse(service.follow(body.model_dump()), media_type=STREAM)


metrics_router.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response)
