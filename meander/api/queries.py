"""Queries: submit, look at, demand, stop."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from meander.api import models
from meander.api.request_checks import KeyOf, ServiceOf, may_change
from meander.api.responses import answered, shown
from meander.coordinator.newest_results import KEPT_ROWS
from meander.coordinator.service import listings

router = APIRouter()
Id = Annotated[str, Path(description="The query's name.", min_length=1, max_length=200)]


@router.get("/queries", responses={200: {"model": list[models.Query]}}, response_class=Response)
async def listed(service: ServiceOf) -> Response:
    """All queries, with their conditions."""
    return shown(list(service.views.queries.values()))


@router.post(
    "/queries",
    status_code=201,
    dependencies=[Depends(may_change)],
    responses={201: {"model": models.Query}},
    response_class=Response,
)
async def submit(service: ServiceOf, body: models.Submission, key: KeyOf) -> Response:
    """Add a query. It is placed and deployed at once; shared operators run already."""
    own = dict(body.adaptation) | ({"first": body.mechanism} if body.mechanism is not None else {})
    return await answered(await asyncio.to_thread(service.changes.submit, body.text, body.name, key, own))


@router.get("/queries/{query}", responses={200: {"model": models.QueryWithDag}}, response_class=Response)
async def described(service: ServiceOf, query: Id) -> Response:
    """A query with its operators, where they run and why."""
    return shown(listings.query(service, query))


@router.get("/queries/{query}/results", responses={200: {"model": models.Results}}, response_class=Response)
def results(service: ServiceOf, query: Id, limit: Annotated[int, Query(ge=1, le=KEPT_ROWS)] = 50) -> Response:
    """The newest results since the coordinator started, newest last; the sink has all of them."""
    return shown(listings.results(service, query, limit))


@router.delete(
    "/queries/{query}",
    status_code=202,
    dependencies=[Depends(may_change)],
    responses={202: {"model": models.Stopped}},
    response_class=Response,
)
async def stop(service: ServiceOf, query: Id, key: KeyOf) -> Response:
    """Stop a query: tuples in flight are processed and delivered, then its resources are freed."""
    return await answered(service.changes.stop(query, key))


@router.put(
    "/queries/{query}/demands",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.Query}},
    response_class=Response,
)
async def demand(service: ServiceOf, query: Id, body: models.Demands, key: KeyOf) -> Response:
    """Change what a query demands."""
    return await answered(await asyncio.to_thread(service.changes.demand, query, body.demands, key))


@router.get("/queries/{query}/join-matrix", responses={200: {"model": models.JoinMatrix}}, response_class=Response)
async def join_matrix(service: ServiceOf, query: Id) -> Response:
    """The producers that join in a query that Nova places."""
    return await answered(service.changes.join_matrix(query))


@router.put(
    "/queries/{query}/join-matrix",
    dependencies=[Depends(may_change)],
    responses={200: {"model": models.Batch}},
    response_class=Response,
)
async def set_join_matrix(service: ServiceOf, query: Id, body: models.Pairs, key: KeyOf) -> Response:
    """Let these producers join from now on, and no others. What runs is cut anew; no pair is lost or made twice."""
    return await answered(service.changes.join_matrix(query, [(a, b) for a, b in body.pairs], key))


@router.post(
    "/queries/{query}/switch",
    status_code=202,
    dependencies=[Depends(may_change)],
    responses={202: {"model": models.Switched}},
    response_class=Response,
)
async def switch(service: ServiceOf, query: Id, body: models.Switch, key: KeyOf, dry_run: bool = False) -> Response:
    """Let another mechanism place a query; its operators move while it runs.

    With `dry_run`, only say what that would take, by this protocol and by all others.
    """
    changes = service.changes
    used = None if dry_run else key
    return await answered(changes.switch(query, body.mechanism, body.protocol, used, dry_run=dry_run))
