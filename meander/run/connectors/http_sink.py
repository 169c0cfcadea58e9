"""`http`: results as POST requests, at least once. Rows are numbered, so that a receiver can leave out rows that it
has.

A batch that was begun is sent again with exactly the same rows and numbers until it is answered with 2xx.
"""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pyarrow as pa

from meander.run.connectors.base import ConnectorError, SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.json_rows import json_lines
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import by_address

FIRST_ROW, ROWS, QUERY, SINK = "Meander-First-Row", "Meander-Rows", "Meander-Query", "Meander-Sink"


class HttpCallback:
    """Implements `SinkConnector`."""

    fixed_ranges = True

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        options = ConnectorOptions(binding.target.options, f"sink {binding.target.name!r}")
        self._url = options.required("url", "http://127.0.0.1:8000/results")
        if not self._url.startswith(("http://", "https://")):
            raise options.wrong("url", "an address that begins with http:// or https://")
        self._timeout_s = (options.duration("timeout", 10_000) or 0) / 1000
        self._token = options.secret("token")
        if self._token is not None and not self._url.startswith("https://") and not _is_local(self._url):
            raise options.wrong("url", "an address that begins with https://, as a token goes there")
        self._names = {QUERY: binding.query, SINK: binding.target.name}
        self._shown: dict[str, str] = {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Goes on behind the position: requests that were sent cannot be withdrawn."""
        if self._token is not None:
            self._shown = {"Authorization": f"Bearer {self._token.read()}"}

    def write(self, table: pa.Table, first: int) -> Any:
        numbers = {FIRST_ROW: str(first), ROWS: str(len(table)), "Content-Type": "application/x-ndjson"}
        request = urllib.request.Request(
            self._url, json_lines(table), self._names | numbers | self._shown, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                response.read()
        except urllib.error.HTTPError as error:
            raise ConnectorError(f"{self._url} answered {error.code} {error.reason}") from None
        except OSError as error:
            raise ConnectorError(f"{self._url} does not answer: {error}") from None
        return None

    def close(self) -> None:
        """Each batch is a request of its own."""


def _is_local(url: str) -> bool:
    return urllib.parse.urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def make(binding: SinkBinding, surroundings: Surroundings) -> HttpCallback:
    return HttpCallback(binding, surroundings)


KIND = SinkKind(
    make,
    (
        ConnectorOption("url", "where to POST lines of JSON"),
        ConnectorOption("token", "where the token to show is: `env:NAME` or `secret:PATH`", "none"),
        ConnectorOption("timeout", "how long to wait for an answer", "10 s"),
    ),
    by_address,
)
