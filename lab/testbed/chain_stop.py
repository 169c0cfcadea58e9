"""One process of a chain over which state moves. It gives state to those behind it, and takes it from those before it.

    python -m lab.testbed.chain_stop NAME HOST

It prints the address where it listens. Then it answers each line of its standard input, a command as JSON, with a line.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
from meander.run.channels.flight.server import FlightServer, PullRequest, StateAnswer, StateRequest
from meander.run.store.commit import Commit, StateAppend
from meander.run.store.store import Store, StoreOptions

FRAGMENT, KEYS = FragmentId(1), (0, 1)
"""The join whose state moves, and its two tables."""
ROW_BYTES = 48
PIECE_ROWS = 100_000
MEMORY_BYTES = 2_000_000_000


class Stop:
    """A place in the chain. Implements `RequestHandler`."""

    def __init__(self, name: str, host: str, directory: Path) -> None:
        self.name, self._directory = name, directory
        self._clients: dict[str, FlightClient] = {}
        self._store = self._opened("store")
        self._exports: dict[int, Export] = {}
        self._server = FlightServer(self._store, self, key_of(name), f"grpc://{host}:0")
        self._state: Store | None = None
        """The state that is here, in a store of its own for each transfer."""
        self._named = ""
        self.address = f"grpc://{host}:{self._server.port}"

    # ---------------------------------------------------------------- for other stops

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return False

    def publish(self, reader: str, asked: PullRequest) -> bool:
        return False

    def is_given_away(self, channel: ChannelId) -> bool:
        return False

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        if self._state is None:
            raise InputError(f"{self.name!r} has no state")
        if asked.number not in self._exports:
            self._exports = {asked.number: Export(self._state, FRAGMENT, operators=KEYS)}
        export = self._exports[asked.number]
        return StateAnswer(export, KEYS, export.digest)

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        raise InputError("a stop takes no orders")

    def client_for(self, site: str) -> FlightClient:
        return self._clients[site]

    # ---------------------------------------------------------------- for the bench

    def commanded(self, command: Mapping[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "meet":
                found = command["addresses"].items()
                self._clients = {
                    n: FlightClient(PeerAddress(a, proof(key_of(n), self.name)), self.name) for n, a in found
                }
            case "fill":
                store = self._emptied("filled")
                for append in joined(command["bytes"] // ROW_BYTES):
                    store.commit(Commit(state_appends=(append,)))
                return self._size(store)
            case "expect":
                self._emptied(f"transfer-{command['number']}")
            case "pull":
                return self._pulled(command["number"], command["path"], command["timeout_s"])
        return {}

    def _pulled(self, number: int, path: Sequence[str], timeout_s: float) -> dict[str, Any]:
        assert self._state is not None
        move = StatePull(self._state, FRAGMENT, number, 0, KEYS, path, self.client_for)
        move.start()
        done = move.wait(timeout_s)
        return {"done": done, "sent": move.bytes, "error": move.error, **self._size(self._state)}

    def _size(self, store: Store) -> dict[str, int]:
        size = store.state.size(FRAGMENT)
        return {"rows": size.rows, "bytes": size.bytes}

    def _emptied(self, name: str) -> Store:
        """A new store instead of the one with the last transfer's state."""
        self._exports.clear()
        if self._state is not None:
            self._state.close()
            shutil.rmtree(self._directory / self._named)
        self._state, self._named = self._opened(name), name
        return self._state

    def _opened(self, name: str) -> Store:
        options = StoreOptions(memory_budget_bytes=MEMORY_BYTES, disk_budget_bytes=4 * MEMORY_BYTES)
        return Store.open(self._directory / name, options)


def joined(rows: int) -> Iterator[StateAppend]:
    """State as a join remembers it: half of the rows from either side, of windows one after the other."""
    rng = np.random.default_rng(1)
    for number, first in enumerate(range(0, rows, PIECE_ROWS)):
        count = min(PIECE_ROWS, rows - first)
        columns = {f"c{i}": rng.integers(0, 2**60, count) for i in range(ROW_BYTES // 8)}
        yield StateAppend.sliced(pa.table(columns), KEYS[number % 2], [FRAGMENT], [number // 2], [count])


def serve(name: str, host: str) -> None:
    with tempfile.TemporaryDirectory(prefix="meander-stop-") as work:
        stop = Stop(name, host, Path(work))
        _say({"address": stop.address})
        for line in sys.stdin:
            _say(stop.commanded(json.loads(line)))


def _say(found: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
