"""The live stream: server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from meander.api.request_checks import ServiceOf
from meander.coordinator.problems import ServiceRefusedError

router = APIRouter()
MOST_WATCHERS = 4_000
KINDS = (
    "topology",
    "positions",
    "moves",
    "reconfiguration",
    "query",
    "query_removed",
    "decision",
    "metrics",
    "health",
)


@router.get(
    "/stream",
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    response_class=StreamingResponse,
)
async def stream(
    service: ServiceOf,
    kinds: Annotated[str | None, Query(max_length=200, description="Only these, between commas.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> StreamingResponse:
    """The events of the service, as they happen: topology, positions, moves, reconfiguration, query, query_removed,
    decision, metrics, health. A client that was away sends `Last-Event-ID` and misses nothing; when it was away for
    too long, `reset` tells it to load everything again."""
    if service.hub.watchers >= MOST_WATCHERS:
        raise ServiceRefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_WATCHERS:,} clients watch already; try again later"
        )
    wanted = None if kinds is None else frozenset(k.strip() for k in kinds.split(","))
    frames: AsyncIterator[bytes] = service.hub.watch(last_event_id, wanted)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)
