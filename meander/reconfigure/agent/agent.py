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
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from meander.deploy.fragments import Channel
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.locks import reentrant_lock
from meander.reconfigure.agent import marking
from meander.reconfigure.agent.effect import rerouted, starts, to_be_drained, undo
from meander.reconfigure.agent.ending import ChangeEnding, ImpossibleEffectError
from meander.reconfigure.agent.expected import ExpectedChanges
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.in_flight import InFlightChange, parts_under_way
from meander.reconfigure.agent.moving import StateMover
from meander.reconfigure.agent.overlap import Overlaps
from meander.reconfigure.agent.precopies import forget_sent
from meander.reconfigure.agent.rebuilding import remove_unfinished
from meander.reconfigure.agent.status import status_of
from meander.reconfigure.agent.upstream_backup import UpstreamBackup
from meander.reconfigure.agent.wiring import with_channels
from meander.reconfigure.codec import decode, encode
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
    Positions,
    Prepare,
    PrepareAhead,
    Reroute,
)
from meander.reconfigure.part import Part
from meander.reconfigure.paths import Paths
from meander.reconfigure.serialised_fragment import install_serialised
from meander.reconfigure.state.pull import StatePull
from meander.run.channels.base import ChannelSpec
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.failures import reason_of
from meander.run.fragments.bindings import first_slot
from meander.run.host import Host
from meander.run.installation import Installation
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.reconfigurations import DrainedRecord, PartRecord
from meander.run.store.records.record import Change
from meander.run.store.records.transport import CopyRecord

