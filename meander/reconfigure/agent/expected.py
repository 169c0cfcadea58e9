"""Changes that are expected on a host, because a mobile node will probably move: they are prepared and nothing else.

Nothing stops, nothing is decided, nothing is remembered. When the change comes, with a number and fragments of its own,
it finds plans ready and the bulk of its state there. What is not expected any more is dropped; so is everything when
nobody asks for it any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.preparation import PartPreparation
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.messages import Done, KeepAhead, PartStatus, PartStatuses, PrepareAhead
from meander.run.failures import reason_of

_log = logging.getLogger(__name__)
FORGOTTEN_MS = 30_000.0
"""How long expected changes are kept that nobody asks for."""


class ExpectedChanges:
    """Those of one host, by number. Guarded by the agent's lock."""

    def __init__(self, preparation: PartPreparation, mover: StateMover, clock_ms: Callable[[], float]) -> None:
        self.changes: dict[int, InFlightChange] = {}
        self._preparation, self._mover, self._clock_ms = preparation, mover, clock_ms
        self._asked_ms = clock_ms()

    def prepare(self, message: PrepareAhead) -> Done:
        """Begins to prepare; what cannot be is refused, and costs nothing."""
        refused: dict[int, str] = {}
        self._asked_ms = self._clock_ms()
        for part in message.parts:
            if part.number in self.changes:
                continue
            try:
                change = self._preparation.bind(part)
                self._send(change, message.most_bytes)
                self._preparation.make_plans(change)
            except Exception as error:  # the change itself will say what is wrong, if it comes
                refused[part.number] = reason_of(error)
            else:
                self.changes[part.number] = change
        return Done(refused)

    def _send(self, change: InFlightChange, most_bytes: int) -> None:
        mover = self._mover
        for handover in mover.goes_ahead(change, is_expected=True):
            left = most_bytes - mover.precopies.held_bytes(handover.destination)
            if left > 0:
                mover.send_ahead(change, handover, left)

    def keep(self, message: KeepAhead) -> PartStatuses:
        """Drops all others; says how far these are."""
        self._asked_ms = self._clock_ms()
        self._give_up([n for n in self.changes if n not in message.numbers])
        found: dict[int, PartStatus] = {}
        for number, change in self.changes.items():
            sent, moved = self._mover.precopies.status_of(number)
            ready = change.preparing is None or change.preparing.done()
            found[number] = PartStatus(prepared=ready and sent, moved=moved)
        return PartStatuses(found)

    def tidy(self) -> None:
        """Drops everything when nobody asks for it."""
        if self.changes and self._clock_ms() - self._asked_ms > FORGOTTEN_MS:
            self._give_up(list(self.changes))

    def _give_up(self, numbers: list[int]) -> None:
        self._mover.precopies.give_up(numbers)
        for number in numbers:
            del self.changes[number]
