"""The agent of a host: its part of reconfigurations, prepared, marked, fetched, and then in effect or aborted.

Every host has the same one, the coordinator's own included; the driver tells it what to do, by messages that are all
about many changes at once. Until the effect nothing is given up: old fragments have stopped at the marker with all
their state, their inputs wait in the channels, new fragments have not begun. So a change can be aborted at any moment
before, and has happened at any moment after. A part that other hosts depend on is in the store from its preparation on,
so that a host that dies goes on with it; one that is alone is there from its markers on, and aborted when the host is
back. Slots keep running throughout; Spark does not notice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from meander.deploy.fragments import Channel
from meander.model.locks import reentrant_lock
from meander.reconfigure.agent import marking
from meander.reconfigure.agent.ending import ChangeEnding
from meander.reconfigure.agent.expected import ExpectedChanges
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.overlap import Overlaps
from meander.reconfigure.agent.preparation import PartPreparation
from meander.reconfigure.agent.recovery import ChangeRecovery
from meander.reconfigure.agent.remote_channels import RemoteChannels
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.agent.status import status_of
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.messages import (
    Abort,
    Answer,
    Done,
    Effect,
    Fetch,
    ForkAt,
    KeepAhead,
    Mark,
    Message,
    PartStatuses,
    Poll,
    Prepare,
    PrepareAhead,
    Reroute,
)
from meander.run.host import Host
from meander.run.store.records.record import Change

_log = logging.getLogger(__name__)


class Agent:
    """The changes under way on one host. Messages may come from any thread; one is carried out at a time."""

    def __init__(
        self,
        host: Host,
        paths: Paths | None = None,
        *,
        strategy: str = "migration_query",
        backup: UpstreamBackup | None = None,
        has_copies: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        background: bool = True,
    ) -> None:
        """`paths` are those of a host that plays many nodes; the nodes of a host without are one process."""
        self.host, self.backup = host, backup
        self.changes: dict[int, InFlightChange] = {}
        self.changing = reentrant_lock("agent")
        """Held while something changes what runs here."""
        backed_up = backup is not None
        self.failover = Failover(host, paths, backup, has_copies=has_copies)
        self.mover = StateMover(host, paths, strategy, clock, background=background)
        self.mover.backup = backup
        self.ending = ChangeEnding(host, self.failover, self.delay_ms, backed_up=backed_up)
        self.overlaps = Overlaps(host, self.failover, self.delay_ms, backed_up=backed_up)
        self.remote_channels = RemoteChannels(host, self.changes, self.mover)
        self.preparation = PartPreparation(host, self.mover)
        self.recovery = ChangeRecovery(self.changes, self.preparation, self.overlaps, self.mover)
        self.expected = ExpectedChanges(self.preparation, self.mover, lambda: clock() * 1000)
        self._turn = (0, 0)

    @property
    def paths(self) -> Paths | None:
        return self.mover.paths

    @paths.setter
    def paths(self, paths: Paths) -> None:
        self.mover.paths = self.failover.paths = paths

    def delay_ms(self, channel: Channel) -> int:
        """The emulated latency of a channel's path."""
        return 0 if self.paths is None else self.paths.delay_ms(channel)

    def take(self, message: Message) -> Answer:
        """Does what a message says."""
        match message:
            case Prepare():
                return self.prepare(message)
            case Mark():
                return self.mark(message)
            case Poll():
                return self.poll(message)
            case ForkAt():
                return self.fork(message)
            case Fetch():
                return self.fetch(message)
            case Effect():
                return self.effect(message)
            case Abort():
                return self.abort(message)
            case Reroute():
                return self.reroute(message)
            case PrepareAhead():
                with self.changing:
                    return self.expected.prepare(message)
            case KeepAhead():
                with self.changing:
                    return self.expected.keep(message)

    def tidy(self) -> None:
        """Does what is due now and then: bases of upstream backup, and an end to preparations that nobody asks for."""
        if self.backup is not None:
            self.backup.tick()
        self.failover.let_back({})
        with self.changing:
            self.expected.tidy()
            self.mover.precopies.tidy({*self.changes, *self.expected.changes})

    # ---------------------------------------------------------------- up to the decision

    def prepare(self, message: Prepare) -> Done:
        """Binds what will run here, and begins to make its plans ready; those that cannot be bound are refused."""
        with self.changing:
            self._abort_forgotten(message)
            found = self.preparation.begin(message.parts, self.changes)
            marking.arm([c for c in found.changes if not c.part.is_alone], self.host)
            self.changes.update((c.number, c) for c in found.changes)
        for change in found.changes:
            self.preparation.make_plans(change)
        return Done(found.refused, frozenset(found.ready))

    def _abort_forgotten(self, message: Prepare) -> None:
        """Aborts what was under way before these changes and the driver does not know of any more."""
        newest, known = max(message.numbers, default=0), {*message.under_way, *message.numbers}
        forgotten = tuple(n for n in self.changes if n < newest and n not in known)
        if forgotten:
            self.abort(Abort(forgotten))

    def mark(self, message: Mark) -> Done:
        """Opens channels that begin here, and puts the marker into those that lead into the changes."""
        with self.changing:
            refused = self._unknown(message.numbers)
            found = [c for c in self._known(message.numbers) if not c.is_marked]
            at_once = [c for c in found if c.part.overlaps and c.part.is_alone]
            refused |= marking.mark([c for c in found if c not in at_once], self.host, self.failover)
            if at_once:
                refused |= self.overlaps.fork_at_once(at_once)
            return Done(refused)

    def fork(self, message: ForkAt, records: tuple[Change, ...] = ()) -> Done:
        """Lets old and new fragments run side by side, all in one commit with `records`: that has been decided."""
        with self.changing:
            found = [c for c in self._known(message.times) if not c.is_forked]
            if found or records:
                self.overlaps.fork(found, message.times, records)
        self.remote_channels.refresh()
        return Done(self._unknown(message.times))

    def poll(self, message: Poll) -> PartStatuses:
        """How far changes are; state that can move begins to."""
        with self.changing:
            found = self._known(message.numbers)
            return PartStatuses({c.number: status_of(c, self.host, self.mover, self.overlaps) for c in found})

    def fetch(self, message: Fetch) -> Done:
        """Begins to fetch state that comes from elsewhere, and logs that will begin here."""
        with self.changing:
            found = self._known(message.positions)
            self.remote_channels.begin_logs([c for c in found if c.fetched is None], message.positions)
            for change in found:
                self.mover.start(change)
        self.remote_channels.refresh()
        return Done(self._unknown(message.positions))

    def _known(self, numbers: Iterable[int]) -> list[InFlightChange]:
        return [self.changes[n] for n in numbers if n in self.changes]

    def _unknown(self, numbers: Iterable[int]) -> dict[int, str]:
        unknown = (n for n in numbers if n not in self.changes)
        return {n: f"change {n} is not under way here; it was never prepared, or has ended" for n in unknown}

    # ---------------------------------------------------------------- ending

    def effect(self, message: Effect, records: Mapping[int, list[Change]] | None = None) -> Done:
        """The changes happen here, all in one commit; `records` of each go into it. Unknown ones have happened before.

        If one of them is impossible, the others happen one by one; it is refused, and has had no effect.
        """
        with self.changing:
            refused = self.ending.effect(self.changes, message.positions, records or {})
            ended = [c for c in self._known(message.positions) if c.number not in refused]
            self._end(ended)
            self.mover.precopies.drop({h.operator for c in ended for h in c.part.handovers})
        self.remote_channels.refresh()
        self.host.wake()
        return Done(refused)

    def abort(self, message: Abort) -> Done:
        """Old fragments go on from where they stopped, all in one commit."""
        with self.changing:
            self.preparation.end(n for n in message.numbers if n not in self.changes)
            changes = [c for c in self._known(message.numbers) if not c.is_forked]
            self.ending.abort(changes)
            self._end(changes)
            for change in changes:
                _log.info("change %d was aborted", change.number)
        self.remote_channels.refresh()
        self.host.wake()
        return Done()

    def _end(self, changes: Iterable[InFlightChange]) -> None:
        for change in changes:
            del self.changes[change.number]
            self.preparation.end([change.number])

    # ---------------------------------------------------------------- other routes

    def reroute(self, message: Reroute) -> Done:
        """Lets channels take another route, or none until it is back."""
        with self.changing:
            if message.turn < self._turn:  # its sender has given it up, and sent a newer one with all that it says
                return Done()
            self._turn = message.turn
            self.overlaps.reroute(self.changes.values(), message.channels)
        self.remote_channels.refresh()
        self.host.wake()
        return Done()

    def stop(self) -> None:
        self.remote_channels.stop()
        self.mover.stop(self.changes.values())
        self.preparation.stop()
