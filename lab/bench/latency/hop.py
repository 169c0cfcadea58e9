"""A hop between two sites on one machine: from a commit at the sender to the commit of the copy at the reader.

The product's own transport, two stores in this process: the sender's server, the reader's puller, proofs and positions.
What the reader has is processed at once, so that each request says how far the sender may forget.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.proof import PeerAddress, key_of, proof
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.server import FlightServer, PullRequest, StateAnswer, StateRequest
from meander.run.store.commit import Commit
from meander.run.store.records.transport import CopyRecord
from meander.run.store.store import Store

SENDER, READER = "sender", "reader"
CHANNEL = ChannelId(1)
SCHEMA = pa.schema([("id", pa.int64()), ("speed", pa.float64())])
LONGEST_S = 5.0


class _Sender:
    """Implements `RequestHandler` for one reader and its channel."""

    def __init__(self, store: Store, key: str) -> None:
        self.server = FlightServer(store, self, key)

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return reader == READER

    def publish(self, reader: str, asked: PullRequest) -> bool:
        return False

    def is_given_away(self, channel: ChannelId) -> bool:
        return False

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        raise InputError("no state moves here")

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        raise InputError("no orders are taken here")

    def client_for(self, site: str) -> FlightClient:
        raise InputError("nothing is passed on here")


def hop_ms(directory: Path, batches: int, rows: int, pause_s: float) -> npt.NDArray[np.float64]:
    """For each of so many batches the time until the copy has it."""
    sender, reader = Store.open(directory / SENDER), Store.open(directory / READER)
    for store in (sender, reader):
        store.commit(Commit(add=(ChannelSpec(CHANNEL, SCHEMA),)))
    reader.commit(Commit(records=(CopyRecord(CHANNEL, (SENDER,)),)))
    key = key_of("bench")
    server = _Sender(sender, key).server
    client = FlightClient(PeerAddress(f"grpc://127.0.0.1:{server.port}", proof(key, READER)), READER)
    pulling = Pulling(reader, lambda site: client)
    pulling.refresh()
    found = []
    try:
        for number in range(batches):
            table = pa.table({"id": np.arange(rows), "speed": np.arange(rows) / 2}, schema=SCHEMA)
            began = time.perf_counter()
            sender.commit(Commit(appends=(ChannelAppend.one(CHANNEL, table),)))
            _await(reader, (number + 1) * rows, began + LONGEST_S)
            found.append((time.perf_counter() - began) * 1000)
            reader.commit(Commit(consumed={CHANNEL: (number + 1) * rows}))
            time.sleep(pause_s)
    finally:
        pulling.stop()
        client.close()
        server.shutdown()
        sender.close()
        reader.close()
    return np.array(found)


def _await(store: Store, tail: int, deadline: float) -> None:
    while True:
        seen = store.changes
        if store.exchange.tail(CHANNEL) >= tail:
            return
        if time.perf_counter() >= deadline:
            raise TimeoutError(f"a copy did not get its {tail} records")
        store.wait(seen, 1.0)
