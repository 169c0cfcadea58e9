"""Rows of devices: batches for streams whose source is `http`, acknowledged after their commit."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from meander.api.request_checks import IdentityOf, ServiceOf, may_send
from meander.api.responses import shown
from meander.coordinator.problems import ServiceRefusedError, conflict, not_found
from meander.model.errors import unknown
from meander.run.connectors.http_batches import OWNED, NumberConflictError
from meander.run.connectors.http_source import PostedRows

router = APIRouter()
MOST_WAITING = 1_000
"""Requests that wait for a commit at the same time."""


class RowsAnswer(BaseModel):
    accepted: int
    malformed: int


@router.post(
    "/streams/{stream}/rows",
    dependencies=[Depends(may_send)],
    responses={200: {"model": RowsAnswer}},
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}},
        }
    },
)
async def send(
    service: ServiceOf,
    identity: IdentityOf,
    request: Request,
    stream: Annotated[str, Path(max_length=200, description="A stream whose connector is `http`.")],
    node: Annotated[str | None, Query(max_length=200, description="The node that the rows come from.")] = None,
    meander_client: Annotated[
        str | None, Header(max_length=200, description="Tells apart clients with one token.")
    ] = None,
    meander_sequence: Annotated[
        str | None, Header(max_length=18, description="1, 2, ...: a batch that is sent again counts once.")
    ] = None,
) -> Response:
    """Send rows: an array of objects, or an object a line. The answer comes when they are committed."""
    if stream not in service.receivers:
        raise not_found(unknown("stream with connector http", stream, service.receivers, "streams with it"))
    source = service.receivers[stream]
    if not source.is_open:
        raise ServiceRefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"stream {stream!r} is not taken in here now; no query reads it, or a site does",
        )
    if service.sending >= MOST_WAITING:
        raise ServiceRefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many batches wait; send this one again later")
    client = None if meander_sequence is None else f"{identity.name}{OWNED}{meander_client or ''}"
    service.sending += 1
    try:
        body, path = await request.body(), f"?{urlencode({'node': node})}" if node is not None else ""
        post = await asyncio.to_thread(source.read, body, path, client, meander_sequence)
        found = source.offer(post)
        if found is None:
            raise ServiceRefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many rows wait; send this batch again later")
        await _settled(found, source.timeout_s)
    except NumberConflictError as error:
        raise conflict(str(error)) from None
    finally:
        service.sending -= 1
    if not found.committed:
        text = "not committed yet; send this batch again with the same number"
        raise ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return shown({"accepted": found.accepted, "malformed": found.malformed})


async def _settled(post: PostedRows, timeout_s: float) -> None:
    """Returns when the batch is committed or given up, or when that takes too long; no thread waits."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        loop.call_soon_threadsafe(done.set)

    post.on_done.append(told)
    if post.done.is_set():
        return
    try:
        await asyncio.wait_for(done.wait(), timeout_s)
    except TimeoutError:
        return
