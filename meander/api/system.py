"""Health, metrics, and resuming."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response

from meander.api import models
from meander.api.guards import ServiceOf, may_change
from meander.api.responses import shown
from meander.coordinator.metrics import CONTENT_TYPE, exposition

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


metrics_router.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response)
