"""A site's door: other sites pull channels and state from here, the coordinator gives orders here.

Everybody shows who it is before anything is looked at. The server keeps nothing: what was sent and what may be
forgotten follows from what the asker says with its next request.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.commit import Commit
from meander.run.exchange.flight_client import Asker
from meander.run.exchange.flight_proof import COORDINATOR, is_proof
from meander.run.exchange.flight_ranges import RANGES, Range, to_batch
from meander.run.journal import JournalError
from meander.run.store import Store

_log = logging.getLogger(__name__)
WHO = "who"
NAME_HEADER, PROOF_HEADER = "meander-site", "authorization"
MOST_RECORDS = 50_000
"""Of one channel in one range."""
BATCH_BYTES = 1_000_000
"""Ranges that together are smaller travel as one batch."""
LOOK_S = 0.25
CHUNK = pa.schema([pa.field("chunk", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class Asked:
    """Channels that a reader wants over a broker."""

    firsts: Mapping[ChannelId, int]
    """Where its copies end."""
    done: Mapping[ChannelId, int]
    """How far it has processed them."""
    reached: tuple[str, int] | None
    """Up to where it had read what the broker has for it, before: which topic that was, and the next offset."""


class Chunks(Protocol):
    """The state of an operator, cut into chunks."""

    def __len__(self) -> int: ...

    def chunk(self, number: int) -> bytes: ...


class Desk(Protocol):
    """What a site's door opens to: who may have what, and who carries orders out."""

    def may_pull(self, peer: str, channel: ChannelId) -> bool:
        """Whether a site may have a channel's records."""

    def publish(self, reader: str, asked: Asked) -> bool:
        """Lets channels go to a site over a broker; False if they share none."""

    def is_given_away(self, channel: ChannelId) -> bool:
        """Whether another site takes a log over: it stays as it is, and goes whole, whether or not its reader has a
        way."""

    def state(self, peer: str, via: str, number: int, handover: int) -> tuple[Chunks, Sequence[int], int]:
        """State that goes to a site, through another one if `via` differs from it.

        Its chunks, its tables' numbers here, and what tells this export from others.
        """

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        """Carries an order of the coordinator's out; gives the answer."""

    def asker(self, site: str) -> Asker:
        """A way to ask another site, for what is only passed through."""


