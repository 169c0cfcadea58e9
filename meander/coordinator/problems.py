"""Errors that an HTTP client gets: problem+json, always with one sentence that names the remedy."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from meander.model.errors import InputError

MEDIA_TYPE = "application/problem+json"


class ServiceRefusedError(InputError):
    """Input that cannot be taken, with the HTTP status that says in which way."""

    def __init__(self, status: HTTPStatus, message: str, where: str | None = None) -> None:
        super().__init__(message, where)
        self.status = status


def not_found(error: InputError) -> ServiceRefusedError:
    """Something that was named does not exist."""
    return ServiceRefusedError(HTTPStatus.NOT_FOUND, error.message, error.where)


def conflict(message: str) -> ServiceRefusedError:
    """A request that does not fit the present state."""
    return ServiceRefusedError(HTTPStatus.CONFLICT, message)


def status_of(error: InputError) -> HTTPStatus:
    return error.status if isinstance(error, ServiceRefusedError) else HTTPStatus.UNPROCESSABLE_ENTITY


def problem(status: int, detail: str, instance: str, **more: Any) -> dict[str, Any]:
    """The body of an error."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "instance": instance,
        **more,
    }
