"""The server that executors fetch their parts of a batch from, and bring their results to.

A call needs the server's own secret, which is sent with the job; so is its certificate, if it has one. A task's result
is kept under its attempt, so that an attempt that failed half-way, or was made twice, has no effect: the driver takes
those that the job names.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as flight

from meander.model.locks import lock
from meander.run.execution.executors.encryption import Certificate
from meander.run.execution.executors.part import PartsAddress

PROOF_HEADER = "authorization"
BATCH_ROWS = 50_000
"""Rows that are sent at once."""


class Attempt(NamedTuple):
    """One task's try at one part of a batch."""

    part: int
    number: int


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, key: str) -> None:
        self._key = key

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> None:
        shown = next((v[0] for n, v in headers.items() if n.lower() == PROOF_HEADER and v), "")
        if not hmac.compare_digest(shown.encode(), f"Bearer {self._key}".encode()):
            raise flight.FlightUnauthenticatedError("only executors of a job of this site get in here")


class PartsServer(flight.FlightServerBase):  # type: ignore[misc]
    """Listens until `shutdown`."""

    def __init__(self, host: str, bind: str | None = None, certificate: Certificate | None = None) -> None:
        """`host` is where executors reach this machine, `bind` where it listens if that is another address. With a
        certificate it talks in TLS only."""
        key = secrets.token_hex(16)
        scheme = "grpc" if certificate is None else "grpc+tls"
        tls = {} if certificate is None else {"tls_certificates": [flight.CertKeyPair(*certificate)]}
        super().__init__(f"{scheme}://{bind or host}:0", middleware={"guard": _Guard(key)}, **tls)
        shown = None if certificate is None else certificate.certificate
        self.contact = PartsAddress(f"{scheme}://{host}:{self.port}", key, shown)
        self._offered: dict[str, Sequence[pa.Table]] = {}
        self._brought: dict[str, dict[Attempt, list[pa.RecordBatch]]] = {}
        self._lock = lock("parts server")

    def offer(self, tables: Sequence[pa.Table]) -> str:
        """Lets executors fetch these; gives the batch's name."""
        name = secrets.token_hex(8)
        with self._lock:
            self._offered[name], self._brought[name] = tables, {}
        return name

    def brought(self, name: str, attempts: Iterable[Attempt]) -> list[pa.RecordBatch]:
        """The results of the attempts, part by part."""
        with self._lock:
            found = self._brought[name]
            return [batch for attempt in sorted(attempts) for batch in found.get(attempt, ())]

    def forget(self, name: str) -> None:
        with self._lock:
            self._offered.pop(name, None)
            self._brought.pop(name, None)

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        with self._lock:
            tables = self._offered.get(wanted["batch"])
        if tables is None:
            raise flight.FlightServerError("nobody waits for this batch any more")
        table, part, parts = tables[wanted["table"]], int(wanted["part"]), int(wanted["parts"])
        first, stop = (len(table) * p // parts for p in (part, part + 1))
        return flight.GeneratorStream(table.schema, _batches(table.slice(first, stop - first)))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        name, part, number = (p.decode() for p in descriptor.path)
        batches = [chunk.data for chunk in reader]
        with self._lock:
            if name in self._brought:  # not a late attempt at a batch that is over
                self._brought[name][Attempt(int(part), int(number))] = batches


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=BATCH_ROWS)
