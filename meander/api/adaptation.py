"""The adaptation loop over HTTP: its settings, its decisions, and the mechanisms that it can choose from."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from meander.adapt.decisions import DecisionAction
from meander.api import models
from meander.api.queries import Id
from meander.api.request_checks import KeyOf, ServiceOf, may_change
from meander.api.responses import answered, shown
from meander.coordinator.service import listings, steering

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
    return shown(listings.mechanisms(service))


SETTINGS: dict[int | str, dict[str, Any]] = {200: {"model": models.AdaptationSettings}}
Names = Annotated[list[str], Query(description="Only these settings.", default_factory=list)]


@router.get("/adaptation", responses=SETTINGS, response_class=Response)
async def settings(service: ServiceOf) -> Response:
    """The settings of the adaptation loop for all queries, and where each comes from."""
    return shown(steering.show(service))


@router.patch("/adaptation", dependencies=[Depends(may_change)], responses=SETTINGS, response_class=Response)
async def change(service: ServiceOf, body: models.ChangedSettings, key: KeyOf) -> Response:
    """Change settings for all queries, from now on and after a restart; all of them or none."""
    return await answered(steering.change(service, "", body.settings, key))


@router.delete("/adaptation", dependencies=[Depends(may_change)], responses=SETTINGS, response_class=Response)
async def reset(service: ServiceOf, key: KeyOf, name: Names) -> Response:
    """Take back what was set at run time."""
    return await answered(steering.reset(service, "", name, key))


@router.get("/queries/{query}/adaptation", responses=SETTINGS, response_class=Response)
async def settings_of(service: ServiceOf, query: Id) -> Response:
    """The settings that apply to a query."""
    return shown(steering.show(service, query))


@router.patch(
    "/queries/{query}/adaptation", dependencies=[Depends(may_change)], responses=SETTINGS, response_class=Response
)
async def change_of(service: ServiceOf, query: Id, body: models.ChangedSettings, key: KeyOf) -> Response:
    """Change settings for one query; they win over those of all queries."""
    return await answered(steering.change(service, query, body.settings, key))


@router.delete(
    "/queries/{query}/adaptation", dependencies=[Depends(may_change)], responses=SETTINGS, response_class=Response
)
async def reset_of(service: ServiceOf, query: Id, key: KeyOf, name: Names) -> Response:
    """Take back what was set for one query at run time."""
    return await answered(steering.reset(service, query, name, key))