class _Who(flight.ServerMiddleware):  # type: ignore[misc]
    """Who asks."""

    def __init__(self, peer: str) -> None:
        self.peer = peer


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets nobody in who cannot show who it is."""

    def __init__(self, key: str) -> None:
        self._key = key

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> _Who:
        found = {name.lower(): values[0] for name, values in headers.items() if values}
        peer, shown = found.get(NAME_HEADER), found.get(PROOF_HEADER, "")
        if peer is None or not is_proof(self._key, peer, shown.removeprefix("Bearer ")):
            raise flight.FlightUnauthenticatedError(
                "whoever asks here has to show which site it is; join the coordinator with a token first"
            )
        return _Who(peer)


class Door(flight.FlightServerBase):  # type: ignore[misc]
    """Listens until `shutdown`."""

    def __init__(
        self,
        store: Store,
        desk: Desk,
        key: str,
        location: str = "grpc://127.0.0.1:0",
        certificates: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """`certificates` are a certificate and its key, for addresses with TLS."""
        self._store, self._desk = store, desk
        tls = {"tls_certificates": [flight.CertKeyPair(*pair) for pair in certificates]} if certificates else {}
        try:
            super().__init__(location, middleware={WHO: _Guard(key)}, **tls)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"cannot listen at {location} ({_short(error)}); choose an address of this machine and a free port, "
                "and check the certificate if there is one"
            ) from None

    # ---------------------------------------------------------------- orders

    def do_action(self, context: Any, action: Any) -> list[Any]:
        if _peer(context) != COORDINATOR:
            raise flight.FlightUnauthorizedError(f"orders come from the coordinator, not from {_peer(context)!r}")
        try:
            answer = self._desk.order(action.type, json.loads(action.body.to_pybytes()))
        except InputError as error:
            raise flight.FlightServerError(str(error)) from None
        except JournalError as error:
            raise flight.FlightUnavailableError(str(error)) from None
        return [flight.Result(json.dumps(answer).encode())]

    # ---------------------------------------------------------------- data

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        peer = _peer(context)
        if way := wanted.get("way"):
            return self._passed_through(way, wanted, peer)
        asker = wanted.get("for", peer)
        if "state" in wanted:
            return self._state(asker, peer, wanted)
        return flight.GeneratorStream(RANGES, self._ranges(peer, wanted, context))

    def _passed_through(self, way: Sequence[str], wanted: Mapping[str, Any], peer: str) -> Any:
        """What the next site on the way gives, as it comes."""
        found = self._desk.asker(way[0]).get({**wanted, "way": list(way[1:]), "for": wanted.get("for", peer)})
        return flight.GeneratorStream(found.schema, (piece.data for piece in found))

    def _state(self, asker: str, peer: str, wanted: Mapping[str, Any]) -> Any:
        try:
            chunks, keys, export = self._desk.state(asker, peer, int(wanted["state"]), int(wanted["handover"]))
        except InputError as error:
            raise flight.FlightUnauthorizedError(str(error)) from None
        facts = {"keys": list(keys), "chunks": len(chunks), "export": export}
        schema = CHUNK.with_metadata({"state": json.dumps(facts)})
        first = int(wanted.get("from", 0)) if wanted.get("export", export) == export else 0

        def pieces() -> Iterator[pa.RecordBatch]:
            for number in range(first, len(chunks)):
                yield pa.RecordBatch.from_arrays([pa.array([chunks.chunk(number)], pa.large_binary())], schema=schema)

        return flight.GeneratorStream(schema, pieces())

    def _ranges(self, peer: str, wanted: Mapping[str, Any], context: Any) -> Iterator[pa.RecordBatch]:
        pulls = {ChannelId(int(c)): (int(first), int(done)) for c, (first, done) in wanted["pull"].items()}
        problems = [r for c in pulls if (r := self._refusal(peer, c)) is not None]
        refused = {r.channel for r in problems}
        positions = {c: first for c, (first, _) in pulls.items() if c not in refused and first >= 0}
        done = {c: processed for c, (_, processed) in pulls.items() if c not in refused}
        self._forget(done)
        problems += self._publish(wanted, done, peer)
        if problems:
            yield to_batch(problems)
        deadline = time.monotonic() + float(wanted.get("wait_ms", 0)) / 1000
        left = int(wanted.get("most_bytes", 4_000_000))
        while not context.is_cancelled():
            seen, sent = self._store.commits, False
            for batch, size in self._batches(positions, left):
                yield batch
                left, sent = left - size, True
            remaining = deadline - time.monotonic()
            if sent or left <= 0 or remaining <= 0:
                return
            self._store.wait(seen, min(LOOK_S, remaining))

    def _refusal(self, peer: str, channel: ChannelId) -> Range | None:
        if not self._desk.may_pull(peer, channel):
            return Range.refusal(channel, f"channel {channel} is not for {peer!r}, or not here")
        return None

    def _publish(self, wanted: Mapping[str, Any], done: Mapping[ChannelId, int], peer: str) -> list[Range]:
        """Takes on what is to go over a broker; gives the refusals."""
        reader = str(wanted.get("for", peer))
        firsts = {ChannelId(int(c)): int(first) for c, first in wanted.get("publish", {}).items()}
        mine = {c: first for c, first in firsts.items() if c in done and self._desk.may_pull(reader, c)}
        reached = (str(told[0]), int(told[1])) if (told := wanted.get("reached")) else None
        if mine and not self._desk.publish(reader, Asked(mine, done, reached)):
            return [Range.refusal(c, "this site does not use the same broker now") for c in mine]
        return []

    def _forget(self, done: Mapping[ChannelId, int]) -> None:
        """Lets go of what the readers have processed."""
        exchange, positions = self._store.exchange, dict[ChannelId, int]()
        for channel, position in done.items():
            try:
                spans = exchange.bounds([channel])
                if int(spans[0][0]) < position <= int(spans[1][0]) and not self._desk.is_given_away(channel):
                    positions[channel] = position
            except InputError:
                continue
        if positions:
            try:
                self._store.commit(Commit(consumed=positions))
            except (InputError, JournalError) as error:
                _log.warning("what readers have processed is kept for now: %s", error)

    def _batches(self, positions: dict[ChannelId, int], left: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """What there is from these positions on, which move along; some of every channel, until it is enough."""
        exchange = self._store.exchange
        waiting: list[Range] = []
        size = 0
        for channel, first in list(positions.items()):
            if left <= 0:
                break
            try:
                end = exchange.tail(channel) if self._desk.is_given_away(channel) else exchange.end(channel)
                if first >= end:
                    continue
                found = Range.of(exchange.read(channel, first, min(end, first + MOST_RECORDS)))
            except InputError as error:
                facts = {"begins": exchange.start(channel)} if channel in exchange.channels() else {}
                found = Range.refusal(channel, str(error), **facts)
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


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _peer(context: Any) -> str:
    who = context.get_middleware(WHO)
    assert isinstance(who, _Who)
    return who.peer