_log = logging.getLogger(__name__)
MOST_OVER = 1_000


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
        self.failover = Failover(host, paths, backup, has_copies=has_copies)
        self.mover = StateMover(host, paths, strategy, clock, background=background)
        self.mover.backup = backup
        self.ending = ChangeEnding(host, self.failover, self.delay_ms, backed_up=backup is not None)
        self.overlaps = Overlaps(host, self.failover, self.delay_ms)
        self.pulling: Pulling | None = None
        self.kafka: KafkaExchange | None = None
        self._over: deque[int] = deque(maxlen=MOST_OVER)
        """Changes that were aborted or have happened here: a message to prepare one may come late."""
        self._turn = (0, 0)
        self._preparer = ThreadPoolExecutor(1, "preparer")
        self.expected = ExpectedChanges(host, self.mover, self._begun, lambda: clock() * 1000)

    @property
    def paths(self) -> Paths | None:
        return self.mover.paths

    @paths.setter
    def paths(self, paths: Paths) -> None:
        self.mover.paths = self.failover.paths = paths

    def delay_ms(self, channel: Channel) -> int:
        """The emulated latency of a channel's path."""
        return 0 if self.paths is None else self.paths.delay_ms(channel)

    def connect(self, client: Callable[[str], FlightClient], kafka: KafkaExchange | None = None) -> None:
        """Lets channels and state come from other hosts; `kafka` is for what goes over a broker."""
        self.mover.client, self.kafka = client, kafka
        self.pulling = Pulling(self.host.store, client, broker=kafka)
        self.pulling.wanted_whole = self._taken_over
        if kafka is not None:
            self.host.troubles.append(kafka.problems)

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
                    return self.expected.prepare(message, self._preparer)
            case KeepAhead():
                with self.changing:
                    return self.expected.keep(message)

    def tidy(self) -> None:
        """Drops what was prepared for changes that nobody expects any more."""
        with self.changing:
            self.expected.tidy()
            self.mover.precopies.tidy({*self.changes, *self.expected.changes})

    # ---------------------------------------------------------------- prepare

    def prepare(self, message: Prepare) -> Done:
        """Binds what will run here, and begins to make its plans ready; those that cannot be bound are refused."""
        refused: dict[int, str] = {}
        fresh: list[InFlightChange] = []
        prepared, warm = set[int](), set[int]()
        with self.changing:
            self._abort_forgotten(message)
            for part in message.parts:
                if part.number in self.changes:
                    continue
                try:
                    change = self._begun(part)
                    is_prepared = self.host.plans.are_ready(change.installation.fragments)
                    is_ahead = not self.mover.goes_ahead(change)
                except JournalError:
                    raise
                except Exception as error:
                    if not isinstance(error, InputError):
                        _log.exception("change %d cannot begin", part.number)
                    refused[part.number] = f"it could not begin: {reason_of(error)}"
                else:
                    fresh.append(change)
                    if is_prepared and is_ahead:
                        prepared.add(part.number)
                    if is_prepared:
                        warm.add(part.number)
            self._arm([c for c in fresh if not c.part.is_alone])
            self.changes.update((c.number, c) for c in fresh)
        for change in fresh:  # plans that are new to Spark take a while: nobody waits for that
            if change.number not in warm:
                change.preparing = self._preparer.submit(self.host.plans.prepare, change.installation.fragments)
        return Done(refused, frozenset(prepared))

    def _begun(self, part: Part) -> InFlightChange:
        if part.number in self._over:
            raise InputError(f"change {part.number} is over here")
        running = self.host.routing.fragments
        missing = [f for f in part.before if f not in running]
        if missing:
            raise InputError(
                f"fragment {missing[0]} should run at {part.site} and does not; was its directory lost? "
                "start the site with the directory that it had"
            )
        old = {f: running[f] for f in part.before}
        installation = part.installation
        if installation is None:
            slots = {f: old[f].slot if f in old else first_slot(f, self.host.routing.slots) for f in part.after}
            channels = part.local.channels_after
            installation = install_serialised(part.serialised, part.after.values(), channels, slots)
            specs = {s.channel: s for s in installation.channels}
            for c in channels.values():
                specs.setdefault(c.id, ChannelSpec(c.id, part.schemas[c.id], c.sender, c.receiver))
            installation = replace(installation, channels=tuple(specs.values()))
        moving = [
            h
            for h in part.handovers
            if part.is_here(h.target) and (not part.is_here(h.source) or self.mover.travels(h))
        ]
        return InFlightChange(part, installation, old, tuple(moving))

    def _arm(self, changes: Sequence[InFlightChange]) -> None:
        """Markers of other hosts may come from now on: fragments that run wait for them, also after a crash.

        A port that is cut counts as having met the marker, so those that have to be emptied are open from here on.
        """
        if not changes:
            return
        known = set(self.host.store.exchange.channels())
        with self.host.between_steps({f for c in changes for f in c.old}):
            rewire = tuple(r for c in changes for r in to_be_drained(c.part, known))
            self.host.store.commit(Commit(rewire=rewire, records=tuple(c.record for c in changes)))
            for change in changes:
                self.host.routing.wait_for(change.part.marker)
                change.is_armed = True

    def _abort_forgotten(self, message: Prepare) -> None:
        """Aborts what was under way before these changes and the driver does not know of any more."""
        newest, known = max(message.numbers, default=0), {*message.under_way, *message.numbers}
        forgotten = tuple(n for n in self.changes if n < newest and n not in known)
        if forgotten:
            self.abort(Abort(forgotten))

    # ---------------------------------------------------------------- mark, poll, fetch

    def mark(self, message: Mark) -> Done:
        """Opens channels that begin here, and puts the marker into those that lead into the changes."""
        with self.changing:
            refused = self._unknown(message.numbers)
            found = [c for n in message.numbers if (c := self.changes.get(n)) is not None and not c.is_marked]
            at_once = [c for c in found if c.part.overlaps and c.part.is_alone]
            refused |= marking.mark([c for c in found if c not in at_once], self.host, self.failover)
            if at_once:
                refused |= self.overlaps.fork(at_once, backed_up=self.backup is not None)
            return Done(refused)

    def fork(self, message: ForkAt, records: tuple[Change, ...] = ()) -> Done:
        """Lets old and new fragments run side by side, all in one commit with `records`: that has been decided."""
        with self.changing:
            found = [c for n in message.times if (c := self.changes.get(n)) is not None and not c.is_forked]
            if found:
                self.overlaps.fork_at(found, message.times, records)
            elif records:
                self.host.store.commit(Commit(records=records))
        self.refresh()
        return Done(self._unknown(message.times))

    def poll(self, message: Poll) -> PartStatuses:
        """How far changes are; state that can move begins to."""
        with self.changing:
            found = [c for n in message.numbers if (c := self.changes.get(n)) is not None]
            return PartStatuses({c.number: status_of(c, self.host, self.mover, self.overlaps) for c in found})

    def fetch(self, message: Fetch) -> Done:
        """Begins to fetch state that comes from elsewhere, and logs that will begin here."""
        with self.changing:
            found = [c for n in message.positions if (c := self.changes.get(n)) is not None]
            self._begin_logs([c for c in found if c.fetched is None], message.positions)
            for change in found:
                self.mover.start(change)
        self.refresh()
        return Done(self._unknown(message.positions))

    def _begin_logs(self, changes: Sequence[InFlightChange], positions: Mapping[int, Positions]) -> None:
        known = set(self.host.store.exchange.channels())
        begins: dict[ChannelId, tuple[int, int]] = {}
        add: list[ChannelSpec] = []
        records: list[Change] = []
        for change in changes:
            part, told = change.part, positions[change.number]
            specs = {s.channel: s for s in change.installation.channels}
            fresh = [c for c in part.taken_over if c.id not in known]
            change.added = [c.id for c in fresh]
            add += [specs[c.id] for c in fresh]
            begins |= {c.id: told.logs[c.id][:2] for c in fresh}
            records += [CopyRecord(c.id, part.routes.logs[c.id]) for c in fresh]
            records.append(replace(change.record, fetched=encode(told)))
        if changes:
            self.host.store.commit(Commit(add=tuple(add), passed=starts(begins), records=tuple(records)))
        for change in changes:
            change.fetched = positions[change.number]

    def _taken_over(self) -> set[ChannelId]:
        """Logs that come here before whoever appends to them does."""
        return {c.id for each in list(self.changes.values()) if each.fetched is not None for c in each.part.taken_over}

    def _unknown(self, numbers: Iterable[int]) -> dict[int, str]:
        unknown = (n for n in numbers if n not in self.changes)
        return {n: f"change {n} is not under way here; it was never prepared, or has ended" for n in unknown}

    # ---------------------------------------------------------------- ending

    def effect(self, message: Effect, records: Mapping[int, list[Change]] | None = None) -> Done:
        """The changes happen here, all in one commit; `records` of each go into it. Unknown ones have happened before.

        If one of them is impossible, the others happen one by one; it is refused, and has had no effect.
        """
        with self.changing:
            told, numbers = records or {}, tuple(message.positions)
            try:
                self._take_effect([self.changes[n] for n in numbers if n in self.changes], message.positions, told)
            except ImpossibleEffectError as error:
                if len(numbers) == 1:
                    _log.exception("change %d cannot take effect", numbers[0])
                    return Done({numbers[0]: str(error)})
                one_by_one = [
                    self.effect(Effect({n: at}), {n: told[n]} if n in told else {})
                    for n, at in message.positions.items()
                ]
                return Done({n: why for done in one_by_one for n, why in done.refused.items()})
        self.refresh()
        self.host.wake()
        return Done()

    def _take_effect(
        self,
        changes: Sequence[InFlightChange],
        positions: Mapping[int, Positions],
        records: Mapping[int, list[Change]],
    ) -> None:
        told = [change for each in records.values() for change in each]
        if changes:
            self.ending.take_effect(changes, positions, told)
        elif told:
            self.host.store.commit(Commit(records=tuple(told)))
        for change in changes:
            self._forget(change)
            self.mover.precopies.drop({h.operator for h in change.part.handovers})

    def abort(self, message: Abort) -> Done:
        """Old fragments go on from where they stopped, all in one commit."""
        with self.changing:
            self._over += [n for n in message.numbers if n not in self.changes]
            changes = [c for n in message.numbers if (c := self.changes.get(n)) is not None and not c.is_forked]
            self.ending.take_back(changes)
            for change in changes:
                self._forget(change)
                _log.info("change %d was aborted", change.number)
        self.refresh()
        self.host.wake()
        return Done()

    def _forget(self, change: InFlightChange) -> None:
        del self.changes[change.number]
        self._over.append(change.number)

    # ---------------------------------------------------------------- other routes

    def reroute(self, message: Reroute) -> Done:
        """Lets channels take another route, or none until it is back."""
        with self.changing:
            if message.turn < self._turn:  # its sender has given it up, and sent a newer one with all that it says
                return Done()
            self._turn = message.turn
            wanted = {(c.upstream, c.receiver): c for c, _ in message.channels}
            routes = {c.id: list(route) for c, route in message.channels}
            wanted = self.overlaps.reroute(self.changes.values(), wanted, routes)
            commit = rerouted({c.id: (c, routes[c.id]) for c in wanted.values()}, self.host.store, self.delay_ms)
            if commit.rewire:
                self.host.store.commit(commit)
        self.refresh()
        self.host.wake()
        return Done()

    # ---------------------------------------------------------------- coming back

    def recover(self) -> None:
        """Takes up the parts that were under way; what runs has been installed before."""
        forget_sent(self.host.store)
        for part, record in parts_under_way(self.host.store):
            self.resume(part, record)

    def resume(self, part: Part, record: PartRecord) -> None:
        """Takes up a part as the store remembers it."""
        store, routing = self.host.store, self.host.routing
        number, change = part.number, self._begun(part)
        change.is_armed, change.is_marked, change.added = True, record.is_marked, list(record.added)
        change.fetched = None if record.fetched is None else decode(Positions, record.fetched)
        self.changes[number] = change
        change.preparing = self._preparer.submit(self.host.plans.prepare, change.installation.fragments)
        if record.times is not None:
            self.overlaps.resume(change, record.times)
            return
        routing.wait_for(part.marker)
        done = {f: each for f in change.old if (each := store.record(DrainedRecord, (number, f)))}
        change.frozen = {f for f, drained in done.items() if drained.is_frozen}
        routing.drain(dict.fromkeys(done, number))
        opened = [c for c in part.opened if c.sender not in part.change.fragments]
        if change.is_marked and not change.lets_senders_wait and (wires := with_channels(routing, opened)):
            routing.rewire(wires)
        self.mover.start(change)

    def abort_undecided(self) -> None:
        """Aborts what was under way at the coordinator's own host: the driver that decides has started again."""
        store = self.host.store
        for part, record in parts_under_way(store):
            if record.times is not None:  # old and new fragments run side by side: the driver takes it up
                continue
            moving = tuple(h for h in part.handovers if part.is_here(h.target))
            change = InFlightChange(part, Installation((), ()), {}, moving, added=list(record.added))
            store.commit(undo([change], store))
        remove_unfinished(store)
        forget_sent(store)

    def refresh(self) -> None:
        """Looks again which channels come from elsewhere."""
        if self.pulling is not None:
            self.pulling.refresh()

    def stop(self) -> None:
        if self.pulling is not None:
            self.pulling.stop()
        if self.kafka is not None:
            self.kafka.stop()
        self.mover.precopies.stop()
        for change in self.changes.values():
            for move in change.moves.values():
                if isinstance(move, StatePull):
                    move.cancel()
        self._preparer.shutdown(wait=False, cancel_futures=True)
