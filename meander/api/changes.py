"""Change events, nodes that come back, and operators that are moved by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from meander.api import models
from meander.api.request_checks import KeyOf, ServiceOf, may_change
from meander.api.responses import answered, shown
from meander.coordinator.ledger.history import NEWEST
from meander.coordinator.request_values import LARGEST_TIME, LARGEST_WHOLE

router = APIRouter()


@router.post(
    "/events",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.Batch}},
    response_class=Response,
)
async def change(service: ServiceOf, body: models.Events, key: KeyOf, dry_run: bool = False) -> Response:
    """Apply events, all of them or none; with `dry_run`, only return their effect.

    Requests that wait at the same time are carried out as one batch; the answer is about the whole batch.
    """
    changes = service.changes
    if dry_run:
        return await answered(await asyncio.to_thread(changes.dry_run, body.events))
    return await answered(await asyncio.to_thread(changes.apply, body.events, key))


@router.get("/events", responses={200: {"model": list[models.RecordedEvent]}}, response_class=Response)
def events(
    service: ServiceOf,
    since: Annotated[int, Query(ge=-1, le=LARGEST_TIME, description="Only those after this number.")] = NEWEST,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Events with their results, oldest first; without `since`, the newest."""
    return shown(service.history.events(since, limit))


@router.post(
    "/nodes/restore",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.Batch}},
    response_class=Response,
)
async def restore(service: ServiceOf, body: models.NodeNames, key: KeyOf, dry_run: bool = False) -> Response:
    """Bring removed nodes back as they were: their capacity, and their links.

    A link whose other end is away too comes back when both are there. Links that were added or removed in between stay
    as they are.
    """
    return await answered(service.changes.restore(body.nodes, None if dry_run else key, dry_run=dry_run))


@router.post(
    "/nodes/forget",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.Forgotten}},
    response_class=Response,
)
async def forget(service: ServiceOf, body: models.NodeNames, key: KeyOf) -> Response:
    """Removed nodes are not wanted back: their records are dropped, and they are shown no more."""
    return await answered(service.changes.forget(body.nodes, key))


@router.post(
    "/moves",
    status_code=202,
    dependencies=[Depends(may_change)],
    responses={202: {"model": models.Batch}},
    response_class=Response,
)
async def move(service: ServiceOf, body: models.MoveRequest, key: KeyOf) -> Response:
    """Put an operator on a node, where it stays. The node must be there, have room and be reachable."""
    return await answered(service.changes.move(body.operator, body.node, key))


@router.delete(
    "/moves/{operator}",
    status_code=202,
    dependencies=[Depends(may_change)],
    responses={202: {"model": models.Batch}},
    response_class=Response,
)
async def release(
    service: ServiceOf,
    operator: Annotated[int, Path(ge=0, le=LARGEST_WHOLE, description="Its number, as in a query's dag.")],
    key: KeyOf,
) -> Response:
    """Take a move by hand back: the mechanism of the operator's query places it again, now and from now on."""
    return await answered(service.changes.release(operator, key))
