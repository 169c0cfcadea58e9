"""One process of a chain over which state moves: its source, a relay, or its sink.

    python -m lab.bench.machines.chain '{"role": "relay", ...}'

It prints one line: the address where it listens or, as the sink, how long the state took.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.state.pull import StatePull
from meander.reconfigure.state.transfer import Export
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.proof import PeerAddress, key_of, proof
from meander.run.channels.flight.server import Chunks, FlightServer, PullRequest
from meander.run.store.commit import Commit, StateAppend
from meander.run.store.store import Store, StoreOptions

FRAGMENT, KEY, NUMBER = FragmentId(1), 0, 1
ROW_BYTES = 48
PIECE_ROWS = 100_000
MEMORY_BYTES = 2_000_000_000


class Stop:
    """A place in the chain. Implements `RequestHandler`."""

    def __init__(self, name: str, store: Store, addresses: Mapping[str, str]) -> None:
        self.name, self.store = name, store
        self._askers = {n: FlightClient(PeerAddress(a, proof(key_of(n), name)), name) for n, a in addresses.items()}
        self._export: Export | None = None

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return False

    def publish(self, reader: str, asked: PullRequest) -> bool:
        return False

    def is_given_away(self, channel: ChannelId) -> bool:
        return False

    def state(self, reader: str, via: str, number: int, handover: int) -> tuple[Chunks, list[int], int]:
        if self._export is None:
            self._export = Export(self.store, FRAGMENT, operators=[KEY])
        return self._export, [KEY], self._export.digest

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        raise InputError("nobody gives orders here")

    def asker(self, site: str) -> FlightClient:
        return self._askers[site]


def fill(store: Store, size: int) -> None:
    """State of about this many bytes, as a join remembers it."""
    rng = np.random.default_rng(1)
    for first in range(0, size // ROW_BYTES, PIECE_ROWS):
        count = min(PIECE_ROWS, size // ROW_BYTES - first)
        columns = {f"c{i}": rng.integers(0, 2**60, count) for i in range(ROW_BYTES // 8)}
        append = StateAppend.sliced(pa.table(columns), KEY, [FRAGMENT], [first // PIECE_ROWS], [count])
        store.commit(Commit(state_appends=(append,)))


def run(told: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="meander-chain-") as work:
        options = StoreOptions(memory_budget_bytes=MEMORY_BYTES, disk_budget_bytes=4 * MEMORY_BYTES)
        stop = Stop(told["name"], Store.open(Path(work) / "store", options), told["contacts"])
        if told["role"] == "sink":
            started = time.perf_counter()
            move = StatePull(stop.store, FragmentId(2), NUMBER, 0, [KEY], told["way"], stop.asker)
            move.start()
            done = move.wait(told["timeout_s"])
            found = {"seconds": time.perf_counter() - started, "bytes": move.bytes, "done": done, "error": move.error}
            sys.stdout.write(json.dumps(found) + "\n")
            return
        if told["role"] == "source":
            fill(stop.store, told["size"])
        server = FlightServer(stop.store, stop, key_of(stop.name), f"grpc://{told['host']}:0")
        sys.stdout.write(json.dumps({"address": f"grpc://{told['host']}:{server.port}"}) + "\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
