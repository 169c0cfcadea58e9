"""The adaptation loop over HTTP: its decisions, and the mechanisms that it can choose from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from meander.adapt.decisions import DecisionAction
from meander.api import models
from meander.api.guards import ServiceOf
from meander.api.responses import shown
from meander.coordinator.service import listings

router = APIRouter()
Limit = Annotated[int, Query(ge=1, le=1000)]
OfQuery = Annotated[str | None, Query(min_length=1, max_length=200, description="Only this query's.")]
MOVING = frozenset({DecisionAction.SWITCH.value, DecisionAction.ARRIVED.value, DecisionAction.FAILED.value})


@router.get("/decisions", responses={200: {"model": list[models.Decision]}}, response_class=Response)
def decisions(service: ServiceOf, query: OfQuery = None, limit: Limit = 200) -> Response:
    """Everything that was decided, with the numbers behind it, oldest first."""
    return shown(service.history.decisions(limit, query))


@router.get("/transitions", responses={200: {"model": list[models.Decision]}}, response_class=Response)
def transitions(service: ServiceOf, query: OfQuery = None, limit: Limit = 200) -> Response:
    """Only the switches from mechanism to mechanism: begun, arrived or failed."""
    found = [d for d in service.history.decisions(5_000, query) if d["action"] in MOVING]
    return shown(found[-limit:])


@router.get("/predictions", responses={200: {"model": models.Predictions}}, response_class=Response)
async def predictions(service: ServiceOf) -> Response:
    """Where mobile nodes are expected to go next, what is prepared for that, and what came of earlier expectations."""
    return shown(listings.predictions(service))


@router.get("/mechanisms", responses={200: {"model": list[models.Mechanism]}}, response_class=Response)
async def mechanisms(service: ServiceOf) -> Response:
    """The placement mechanisms there are, in the order people should try them."""
    return shown(listings.mechanisms())
