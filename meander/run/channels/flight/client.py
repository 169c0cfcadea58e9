"""Asking another site: orders, channels and state over one connection that is made anew after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.run.channels.flight.proof import FOR, ROUTE, ClientProof, PeerAddress

ORDER_S = 15.0
"""The time after which an order without an answer is given up."""
PULL_S = 20.0
"""The time that a pull may take beyond its own waiting time."""
MOST_MESSAGE_BYTES = 1_000_000_000
"""Of one batch that another site sends; a range has 50,000 records at most, and a chunk of state far less."""
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
]


class AwayError(Exception):
    """No answer from the other site; asking again later may help."""


class PeerRefusedError(InputError):
    """The other side said no, and why; `facts` are for programs."""

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.facts = facts or {}


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The authority that signed the others' certificates, and the certificate to show where they ask for one."""

    authority: bytes | None = None
    pair: tuple[bytes, bytes] | None = None

    def options(self, address: str) -> dict[str, Any]:
        if not address.startswith("grpc+tls://"):
            return {}
        found: dict[str, Any] = {} if self.authority is None else {"tls_root_certs": self.authority}
        return found | ({} if self.pair is None else {"cert_chain": self.pair[0], "private_key": self.pair[1]})


class FlightClient:
    """The client of one other site. For several threads.

    A connection is never closed while a thread may use it, which would end the process: a thread that gives it up drops
    its reference, and it is closed with the last answer that comes over it.
    """

    def __init__(self, peer: PeerAddress, me: str, tls: ClientTls | None = None) -> None:
        """`tls` is needed where addresses have it."""
        self.peer, self._me, self._tls = peer, me, tls or ClientTls()
        self._requests = ClientProof(peer.proof)
        self._lock = lock("flight client")
        self._client: Any = None

    def order(self, action: str, body: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The answer to an order."""
        limit_s = ORDER_S if timeout_s is None else timeout_s
        client = self._connected()
        try:
            wanted = flight.Action(action, json.dumps(body).encode())
            results = list(client.do_action(wanted, self._call(limit_s)))
        except Exception as error:
            raise self._understood(error, client) from None
        return json.loads(results[0].body.to_pybytes())

    def get(self, ticket: Mapping[str, Any], timeout_s: float | None = None) -> ReceivedParts:
        """Yields the chunks of a ticket."""
        client = self._connected()
        try:
            limit = PULL_S + float(ticket.get("wait_ms", 0)) / 1000 if timeout_s is None else timeout_s
            reader = client.do_get(flight.Ticket(json.dumps(ticket).encode()), self._call(limit))
            return ReceivedParts(reader, lambda error: self._understood(error, client))
        except Exception as error:
            raise self._understood(error, client) from None

    def signed(self, ticket: Mapping[str, Any]) -> dict[str, Any]:
        """A ticket for this site that others may pass on."""
        return self._requests.signed({**ticket, FOR: self._me})

    def close(self) -> None:
        """Drops the connection: requests in flight end by themselves; the next one makes a new connection."""
        with self._lock:
            self._client = None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                tls = self._tls.options(self.peer.address)
                try:
                    self._client = flight.FlightClient(self.peer.address, generic_options=_OPTIONS, **tls)
                except (flight.FlightError, pa.ArrowException, OSError) as error:
                    raise AwayError(f"no way to {self.peer.address}: {_first_line(error)}") from None
            return self._client

    def _give_up(self, client: Any) -> None:
        """A connection that may be broken; not the one that others have made meanwhile."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _call(self, timeout_s: float) -> Any:
        shown = self._requests.shown()
        headers = [(b"meander-site", self._me.encode()), (b"authorization", shown.encode())]
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)

    def _understood(self, error: Exception, client: Any) -> Exception:
        """Translates an error; a connection that may be broken is given up."""
        if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
            return PeerRefusedError(_first_line(error))
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | flight.FlightCancelledError):
            self._give_up(client)
            return AwayError(f"no answer from {self.peer.address}: {_first_line(error)}")
        if isinstance(error, flight.FlightServerError):
            return PeerRefusedError(_first_line(error), _facts(error))
        if isinstance(error, flight.FlightError | pa.ArrowException | OSError):
            self._give_up(client)
            return AwayError(f"no answer from {self.peer.address}: {_first_line(error)}")
        return error


def get_along(
    route: Sequence[str],
    ticket: Mapping[str, Any],
    client_of: Callable[[str], FlightClient],
    timeout_s: float | None = None,
) -> ReceivedParts:
    """Yields the answer of the last site of a route; those before it only pass it on."""
    if len(route) > 1:
        ticket = {**client_of(route[-1]).signed(ticket), ROUTE: list(route[1:])}
    return client_of(route[0]).get(ticket, timeout_s)


class ReceivedParts:
    """The answer to a ticket as it comes."""

    def __init__(self, reader: Any, understood: Callable[[Exception], Exception]) -> None:
        """`understood` translates errors; it keeps the connection for as long as there is this."""
        self._reader, self._understood = reader, understood
        self.schema: pa.Schema = self._once(lambda: reader.schema)

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                piece = self._reader.read_chunk()
            except StopIteration:
                return
            except Exception as error:
                raise self._understood(error) from None
            yield piece

    def cancel(self) -> None:
        """Ends it, from any thread: a thread that waits for the next chunk gets an error."""
        self._reader.cancel()

    def _once(self, ask: Any) -> Any:
        try:
            return ask()
        except Exception as error:
            raise self._understood(error) from None


def _facts(error: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(error.extra_info or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _first_line(error: Exception) -> str:
    """The message of an error, without the additions of libraries."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    for end in (". Detail:", ". gRPC client debug context:", ". Client context:"):
        text = text.split(end)[0]
    return text.split(" error, with message: ")[-1]
