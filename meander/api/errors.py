"""Every error as problem+json, without a trace of the inside."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.problems import MEDIA_TYPE, problem, status_of
from meander.model.errors import InputError

_log = logging.getLogger(__name__)
_REASON, _MALFORMED = "meander.reason", "meander.malformed"
RETRY_S: dict[int, str] = {HTTPStatus.SERVICE_UNAVAILABLE: "2", HTTPStatus.TOO_MANY_REQUESTS: "60"}
REMEDIES = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address; /api/v1/openapi.json lists what there is",
    HTTPStatus.METHOD_NOT_ALLOWED: "this cannot be done here; /api/v1/openapi.json lists what can",
}


def respond(status: int, detail: str, instance: str, **more: Any) -> Response:
    body = json.dumps(problem(status, detail, instance, **more), ensure_ascii=True)
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    if status in RETRY_S:
        headers["Retry-After"] = RETRY_S[status]
    return Response(body, int(status), headers, MEDIA_TYPE)


def reason_of(scope: MutableMapping[str, Any]) -> str:
    """The reason why the request of this scope was refused, if one of these has answered it."""
    return str(scope.get(_REASON, ""))


def is_malformed(scope: MutableMapping[str, Any]) -> bool:
    """Whether the fields of the request were wrong, so that it was never acted on."""
    return bool(scope.get(_MALFORMED))


def install_errors(app: FastAPI) -> None:
    app.add_exception_handler(InputError, _input)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _input(request: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    more = {"code": error.code.value} if isinstance(error, SiteRefusedError) else {}
    request.scope[_REASON] = str(error)
    return respond(status_of(error), str(error), request.url.path, **more)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = []
    for each in error.errors()[:10]:
        where = " ".join(str(part) for part in each["loc"])
        found.append({"where": where, "reason": str(each["msg"])})
    first = found[0] if found else {"where": "request", "reason": "it is not valid"}
    detail = f"{first['where']}: {first['reason']}"
    request.scope[_REASON], request.scope[_MALFORMED] = detail, True
    return respond(HTTPStatus.UNPROCESSABLE_ENTITY, detail, request.url.path, errors=found)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = REMEDIES.get(status, str(error.detail))
    response = respond(status, detail, request.url.path)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    """A bug, or a disk that is full. The log has the rest under the same number."""
    number = uuid.uuid4().hex[:8]
    _log.error("request %s %s failed (%s)", request.method, request.url.path, number, exc_info=error)
    detail = f"something went wrong inside; the coordinator's log says what, under {number}"
    return respond(HTTPStatus.INTERNAL_SERVER_ERROR, detail, request.url.path)
