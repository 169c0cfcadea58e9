"""The refusal of a site: a sentence for people, a code for programs, a status for HTTP."""

from __future__ import annotations

from http import HTTPStatus

from meander.coordinator.problems import ServiceRefusedError
from meander.membership.protocol import Code

STATUS = {
    Code.TOKEN: HTTPStatus.UNAUTHORIZED,
    Code.NOT_YOURS: HTTPStatus.FORBIDDEN,
    Code.CLAIMED: HTTPStatus.CONFLICT,
    Code.TWICE: HTTPStatus.CONFLICT,
    Code.EPOCH: HTTPStatus.CONFLICT,
    Code.PROTOCOL: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.CLOCK: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.INPUT: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.SESSION: HTTPStatus.GONE,
}


class SiteRefusedError(ServiceRefusedError):
    """The request of a site is refused."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(STATUS[code], message)
        self.code = code
