"""The topology over HTTP: nodes, links, streams, sinks, and where operators and fragments run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from meander.api import models
from meander.api.request_checks import ServiceOf
from meander.api.responses import shown
from meander.coordinator.service import listings

router = APIRouter()


@router.get("/topology", responses={200: {"model": models.Topology}}, response_class=Response)
async def topology(service: ServiceOf) -> Response:
    """All nodes and links. Nodes that left are there with `alive: false`."""
    return shown(service.views.topology())


@router.get("/positions", responses={200: {"model": dict[str, models.Position]}}, response_class=Response)
async def positions(service: ServiceOf) -> Response:
    """List the positions of moving things, if there are any."""
    return shown(service.positions.newest)


@router.get("/streams", responses={200: {"model": list[models.Stream]}}, response_class=Response)
async def streams(service: ServiceOf) -> Response:
    """List the streams that queries can read."""
    return shown(listings.streams(service))


@router.get("/sinks", responses={200: {"model": list[models.SinkTarget]}}, response_class=Response)
async def sinks(service: ServiceOf) -> Response:
    """List the sinks that can take results."""
    return shown(listings.sinks(service))


@router.get("/samples", responses={200: {"model": list[models.Sample]}}, response_class=Response)
async def samples(service: ServiceOf) -> Response:
    """Queries to begin with."""
    return shown([{"title": title, "text": text} for title, text in service.samples])


@router.get("/placements", responses={200: {"model": list[models.Placement]}}, response_class=Response)
async def placements(service: ServiceOf) -> Response:
    """List the operators with the nodes on which they are to run, and the reasons."""
    return shown(listings.placements(service))


@router.get("/deployment", responses={200: {"model": models.Deployment}}, response_class=Response)
async def deployment(service: ServiceOf) -> Response:
    """The fragments that run, and the channels between them."""
    return shown(service.views.deployment)


@router.get("/reconfigurations", responses={200: {"model": list[models.Reconfiguration]}}, response_class=Response)
def reconfigurations(service: ServiceOf, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """The newest reconfigurations, oldest first."""
    return shown(service.history.reconfigurations(limit))
