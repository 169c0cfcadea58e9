"""The writing of answers: JSON once, without a second validation by the framework."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from meander.coordinator.core.commands import ANSWER_S, Answer
from meander.coordinator.problems import ServiceRefusedError


def shown(value: Any, status: int = HTTPStatus.OK) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(text.encode(), int(status), media_type="application/json")


async def answered(answer: Future[Answer]) -> Response:
    """Waits for the core without holding a thread."""
    try:
        status, body = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), ANSWER_S)
    except TimeoutError:
        reason = "there is no answer yet; it goes on, and the same Idempotency-Key gets the answer later"
        raise ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason) from None
    return shown(body, status)
