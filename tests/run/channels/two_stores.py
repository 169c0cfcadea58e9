"""Two stores with doors, as two sites have them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.flight.client import AwayError, FlightClient
from meander.run.channels.flight.proof import PeerAddress, key_of, proof, records_secret
from meander.run.channels.flight.server import FlightServer, PullRequest, StateAnswer, StateRequest
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.store.store import Store

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


@dataclass
class Place:
    """A store, its door, and whom it lets in. Implements `Desk`."""

    name: str
    store: Store
    secret: str = ""
    readers: dict[int, set[str]] = field(default_factory=dict)
    contacts: dict[str, PeerAddress] = field(default_factory=dict)
    exports: dict[tuple[int, int], tuple[str, Any, list[int]]] = field(default_factory=dict)
    orders: list[tuple[str, Any]] = field(default_factory=list)
    door: FlightServer | None = None
    kafka: KafkaExchange | None = None
    broker: str = ""

    @property
    def key(self) -> str:
        return key_of(f"token of {self.name}{self.secret}")

    def open(self, port: int = 0) -> Place:
        self.door = FlightServer(self.store, self, self.key, f"grpc://127.0.0.1:{port}")
        return self

    def close(self) -> None:
        if self.door is not None:
            self.door.shutdown()
        self.store.close()

    @property
    def address(self) -> str:
        assert self.door is not None
        return f"grpc://127.0.0.1:{self.door.port}"

    def knows(self, *others: Place) -> Place:
        for other in others:
            self.contacts[other.name] = PeerAddress(
                other.address, proof(other.key, self.name), other.broker, records_secret(other.key, self.name)
            )
        return self

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return {reader, via} <= self.readers.get(channel, set())

    def publish(self, reader: str, asked: PullRequest) -> bool:
        return self.kafka is not None and self.kafka.publish(reader, asked)

    def is_given_away(self, channel: ChannelId) -> bool:
        return False

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        to, export, keys = self.exports[asked.number, asked.handover]
        if to != reader:
            raise InputError(f"this state is not for {reader!r}")
        return StateAnswer(export, keys, export.digest)

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        self.orders.append((action, dict(body)))
        return {"done": action}

    def client_for(self, site: str) -> FlightClient:
        if site not in self.contacts:
            raise AwayError(f"nobody told where {site} is")
        return FlightClient(self.contacts[site], self.name)


def place(directory: Path, name: str, secret: str = "") -> Place:
    return Place(name, Store.open(directory / name), secret).open()


def rows(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "name": [f"row {i}" for i in ids]}, schema=SCHEMA)
