"""Requests of a site to its coordinator: HTTP with JSON, one connection that is kept, errors told apart.

A coordinator that cannot be reached is `UnreachableError`; one that says no is `RequestRefusedError` with its code.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meander.membership.protocol import Code
from meander.model.errors import InputError
from meander.model.locks import lock

BASE = "/api/v1"
TIMEOUT_S = 10.0
Shown = tuple[Path | None, Path | None]
"""A certificate and its key."""
_CODES = {
    HTTPStatus.UNAUTHORIZED: Code.TOKEN,
    HTTPStatus.FORBIDDEN: Code.NOT_YOURS,
    HTTPStatus.GONE: Code.SESSION,
    HTTPStatus.SERVICE_UNAVAILABLE: Code.UNAVAILABLE,
}


class UnreachableError(Exception):
    """No answer at the address, or no coordinator."""


class RequestRefusedError(InputError):
    """The coordinator said no."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class CoordinatorClient:
    """The coordinator, wherever it is, from any thread."""

    def __init__(
        self,
        url: str,
        token: str,
        ca: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        shown: Shown = (None, None),
    ) -> None:
        """`url` may name several addresses with commas between them: of the coordinator and its standby. `ca` is the
        certificate that signed theirs; without it, those of the system count. `shown` is the certificate to show where
        they ask for one, and its key."""
        self._token, self._timeout_s, self._ca = token, timeout_s, ca
        self._shown = shown
        self._given = [_address(each) for each in url.split(",")]
        self._known = list(self._given)
        self._context = trusting(ca, shown) if any(each.startswith("https") for each in self._given) else None
        self._lock = lock("coordinator client")
        self._connection: HTTPConnection | None = None

    @property
    def url(self) -> str:
        """The address that is asked now."""
        return self._known[0]

    def learn(self, addresses: Sequence[str]) -> None:
        """More addresses at which it may be, now or later."""
        with self._lock:
            known = dict.fromkeys([*self._given, *(each.rstrip("/") for each in addresses)])
            here = self._known[0]
            self._known = [here, *(each for each in known if each != here)]
            if self._context is None and any(each.startswith("https") for each in self._known):
                self._context = trusting(self._ca, self._shown)

    def turn(self) -> None:
        """Asks at the next address from here on."""
        with self._lock:
            self._drop()
            self._known = [*self._known[1:], self._known[0]]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Asks at each address until one answers."""
        for _ in range(len(self._known) - 1):
            try:
                return self._ask(method, path, body)
            except UnreachableError:
                self.turn()
        return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        """Asks once. A connection that was closed meanwhile is opened again once."""
        data = None if body is None else json.dumps(body).encode()
        with self._lock:
            kept = self._connection is not None
            try:
                status, text = self._once(method, path, data)
            except ssl.SSLCertVerificationError as error:
                self._drop()
                raise UnreachableError(
                    f"the certificate of {self.url} is not trusted: {error.verify_message}; give the CA it is from"
                ) from None
            except (OSError, HTTPException) as error:
                self._drop()
                if not kept:
                    raise UnreachableError(f"no coordinator answers at {self.url}: {error}") from None
                try:
                    status, text = self._once(method, path, data)
                except (OSError, HTTPException) as again:
                    self._drop()
                    raise UnreachableError(f"no coordinator answers at {self.url}: {again}") from None
        return self._understood(status, text)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, f"{urlsplit(self.url).path}{BASE}{path}", data, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            return HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context)
        return HTTPConnection(host, port, timeout=self._timeout_s)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _understood(self, status: int, text: bytes) -> Any:
        try:
            found = json.loads(text) if text else None
        except ValueError:
            raise UnreachableError(f"what answers at {self.url} is no coordinator") from None
        if status < 400:
            return found
        if not isinstance(found, dict) or "detail" not in found:
            raise UnreachableError(f"what answers at {self.url} is no coordinator (status {status})")
        if status >= 500 and status != HTTPStatus.SERVICE_UNAVAILABLE:
            raise UnreachableError(f"the coordinator at {self.url} failed: {found['detail']}")
        code = found.get("code")
        known = Code(code) if code in set(Code) else _CODES.get(HTTPStatus(status), Code.INPUT)
        raise RequestRefusedError(known, str(found["detail"]))


def _address(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no address of a coordinator; write one such as https://hub:8420")
    return url.strip().rstrip("/")


def trusting(ca: Path | None, shown: Shown = (None, None)) -> ssl.SSLContext:
    """The TLS context that trusts certificates signed by this authority, and shows one with its key."""
    try:
        found = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"this is no certificate of an authority: {error}", str(ca)) from None
    certificate, key = shown
    if certificate is not None and key is not None:
        try:
            found.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"no certificate with its key: {error}", str(certificate)) from None
    return found
