"""State on its way to a host's fragments: by a strategy from another node of the host, by pull from another host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from meander.deploy.contexts import Handover
from meander.model.errors import InputError
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.state.precopies import Precopies
from meander.reconfigure.agent.state.rebuilding import kept_input
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.state import Job, MoveState, StateMove, StateStrategy, state_strategy
from meander.reconfigure.state.migration_query import MIGRATION_QUERY
from meander.reconfigure.state.pull import StatePull
from meander.run.channels.flight.client import FlightClient
from meander.run.host import Host

_log = logging.getLogger(__name__)
NO_ROUTE = "there is no way for the state of an operator to its new node"
NOT_HERE = "state did not come from another site"


class StateMover:
    """Starts the moves of changes that may start, and says how they are."""

    def __init__(
        self, host: Host, paths: Paths | None, strategy: str, clock: Callable[[], float], *, background: bool
    ) -> None:
        """Without `paths` the host's nodes are one process: within it state only changes its name."""
        self.host, self.paths, self.background = host, paths, background
        self._clock = clock
        self.strategy = state_strategy(strategy)
        self.backup: UpstreamBackup | None = None
        self.client: Callable[[str], FlightClient] | None = None
        """The clients of other hosts, where there are some."""
        self.precopies = Precopies(host, self._clock_ms, background=background)

    def travels(self, handover: Handover) -> bool:
        """Whether state travels between two nodes of this host."""
        return self.paths is not None and handover.travels

    def goes_ahead(self, change: InFlightChange, *, is_expected: bool = False) -> list[Handover]:
        """Handovers whose state is sent before the fragments stop, or before the change is decided."""
        if not self._strategy_of(change).sends_ahead or change.part.overlaps:
            return []
        return [h for h in change.moving if self.precopies.wants(change, h, is_expected=is_expected)]

    def is_ahead(self, change: InFlightChange) -> bool:
        """Sends state ahead, from the first call on; says whether nothing is gained by letting fragments run on."""
        if not change.goes_ahead:
            change.goes_ahead = True
            for handover in self.goes_ahead(change):
                self.send_ahead(change, handover)
        return self.precopies.is_ready(change)

    def send_ahead(self, change: InFlightChange, handover: Handover, most_bytes: int | None = None) -> None:
        """Begins to send one state; no more than `most_bytes` of one whose change is only expected."""
        self.precopies.begin(change, handover, self.paths, self._client, most_bytes)

    def _client(self, site: str) -> FlightClient:
        assert self.client is not None
        return self.client(site)

    def start(self, change: InFlightChange) -> str | None:
        """Starts what can start; says what makes going on impossible."""
        drained = self.host.routing.drained
        for handover in change.moving:
            if handover in change.moves:
                continue
            move: StateMove | None = None
            if not change.part.is_here(handover.source):
                move = self._pull(change, handover) if change.fetched is not None else None
            elif handover.source in drained:
                try:
                    move = self._move(change, handover)
                except InputError as error:
                    return str(error)
            if move is not None:
                move.start()
                change.moves[handover] = move
        return self._failure(change)

    def stop(self, changes: Iterable[InFlightChange]) -> None:
        """Ends all that is on its way."""
        self.precopies.stop()
        for move in (m for change in changes for m in change.moves.values()):
            if isinstance(move, StatePull):
                move.cancel()

    def _failure(self, change: InFlightChange) -> str | None:
        for move in change.moves.values():
            if not self.background:
                move.poll()
            if move.state in (MoveState.FAILED, MoveState.CANCELLED):
                return move.error or "its state could not be moved"
        return None

    def waits_for(self, change: InFlightChange) -> str | None:
        """The state that may never come; None while state is under way within the host, however long that takes."""
        left = [h for h in change.moving if h not in change.moves or not change.moves[h].done]
        if any(not change.part.is_here(h.source) for h in left):
            return NOT_HERE
        return NO_ROUTE if any(h not in change.moves for h in left) else None

    def _pull(self, change: InFlightChange, handover: Handover) -> StatePull:
        assert self.client is not None
        part, place = change.part, change.part.places[handover]
        keys, route = list(change.keys(handover).values()), part.routes.state[place]
        sent = self.precopies.take(change, handover)
        after = None if sent is None else sent.digest
        store, into = self.host.store, change.staging(handover)
        return StatePull(store, into, change.number, place, keys, route, self.client, after=after)

    def _move(self, change: InFlightChange, handover: Handover) -> StateMove | None:
        assert self.paths is not None
        hops = self.paths.hops(handover.origin, handover.destination)
        if hops is None:
            return None
        keys, store = change.keys(handover), self.host.store
        transfer = f"reconfiguration {change.number}"
        job = Job(store, handover.source, store, change.staging(handover), transfer, keys, hops)
        strategy = self._strategy_of(change)
        if strategy.sends_ahead:
            job = replace(job, after=self.precopies.take(change, handover))
        if strategy.needs_input:
            kept = kept_input(change, handover, self.host, self.paths, self.backup)
            if kept is None:
                _log.warning("a sender of fragment %d is cut off: its state moves as it is", handover.source)
                strategy = MIGRATION_QUERY
            job = replace(job, replay=kept)
        return strategy.begin(job, clock_ms=self._clock_ms, background=self.background)

    def _strategy_of(self, change: InFlightChange) -> StateStrategy:
        chosen = change.part.strategy
        return self.strategy if chosen is None else state_strategy(chosen)

    def _clock_ms(self) -> float:
        """State takes its time by the same clock as all else."""
        return self._clock() * 1000
