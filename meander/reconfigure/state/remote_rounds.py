"""Rounds of a pre-copy between sites: the next place asks the one where the operator runs for what it lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meander.model.ids import FragmentId
from meander.reconfigure.state.job import StateMove
from meander.reconfigure.state.manifest import Manifest
from meander.reconfigure.state.pull import StatePull
from meander.run.channels.flight.client import FlightClient
from meander.run.store.store import Store


@dataclass(eq=False)
class RemoteRounds:
    """Implements `PrecopyRounds`; the source remembers what it has sent and decides whether enough is missing."""

    store: Store
    into: FragmentId
    number: int
    place: int
    """The place among the handovers of change `number`."""
    tables: int
    """How many state tables the operator has."""
    route: Sequence[str]
    client: Callable[[str], FlightClient]
    most_bytes: float = math.inf
    """A larger state is not wanted."""
    _manifest: Manifest | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)

    def begin(self, *, is_first: bool, sent: int) -> StatePull:
        self._round += 1
        after = None if self._manifest is None else self._manifest.digest
        return StatePull(
            self.store,
            self.into,
            self.number,
            self.place,
            range(self.tables),
            self.route,
            self.client,
            ahead=self._round,
            after=after,
            most_bytes=self.most_bytes - sent,
        )

    def ended(self, move: StateMove) -> Manifest | None:
        assert isinstance(move, StatePull)
        if move.export is not None:
            self._manifest = Manifest(move.export, {})
        return self._manifest
