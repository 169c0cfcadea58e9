"""An executor's side: it fetches its part of a batch before the stage's plan, and brings the result after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as flight
from pyspark import TaskContext

Batches = Iterator[pa.RecordBatch]
BROUGHT = pa.schema([("part", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
"""A task's report of the result that it has brought."""


CERTIFIED = "meander-parts"
"""The name in the certificate of a parts server, wherever it is."""


@dataclass(frozen=True, slots=True)
class PartsAddress:
    """The address of a parts server, what a job's tasks show there, and the certificate that it has, if it has one."""

    address: str
    secret: str
    certificate: bytes | None = None


class PartsServerUnreachableError(Exception):
    """An executor could not fetch its part, or could not bring its result: for a reason that is not in the data."""


def fetching(contact: PartsAddress, batch: str, table: int, parts: int) -> Callable[[Batches], Batches]:
    """Turns the numbers of parts into the rows of those parts of one of the batch's tables."""

    def fetch(numbers: Batches) -> Batches:
        with _connected(contact) as client:
            for part in (n for found in numbers for n in found.column(0).to_pylist()):
                wanted = {"batch": batch, "table": table, "part": part, "parts": parts}
                for chunk in client.do_get(flight.Ticket(json.dumps(wanted).encode()), _authorised(contact)):
                    yield chunk.data

    return fetch


def bringing(contact: PartsAddress, batch: str) -> Callable[[Batches], Batches]:
    """Turns the rows of a part of the result into a report of where they went."""

    def bring(result: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        part, attempt, rows = context.partitionId(), context.taskAttemptId(), 0
        first = next(result, None)
        if first is not None:
            path = flight.FlightDescriptor.for_path(batch, str(part), str(attempt))
            with _connected(contact) as client:
                writer, _ = client.do_put(path, first.schema, _authorised(contact))
                with writer:
                    writer.write_batch(first)
                    rows += first.num_rows
                    for chunk in result:
                        writer.write_batch(chunk)
                        rows += chunk.num_rows
        yield pa.RecordBatch.from_arrays([pa.array([v]) for v in (part, attempt, rows)], schema=BROUGHT)

    return bring


@contextmanager
def _connected(contact: PartsAddress) -> Iterator[flight.FlightClient]:
    try:
        tls = {"tls_root_certs": contact.certificate, "override_hostname": CERTIFIED} if contact.certificate else {}
        with flight.FlightClient(contact.address, **tls) as client:
            yield client
    except flight.FlightError as error:
        raise PartsServerUnreachableError(f"{contact.address}: {error}") from error


def _authorised(contact: PartsAddress) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {contact.secret}".encode())])
