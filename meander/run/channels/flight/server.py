"""A site's RPC server: other sites pull channels and state from here, the coordinator gives orders here.

Every client shows its proof before its request is read. The server keeps no state about clients: their next request
says which records they have, and so which may be forgotten.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.budgets import DROPPED
from meander.run.channels.flight.alignment import CopyState, GivenAwayError, align
from meander.run.channels.flight.client import FlightClient, PeerRefusedError
from meander.run.channels.flight.proof import COORDINATOR, FOR, ROUTE, ProofChecker
from meander.run.channels.flight.ranges import RANGES, ChannelRange, to_batch
from meander.run.channels.flight.refusals import Refusals
from meander.run.store.commit import Commit, CommitConflictError
from meander.run.store.journal import JournalError
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
WHO = "who"
NAME_HEADER, PROOF_HEADER = "meander-site", "authorization"
MOST_RECORDS = 50_000
"""Of one channel in one range."""
BATCH_BYTES = 1_000_000
"""Ranges that together are smaller travel as one batch."""
LEAST_BLOCK_BYTES = 4_096
MOST_HOPS = 32
MOST_TICKET_BYTES, MOST_ORDER_BYTES = 16_000_000, 256_000_000
MOST_WANTED_BYTES, MOST_WAIT_MS = 64_000_000, 60_000.0
"""Of one request, whatever it asks for."""
POLL_S = 0.25
SEGMENTS = pa.schema([pa.field("head", pa.string()), pa.field("data", pa.large_binary())])
"""The difference to a replica: a head as JSON, and bytes of a segment."""
CHUNK = pa.schema([pa.field("chunk", pa.large_binary())])
BLOCK = CHUNK.append(pa.field("left", pa.int64()))
"""A piece of a chunk, and how many bytes of the chunk follow it. A relay passes on what it has whole, so with small
pieces many links in a row work at the same time."""


Serve = Callable[[str, Mapping[str, Any], int, float], Iterator[tuple[Mapping[str, Any], bytes]]]
"""The difference between a store and its replica: heads, each with bytes of a segment."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Channels that a reader wants over a broker."""

    firsts: Mapping[ChannelId, int]
    """The ends of its copies."""
    done: Mapping[ChannelId, int]
    """The positions up to which it has processed them."""
    reached: tuple[str, int] | None
    """Up to where it had read what the broker has for it, before: which topic that was, and the next offset."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """State that a site wants from here."""

    number: int
    handover: int
    """The place among the handovers of a change."""
    is_ahead: bool = False
    """Whether it is to be sent while the operator still runs: what changes later is asked for afterwards."""
    after: int | None = None
    """The export that the site has already."""
    first: int = 0
    """The first chunk that is missing."""
    most_bytes: float = math.inf
    """More than that is not wanted."""


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """State that a site gets."""

    chunks: Chunks
    keys: Sequence[int]
    """The numbers of its tables here."""
    export: int
    after: int | None = None
    """The export that it continues; None if it is all of the state."""


class Chunks(Protocol):
    """The state of an operator, cut into chunks."""

    def __len__(self) -> int: ...

    def chunk(self, number: int) -> bytes: ...


class RequestHandler(Protocol):
    """The handler behind the server: decides which site may have what, and carries orders out."""

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        """Whether a site may have a channel's records, through another one if `via` differs from it."""

    def publish(self, reader: str, asked: PullRequest) -> bool:
        """Lets channels go to a site over a broker; False if they share none."""

    def is_given_away(self, channel: ChannelId) -> bool:
        """Whether another site takes a log over: it stays as it is, and goes whole, whether or not its reader has a
        way."""

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        """State that goes to a site, through another one if `via` differs from it."""

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        """Carries an order of the coordinator's out; gives the answer."""

    def client_for(self, site: str) -> FlightClient:
        """The client of another site, for requests that are only passed through."""


