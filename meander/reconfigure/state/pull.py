"""State on its way here from another site: chunk by chunk, through relays, each chunk once.

It begins again by itself after a break, at the first chunk that is missing, until it is complete or called off.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meander.model.errors import InputError
from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.reconfigure.state.job import MoveState
from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.transfer import TransferError
from meander.run.channels.flight.client import AwayError, FlightClient, ReceivedParts, get_along
from meander.run.store.journal import JournalError
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, PAUSE_S = 0.02, 0.2
"""How long until it asks again, first and at most."""
WATCH_MS = 5.0
CHUNKS_S = 120.0
"""How long one attempt may take; the next one goes on where it ended."""
BLOCK_BYTES = 128_000
"""Relays pass on pieces of chunks that are so large: smaller ones cost more than their transport."""
MOST_REFUSALS = 25
"""After so many refusals in a row without a chunk in between nothing will come any more."""


class StatePull:
    """Implements `StateMove` for state that is fetched."""

    def __init__(
        self,
        store: Store,
        into: FragmentId,
        number: int,
        place: int,
        keys: Sequence[int],
        route: Sequence[str],
        client_for: Callable[[str], FlightClient],
        *,
        ahead: int | None = None,
        after: int | None = None,
        most_bytes: float = math.inf,
    ) -> None:
        """`keys` are the numbers that the operator's state tables have here, in the order of the tables.

        `ahead` is the number of a round, while the operator still runs; `after` the export that is here already. More
        than `most_bytes` is not wanted.
        """
        self.bytes = self.chunks = 0
        self.export: int | None = None
        """The manifest of this place when this is done; None if nothing came, because too little was missing."""
        self.error: str | None = None
        self._is_ahead, self._after, self._most = ahead is not None, after, most_bytes
        self._store, self._into, self._number, self._place = store, into, number, place
        self._keys, self._route, self._client_for = tuple(keys), tuple(route), client_for
        self._transfer = f"reconfiguration {number}" if ahead is None else f"ahead {ahead}"
        self._sink = StateSink(store, into, self._transfer)
        self._total = 0
        self._state = MoveState.DONE if self._sink.complete else MoveState.WAITING
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._taking = lock("state pull")
        self._pieces: ReceivedParts | None = None
        self._thread = threading.Thread(target=self._run, name=f"state {number}.{place}", daemon=True)

    @property
    def state(self) -> MoveState:
        return self._state

    @property
    def done(self) -> bool:
        return self._state is MoveState.DONE

    @property
    def progress(self) -> float:
        return 1.0 if self.done else self.chunks / self._total if self._total else 0.0

    @property
    def seconds(self) -> float:
        return 0.0

    def start(self) -> None:
        if self._state is MoveState.WAITING:
            self._state = MoveState.MOVING
            self._thread.start()

    def poll(self) -> float | None:
        """Nothing to do: a thread does it all."""
        return None if self._state.ended else WATCH_MS

    def wait(self, timeout_s: float | None = None) -> bool:
        self._ended.wait(timeout_s)
        return self.done

    def cancel(self) -> bool:
        """Stops, at once: nothing is taken any more. What has arrived is dropped with the place it arrived at.

        The thread may wait a while longer for somebody who has fallen silent; nobody waits for the thread.
        """
        self._stopping.set()
        with self._taking:
            if not self.done:
                self._state = MoveState.CANCELLED
        if (pieces := self._pieces) is not None:
            pieces.cancel()
        return not self.done

    def _run(self) -> None:
        refusals, pause_s = 0, FIRST_PAUSE_S
        while not self._stopping.is_set() and not self.done:
            before = self.chunks
            try:
                self._fetch()
            except (AwayError, TransferError, JournalError) as error:
                self.error = str(error)
            except InputError as error:  # the other side may not be there yet: it is asked again for a while
                self.error = str(error)
                refusals = 0 if self.chunks > before else refusals + 1
                if refusals >= MOST_REFUSALS:
                    self._end(MoveState.FAILED)
                    _log.warning("state of change %d does not come: %s", self._number, error)
                    break
            except Exception as error:
                _log.exception("fetching state failed; it is tried again")
                self.error = str(error)
            if not self.done:
                self._stopping.wait(pause_s)
                pause_s = min(PAUSE_S, 2 * pause_s)
        self._ended.set()

    def _fetch(self) -> None:
        ticket: dict[str, Any] = {"state": self._number, "handover": self._place, "from": self.chunks}
        ticket |= {"block": BLOCK_BYTES, "ahead": self._is_ahead, "after": self._after}
        if self._most < math.inf:
            ticket["most"] = round(self._most)
        pieces = self._pieces = get_along(self._route, ticket, self._client_for, CHUNKS_S)
        facts = json.loads(pieces.schema.metadata[b"state"])
        keys = dict(zip(sorted(facts["keys"]), self._keys, strict=True))
        with self._taking:
            if self._stopping.is_set():
                return
            self._sink = StateSink(self._store, self._into, self._transfer, keys, facts.get("after"))
            self._total = int(facts["chunks"])
            if self._is_ahead and not self._total:
                self._state = MoveState.DONE
                return
            self._check(facts.get("after"))
            self.export = int(facts["export"])
            self.chunks = self._sink.next(int(facts["export"]))
            if self._sink.complete:
                self._state = MoveState.DONE
                return
        for chunk in _whole(pieces):
            with self._taking:
                if self._stopping.is_set():
                    return
                arrival = self._sink.take(chunk)
                self.bytes += len(chunk)
                self.chunks = max(self.chunks, arrival.chunk + 1)
                if arrival.last:
                    self._state = MoveState.DONE
                    return

    def _check(self, after: int | None) -> None:
        """Refuses a difference to another state than the one that is here."""
        if after is not None and after != self._after:
            raise TransferError(f"state of change {self._number} comes as what changed since a state that is not here")

    def _end(self, state: MoveState) -> None:
        with self._taking:
            if not self._state.ended:
                self._state = state


def _whole(pieces: ReceivedParts) -> Iterator[bytes]:
    """The chunks of which pieces come. A site that knows no pieces gives whole ones."""
    begun: list[bytes] = []
    for piece in pieces:
        data = piece.data
        begun.append(data.column(0)[0].as_py())
        if data.num_columns == 1 or not data.column(1)[0].as_py():
            yield begun[0] if len(begun) == 1 else b"".join(begun)
            begun.clear()
