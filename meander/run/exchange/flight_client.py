"""Asking another site: orders, channels and state over one connection that is made anew after a failure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from meander.model.errors import InputError
from meander.run.exchange.flight_proof import Contact

ORDER_S = 15.0
"""How long an order may take until it is asked again."""
PULL_S = 20.0
"""How long a pull may take beyond the time that it waits for something to come."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class AwayError(Exception):
    """Nobody answers there now; asking again later may help."""


class RefusedError(InputError):
    """The other side said no, and why."""


class Asker:
    """One other site, as one of ours asks it. For several threads."""

    def __init__(self, contact: Contact, me: str, authority: bytes | None = None) -> None:
        """`authority` is the certificate of whoever signed the other's; needed where addresses have TLS."""
        self.contact, self._authority = contact, authority
        self._headers = [(b"meander-site", me.encode()), (b"authorization", f"Bearer {contact.proof}".encode())]
        self._lock = threading.Lock()
        self._client: Any = None

    def order(self, action: str, body: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The answer to an order."""
        limit_s = ORDER_S if timeout_s is None else timeout_s
        try:
            client = self._connected()
            wanted = flight.Action(action, json.dumps(body).encode())
            results = list(client.do_action(wanted, self._call(limit_s)))
        except Exception as error:
            raise self._understood(error) from None
        return json.loads(results[0].body.to_pybytes())

    def get(self, ticket: Mapping[str, Any], timeout_s: float | None = None) -> Pieces:
        """What a ticket gives, piece by piece."""
        try:
            client = self._connected()
            limit = PULL_S + float(ticket.get("wait_ms", 0)) / 1000 if timeout_s is None else timeout_s
            reader = client.do_get(flight.Ticket(json.dumps(ticket).encode()), self._call(limit))
            return Pieces(self, reader)
        except Exception as error:
            raise self._understood(error) from None

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                tls = {"tls_root_certs": self._authority} if self._authority is not None else {}
                self._client = flight.FlightClient(self.contact.address, generic_options=_OPTIONS, **tls)
            return self._client

    def _call(self, timeout_s: float) -> Any:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def _understood(self, error: Exception) -> Exception:
        """What an error means; a connection that may be broken is given up."""
        if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
            return RefusedError(_first_line(error))
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | flight.FlightCancelledError):
            self.close()
            return AwayError(f"no answer from {self.contact.address}: {_first_line(error)}")
        if isinstance(error, flight.FlightServerError):
            return RefusedError(_first_line(error))
        if isinstance(error, flight.FlightError | pa.ArrowException | OSError):
            self.close()
            return AwayError(f"no answer from {self.contact.address}: {_first_line(error)}")
        return error


class Pieces:
    """The answer to a ticket as it comes."""

    def __init__(self, asker: Asker, reader: Any) -> None:
        self._asker, self._reader = asker, reader
        self.schema: pa.Schema = self._once(lambda: reader.schema)

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                piece = self._reader.read_chunk()
            except StopIteration:
                return
            except Exception as error:
                raise self._asker._understood(error) from None
            yield piece

    def _once(self, ask: Any) -> Any:
        try:
            return ask()
        except Exception as error:
            raise self._asker._understood(error) from None


def _first_line(error: Exception) -> str:
    """What an error says, without what the libraries below add to it."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    for end in (". Detail:", ". gRPC client debug context:", ". Client context:"):
        text = text.split(end)[0]
    return text.split(" error, with message: ")[-1]