class _Who(flight.ServerMiddleware):  # type: ignore[misc]
    """The client of a request."""

    def __init__(self, peer: str) -> None:
        self.peer = peer


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses clients without a valid proof."""

    def __init__(self, proofs: ProofChecker, refusals: Refusals, is_revoked: Callable[[str], bool]) -> None:
        self._proofs, self._refusals, self._is_revoked = proofs, refusals, is_revoked

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> _Who:
        found = {name.lower(): values[0] for name, values in headers.items() if values}
        peer, shown = found.get(NAME_HEADER), found.get(PROOF_HEADER, "")
        if peer is None or not self._proofs.is_shown(peer, shown):
            self._refusals.note(None, "no proof of who it is, or a wrong one", claimed=peer or "")
            raise flight.FlightUnauthenticatedError(
                "a client has to show which site it is; join the coordinator with a token first"
            )
        if self._is_revoked(peer):
            self._refusals.note(peer, "its token was revoked")
            raise flight.FlightUnauthenticatedError(f"the token of {peer!r} was revoked; make it another one")
        return _Who(peer)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Listens until `shutdown`."""

    def __init__(
        self,
        store: Store,
        handler: RequestHandler,
        key: str,
        location: str = "grpc://127.0.0.1:0",
        certificates: Sequence[tuple[bytes, bytes]] = (),
        replica: Serve | None = None,
        clients_signed_by: bytes | None = None,
        is_revoked: Callable[[str], bool] = lambda name: False,
        former_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`certificates` are a certificate and its key, for addresses with TLS; `replica` gives keepers what they
        lack. With `clients_signed_by`, clients have to show a certificate of this authority. Sites
        that are revoked are refused, also through others. `former_key` is the key as the version before made it,
        while the coordinator is of that version."""
        self._is_revoked, self._proofs = is_revoked, ProofChecker(key, former_key)
        self._store, self._handler, self._replica = store, handler, replica
        self.refusals = Refusals()
        tls: dict[str, Any] = (
            {"tls_certificates": [flight.CertKeyPair(*pair) for pair in certificates]} if certificates else {}
        )
        if clients_signed_by is not None:
            tls |= {"verify_client": True, "root_certificates": clients_signed_by}
        try:
            super().__init__(location, middleware={WHO: _Guard(self._proofs, self.refusals, is_revoked)}, **tls)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"cannot listen at {location} ({_short(error)}); choose an address of this machine and a free port, "
                "and check the certificate if there is one"
            ) from None

    # ---------------------------------------------------------------- orders

    def do_action(self, context: Any, action: Any) -> list[Any]:
        if _peer(context) != COORDINATOR:
            raise self._refused(_peer(context), f"orders come from the coordinator, not from {_peer(context)!r}")
        try:
            answer = self._handler.order(action.type, _json(action.body.to_pybytes(), MOST_ORDER_BYTES))
        except PeerRefusedError as error:
            raise flight.FlightServerError(str(error), json.dumps(error.facts).encode()) from None
        except InputError as error:
            raise flight.FlightServerError(str(error)) from None
        except JournalError as error:
            raise flight.FlightUnavailableError(str(error)) from None
        return [flight.Result(json.dumps(answer).encode())]

    def _refused(self, client: str, reason: str) -> Exception:
        self.refusals.note(client, reason)
        refused: Exception = flight.FlightUnauthorizedError(reason)
        return refused

    # ---------------------------------------------------------------- data

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            wanted = _json(ticket.ticket, MOST_TICKET_BYTES)
        except InputError as error:
            raise self._refused(_peer(context), str(error)) from None
        via = _peer(context)
        if route := wanted.get(ROUTE):
            return self._passed_through(route, wanted, via)
        reader = str(wanted.get(FOR, via))
        if self._is_revoked(reader) or (FOR in wanted and not self._proofs.is_signed(reader, wanted)):
            raise self._refused(via, f"{via!r} cannot show that {reader!r} wants this")
        if "state" in wanted:
            return self._state(reader, via, wanted)
        if "replica" in wanted and self._replica is not None:
            return flight.GeneratorStream(SEGMENTS, self._segments(reader, via, wanted))
        return flight.GeneratorStream(RANGES, self._ranges(reader, via, wanted, context))

    def _passed_through(self, route: Sequence[str], wanted: Mapping[str, Any], via: str) -> Any:
        """Yields the answer of the next site on the route, as it comes. The last one decides about access: nothing
        is added here that would let it believe that this site made the request."""
        if not _is_route(route, via):
            raise self._refused(via, f"a route is a list of at most {MOST_HOPS} sites, each once")
        if FOR not in wanted:
            raise self._refused(via, "a request through relays has to be signed by its sender")
        found = self._handler.client_for(route[0]).get({**wanted, ROUTE: list(route[1:])})
        return flight.GeneratorStream(found.schema, (piece.data for piece in found))

    def _state(self, reader: str, via: str, wanted: Mapping[str, Any]) -> Any:
        try:
            after, first = wanted.get("after"), int(wanted.get("from", 0))
            place, is_ahead = int(wanted["handover"]), bool(wanted.get("ahead", False))
            asked = StateRequest(
                int(wanted["state"]),
                place,
                is_ahead,
                None if after is None else int(after),
                first,
                float(wanted.get("most", math.inf)),
            )
            answer = self._handler.state(reader, via, asked)
        except InputError as error:
            raise self._refused(via, str(error)) from None
        chunks, export = answer.chunks, answer.export
        facts = {"keys": list(answer.keys), "chunks": len(chunks), "export": export, "after": answer.after}
        first = first if wanted.get("export", export) == export else 0
        block = max(LEAST_BLOCK_BYTES, int(wanted["block"])) if "block" in wanted else None
        schema = (CHUNK if block is None else BLOCK).with_metadata({"state": json.dumps(facts)})

        def pieces() -> Iterator[pa.RecordBatch]:
            for number in range(first, len(chunks)):
                chunk = chunks.chunk(number)
                if block is None:
                    yield _piece(schema, chunk)
                else:
                    for at in range(0, len(chunk), block):
                        yield _piece(schema, chunk[at : at + block], max(0, len(chunk) - at - block))

        return flight.GeneratorStream(schema, pieces())

    def _segments(self, keeper: str, via: str, wanted: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        left = min(MOST_WANTED_BYTES, int(wanted.get("most_bytes", 4_000_000)))
        wait_s = min(MOST_WAIT_MS, float(wanted.get("wait_ms", 0))) / 1000
        assert self._replica is not None
        try:
            for head, data in self._replica(keeper, wanted["replica"], left, wait_s):
                columns = [pa.array([json.dumps(head)], pa.string()), pa.array([data], pa.large_binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=SEGMENTS)
        except InputError as error:
            raise self._refused(via, str(error)) from None

    def _ranges(self, reader: str, via: str, wanted: Mapping[str, Any], context: Any) -> Iterator[pa.RecordBatch]:
        pulls = {ChannelId(int(c)): (int(first), int(done)) for c, (first, done) in wanted["pull"].items()}
        refused = {
            c: f"channel {c} is not for {_named(reader, via)}, or not here"
            for c in pulls
            if not self._handler.may_pull(reader, via, c)
        }
        for reason in refused.values():  # which is usual while a change is under way
            self.refusals.note(via, reason, level=logging.INFO)
        if damaged := wanted.get("damaged"):
            _log.warning("%s got something damaged, and gets it again: %s", _named(reader, via), str(damaged)[:300])
        problems = [ChannelRange.refusal(channel, reason) for channel, reason in refused.items()]
        positions = {c: first for c, (first, _) in pulls.items() if c not in refused and first >= 0}
        done = {c: processed for c, (_, processed) in pulls.items() if c not in refused}
        problems += (told := self._alignments(wanted, done, positions))
        self._forget(done)
        problems += self._publish(wanted, done, reader)
        if problems:
            yield to_batch(problems)
        wait_ms = (
            0.0 if told else min(MOST_WAIT_MS, float(wanted.get("wait_ms", 0)))
        )  # the copy has something to say to what it is told
        deadline = time.monotonic() + wait_ms / 1000
        left = min(MOST_WANTED_BYTES, int(wanted.get("most_bytes", 4_000_000)))
        while not context.is_cancelled():
            seen, sent = self._store.changes, False
            for batch, size in self._batches(positions, left):
                self._store.syncer.settle()
                yield batch
                left, sent = left - size, True
            remaining = deadline - time.monotonic()
            if sent or left <= 0 or remaining <= 0:
                return
            self._store.wait(seen, min(POLL_S, remaining))

    def _alignments(
        self, wanted: Mapping[str, Any], done: dict[ChannelId, int], positions: dict[ChannelId, int]
    ) -> list[ChannelRange]:
        """The lineages of logs whose copies were last seen in another incarnation.

        What such a reader has processed may be of records that are lost here, so it lets nothing be forgotten.
        """
        told: list[ChannelRange] = []
        for text, (incarnation, tail, head) in wanted.get("incarnations", {}).items():
            if (channel := ChannelId(int(text))) in done:
                try:
                    copy = CopyState(int(incarnation), int(tail), int(head))
                    given_away = self._handler.is_given_away(channel)
                    lineage = align(self._store, channel, copy, is_given_away=given_away)
                    if lineage is not None:
                        chunk = self._store.exchange.read(channel, *[self._store.exchange.tail(channel)] * 2)
                        told.append(ChannelRange.of(chunk, lineage))
                        del done[channel]
                except GivenAwayError:  # what it asks for next may have other numbers there
                    del done[channel]
                    positions.pop(channel, None)
                except (InputError, CommitConflictError, JournalError) as error:
                    _log.warning("a copy of channel %s cannot be compared with its log now: %s", channel, error)
        return told

    def _publish(self, wanted: Mapping[str, Any], done: Mapping[ChannelId, int], reader: str) -> list[ChannelRange]:
        """Accepts channels that are to go over a broker; returns the refusals."""
        firsts = {ChannelId(int(c)): int(first) for c, first in wanted.get("publish", {}).items()}
        mine = {c: first for c, first in firsts.items() if c in done}
        reached = (str(told[0]), int(told[1])) if (told := wanted.get("reached")) else None
        if mine and not self._handler.publish(reader, PullRequest(mine, done, reached)):
            return [ChannelRange.refusal(c, "this site does not use the same broker now") for c in mine]
        return []

    def _forget(self, done: Mapping[ChannelId, int]) -> None:
        """Releases records that the readers have processed."""
        exchange, positions = self._store.exchange, dict[ChannelId, int]()
        for channel, position in done.items():
            try:
                spans = exchange.bounds([channel])
                if int(spans[0][0]) < position <= int(spans[1][0]) and not self._handler.is_given_away(channel):
                    positions[channel] = position
            except InputError:
                continue
        if positions:
            try:
                self._store.commit(Commit(consumed=positions))
            except (InputError, JournalError) as error:
                _log.warning("what readers have processed is kept for now: %s", error)

    def _batches(self, positions: dict[ChannelId, int], left: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yields records from these positions on, which move along; some of every channel, until it is enough."""
        exchange = self._store.exchange
        waiting: list[ChannelRange] = []
        size = 0
        for channel, first in list(positions.items()):
            if left <= 0:
                break
            try:
                end = exchange.tail(channel) if self._handler.is_given_away(channel) else exchange.end(channel)
                end = self._store.released(channel, end)
                if first >= end:
                    continue
                chunk = exchange.read(channel, first, min(end, first + MOST_RECORDS))
                found = ChannelRange.of(chunk, exchange.lineage(channel))
            except InputError as error:
                facts = self._where_it_begins(channel)
                found = ChannelRange.refusal(channel, str(error), **facts)
                del positions[channel]
            else:
                positions[channel] = found.stop
            waiting.append(found)
            size += found.size
            left -= found.size
            if size >= BATCH_BYTES:
                yield to_batch(waiting), size
                waiting, size = [], 0
        if waiting:
            yield to_batch(waiting), size

    def _where_it_begins(self, channel: ChannelId) -> dict[str, Any]:
        """The first record that is there, and whether some before it were dropped."""
        exchange = self._store.exchange
        if channel not in exchange.channels():
            return {}
        sender = exchange.spec(channel).sender
        dropped = sender is not None and self._store.counter(sender, DROPPED) > 0
        return {"begins": exchange.start(channel), "dropped": dropped}


def _piece(schema: pa.Schema, data: bytes, *left: int) -> pa.RecordBatch:
    columns = [pa.array([data], pa.large_binary()), *(pa.array([n], pa.int64()) for n in left)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_route(route: Any, via: str) -> bool:
    """Whether a request can be passed on along this: each site once, and not back to where it comes from."""
    if not isinstance(route, list) or not all(isinstance(site, str) for site in route):
        return False
    return len(route) <= MOST_HOPS and len({*route, via}) == len(route) + 1


def _json(text: bytes, most_bytes: int) -> Any:
    """A request's fields."""
    if len(text) > most_bytes:
        raise InputError(f"a request of {len(text):,} bytes came; at most {most_bytes:,} are read")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"a request came that is no JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise InputError("a request came that is no object")
    return found


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _named(reader: str, via: str) -> str:
    return repr(reader) if reader == via else f"{reader!r} through {via!r}"


def _peer(context: Any) -> str:
    who = context.get_middleware(WHO)
    assert isinstance(who, _Who)
    return who.peer
