"""The sink of a migration query: takes chunks into the store of the new place and says when the state is complete.

A chunk takes effect once and in order. Until the last one is in, the transfer is not complete, whatever is there
already; the store knows both after a restart too. A cancelled transfer leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.reconfigure.state.transfer import (
    Arrival,
    TransferError,
    cancel_transfer,
    chunks_taken,
    import_state,
    is_cancelled,
    is_complete,
)
from meander.run.store.store import Store


class StateSink:
    """One transfer into one fragment; `keys` gives each operator's state key its new one."""

    def __init__(
        self,
        store: Store,
        fragment: FragmentId,
        transfer: str,
        keys: Mapping[int, int] | None = None,
        after: int | None = None,
    ) -> None:
        """`after` is the export that is there already, if only what changed since is to come."""
        self.after = after
        self.store, self.fragment, self.transfer, self.keys = store, fragment, transfer, keys
        self.rows = 0
        self._complete = is_complete(store, fragment, transfer)
        self._cancelled = is_cancelled(store, fragment, transfer)
        self._lock = lock("state sink")

    @property
    def complete(self) -> bool:
        return self._complete

    def next(self, export: int) -> int:
        """The number of the first chunk of an export that is missing."""
        return chunks_taken(self.store, self.fragment, self.transfer, export)

    def take(self, chunk: bytes | bytearray) -> Arrival:
        """Takes a chunk into the store; raises TransferError, without any effect, for one that does not fit."""
        with self._lock:
            if self._cancelled:
                raise TransferError(f"transfer {self.transfer!r} was cancelled; begin another one under a new name")
            arrival = import_state(self.store, self.fragment, self.transfer, chunk, self.keys, self.after)
            self.rows += 0 if arrival.repeated else arrival.rows
            self._complete = self._complete or arrival.last
            return arrival

    def cancel(self) -> bool:
        """Drops what has arrived, unless the state is complete; says whether nothing of it is left.

        Without `keys` the fragment has no state but this.
        """
        with self._lock:
            if self._complete or self._cancelled:
                return self._cancelled
            operators = self.store.state.operators(self.fragment) if self.keys is None else self.keys.values()
            cancel_transfer(self.store, self.fragment, self.transfer, operators)
            self._cancelled = True
            return True
