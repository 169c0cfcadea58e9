"""Reconfigurations on a running host: contexts, markers, state, and the one commit in which a change takes effect.

Until that commit nothing is given up: old fragments have stopped at the marker with all their state, their inputs wait
in the channels, new fragments have not begun. So a reconfiguration can be taken back at any moment before, and has
happened at any moment after; a crash leaves one or the other, and what was under way goes on when the host is back.
Slots keep running throughout; Spark does not notice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from meander.deploy.contexts import Handover, Reconfiguration, reconfiguration
from meander.deploy.control import control_of
from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange, Fragment
from meander.deploy.records import deployment_from
from meander.model.errors import InputError
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.reconfigure.effect import effect, forgotten
from meander.reconfigure.freezer import freeze, pauses_after
from meander.reconfigure.in_flight import InFlightChange, cut_from_the_start, gone_ports, to_be_drained
from meander.reconfigure.overlap import NODE_GONE, Overlaps
from meander.reconfigure.paths import Paths
from meander.reconfigure.rebuilding import kept_input, remove_rebuilt
from meander.reconfigure.state import Job, MoveState, StateMove, state_strategy
from meander.reconfigure.state.migration_query import MIGRATION_QUERY
from meander.reconfigure.upstream_backup import UpstreamBackup
from meander.run.channels.base import ChannelAppend
from meander.run.channels.flight.proof import HOME
from meander.run.failures import Cause, reason_of
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained import bounds_of, forget, keep_only, remember, with_former
from meander.run.fragments.routing import Pause, Wire
from meander.run.fragments.template import BoundFragment
from meander.run.host import Host
from meander.run.installation import OUTSIDE, install
from meander.run.store.commit import REFUSED, Commit, RemoveChannel, Rewire
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import ChannelRecord, FragmentRecord, GoneNodeRecord, NumbersRecord
from meander.run.store.records.reconfigurations import DrainedRecord, ReconfigurationRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)
TIMEOUT_S = 60.0
GONE = NODE_GONE


@dataclass(frozen=True, slots=True)
class ReconfigurationOutcome:
    """How a reconfiguration ended, and what it took. Times follow each other: their sum is the makespan."""

    number: int
    reason: str | None
    """Why it was taken back; None when it took effect."""
    contexts_s: float
    """Making the new fragments ready, until the markers are in the channels."""
    markers_s: float
    """Until every old fragment has reached its markers."""
    state_s: float
    """Until all state is in its new place, and until the change has taken effect."""
    state_bytes: int
    deployed: int
    updated: int
    undeployed: int
    waiting_s: float = 0.0
    """While old fragments answered what had begun, and new ones ran beside them."""
    windows_s: float = 0.0
    """How much of that the windows needed by themselves, if event time runs like the clock."""
    control_messages: int = 0
    control_bytes: int = 0
    """What nodes were told for it and what they confirmed, markers included."""
    operators: tuple[OperatorId, ...] = ()
    """Those that run in other fragments afterwards, or again."""
    moved: Mapping[OperatorId, int] = field(default_factory=dict)
    """Bytes of state that travelled, by operator."""
    overlapped: bool = False
    """Whether operators ran at both places for a while."""
    closed: tuple[ChannelId, ...] = ()
    """Result channels that nobody writes to any more."""
    not_at_once: bool = False
    """Whether it would fail again if it were tried again at once: nothing has changed that made it fail."""

    @property
    def makespan_s(self) -> float:
        return self.contexts_s + self.markers_s + self.state_s + self.waiting_s


class _NoEffectError(Exception):
    """The commit in which a change takes effect is impossible. Nothing has happened."""


class Reconfigurator:
    """Carries reconfigurations out on one host. `poll` does what is due; nobody waits inside."""

    def __init__(
        self,
        host: Host,
        plan: GlobalPlan,
        paths: Paths,
        *,
        strategy: str = "migration_query",
        late: Iterable[OperatorId] = (),
        replicas: int = 1,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
        background: bool = True,
    ) -> None:
        self.host, self.plan, self.paths = host, plan, paths
        self.late: tuple[OperatorId, ...] = tuple(late)
        self.timeout_s = timeout_s
        self._strategy = state_strategy(strategy)
        self._clock, self._background = clock, background
        self._courses: dict[int, InFlightChange] = {}
        self._happened: list[ReconfigurationOutcome] = []
        self._back: dict[FragmentId, NodeId] = {}
        """Fragments that may go on, as their nodes are there."""
        self.overlaps = Overlaps(host, plan, paths, clock, self._stand_in)
        self._preparer = ThreadPoolExecutor(1, "preparer")
        self._has_copies = bool(replicas)
        """Whether the state of a node that is gone is elsewhere."""
        self.backup: UpstreamBackup | None = None
        if not replicas or self._strategy.needs_input:
            runner, idle_timeout_ms = host.stepper.runner, host.options.idle_timeout_ms
            self.backup = UpstreamBackup(host.store, host.routing, runner, clock, idle_timeout_ms)

    @property
    def under_way(self) -> tuple[int, ...]:
        """What is carried out, also what has ended and nobody was told yet."""
        return (*self._courses, *self.overlaps.under_way, *(o.number for o in self._happened))

    # ---------------------------------------------------------------- beginning

    def begin(self, reconfigurations: Sequence[Reconfiguration], deployment: Deployment, next_number: int) -> None:
        """Makes the new fragments ready and sends the markers. `deployment` is what will run when all is done."""
        if not reconfigurations:
            return
        started = self._clock()
        numbers = NumbersRecord(deployment.next_fragment, deployment.next_channel, next_number)
        self.host.store.commit(Commit(records=(numbers,)))
        courses = [c for r in reconfigurations if (c := self._begun(r, started)) is not None]
        for course in courses:
            remember(self.plan, course.installation.fragments, course.reconfiguration.change.fragments_after)
        beside = [c for c in courses if c.reconfiguration.protocol.overlaps]
        self.overlaps.begin(beside)
        fresh = [c for c in courses if not self.host.is_prepared(c.installation.fragments)]
        for course in courses:
            if course not in beside:
                course.preparing = None if course in fresh else _done()
                self._courses[course.number] = course
        self._mark_prepared()
        for course in fresh:  # plans that are new to Spark take a while: nobody waits for that
            course.preparing = self._preparer.submit(self.host.prepare, course.installation.fragments)

    def _begun(self, reconfiguration: Reconfiguration, started: float) -> InFlightChange | None:
        """What a reconfiguration will do; one whose fragments cannot be bound is aborted, and nobody else is."""
        try:
            course = self._course(reconfiguration, started)
            self.host.is_prepared(course.installation.fragments)
        except JournalError:
            raise
        except Exception as error:
            _log.exception("reconfiguration %d cannot begin", reconfiguration.number)
            self._happened.append(_never_begun(reconfiguration.number, f"it could not begin: {reason_of(error)}"))
            return None
        return course

    def _course(
        self,
        reconfiguration: Reconfiguration,
        started: float,
        plan: GlobalPlan | None = None,
        known: Mapping[tuple[FragmentId, int], BoundFragment] | None = None,
    ) -> InFlightChange:
        change, routing = reconfiguration.change, self.host.routing
        old = {f: routing.fragments[f] for f in change.fragments_before}
        before = {o: f.id for f in change.fragments_before.values() for o in f.operators}
        slots: dict[FragmentId, int] = {}
        for fragment in change.fragments_after.values():
            earlier = next((before[o] for o in fragment.operators if o in before), None)
            usual = first_slot(fragment.id, routing.slots) if earlier is None else old[earlier].slot
            kept = self.host.bindings.of(fragment.id)
            slots[fragment.id] = usual if kept is None else kept
        delays = {c.id: self.paths.delay_ms(c) for c in change.channels_after.values()}
        installation = install(
            plan or self.plan, change.fragments_after.values(), change.channels_after, slots, delays, self.late, known
        )
        return InFlightChange(reconfiguration, installation, old, started)

    def _mark(self, courses: Sequence[InFlightChange]) -> None:
        """Opens new channels and puts the markers in, each sender being between two steps."""
        if not courses:
            return
        exchange, routing = self.host.store.exchange, self.host.routing
        known = set(exchange.channels())
        appends, specs = [], []
        records: list[Change] = []
        wires: dict[FragmentId, tuple[tuple[Wire, ...], ...]] = {}
        senders: set[FragmentId] = set()
        for course in courses:
            r = course.reconfiguration
            if not course.old:
                continue
            entering = [c.id for c in r.entering()]
            senders.update(c.sender for c in r.entering())
            ingest = [p for f in course.old.values() for p in f.ports if p >= OUTSIDE]
            appends += [ChannelAppend.one(c, marker=r.marker) for c in (*entering, *ingest)]
            opened = {c.id for c in r.opened.values()}
            specs += [s for s in course.installation.channels if s.channel in opened]
            records.append(ReconfigurationRecord(r.number, r.change))
            wires = self._with(wires, r)
        cut = [
            Rewire(c.id, c.receiver, is_cut=True) for k in courses for c in cut_from_the_start(k) if c.id not in known
        ]
        emptied = [c for k in courses for c in to_be_drained(k)]
        cut += [Rewire(c.id, c.receiver, is_cut=False) for c in emptied]
        with self._boundaries(senders | set(wires) | {c.receiver for c in emptied}):
            for course in courses:
                routing.wait_for(course.reconfiguration.marker)
                self._stand_in(course.old)
            add = tuple(s for s in specs if s.channel not in known)
            self.host.store.commit(Commit(add=add, rewire=tuple(cut), appends=tuple(appends), records=tuple(records)))
            if wires:
                routing.rewire(wires)
        marked = self._clock()
        for course in courses:
            course.marked = marked

    def _with(
        self, wires: Mapping[FragmentId, tuple[tuple[Wire, ...], ...]], reconfiguration: Reconfiguration
    ) -> dict[FragmentId, tuple[tuple[Wire, ...], ...]]:
        """The outputs of fragments that stay, with channels that are new; others get theirs when they begin."""
        found = dict(wires)
        for channel in reconfiguration.opened.values():
            if channel.sender in reconfiguration.change.fragments:
                continue
            sender = self.host.routing.fragments[channel.sender]
            outputs = list(found.get(channel.sender, sender.outputs))
            at = sender.bound.outputs.index(channel.upstream)
            if all(wire.channel != channel.id for wire in outputs[at]):
                outputs[at] = (*outputs[at], Wire(channel.id))
                found[channel.sender] = tuple(outputs)
        return found

    def _without(self, channels: Iterable[Channel]) -> dict[FragmentId, tuple[tuple[Wire, ...], ...]]:
        found: dict[FragmentId, tuple[tuple[Wire, ...], ...]] = {}
        for channel in channels:
            sender = self.host.routing.fragments.get(channel.sender)
            if sender is not None:
                outputs = found.get(channel.sender, sender.outputs)
                found[channel.sender] = tuple(tuple(w for w in out if w.channel != channel.id) for out in outputs)
        return found

    @contextmanager
    def _boundaries(self, fragments: Iterable[FragmentId]) -> Iterator[None]:
        """The slots of these fragments are between two steps inside."""
        with self.host.between_steps(fragments) as slots:
            yield
        self.host.wake(slots)

    # ---------------------------------------------------------------- going on

    def poll(self) -> list[ReconfigurationOutcome]:
        """Moves state of fragments that are done, lets what is complete take effect, takes back what failed."""
        if self.backup is not None:
            self.backup.tick()
        ready: list[InFlightChange] = []
        self._let_back({})
        self._mark_prepared()
        for course in list(self._courses.values()):
            if course.preparing is not None:
                continue
            problem, not_at_once = self._advanced(course)
            if problem is not None:
                outcome = self.abort(course.number, problem)
                self._happened.append(replace(outcome, not_at_once=not_at_once))
            elif course.is_complete:
                ready.append(course)
        if ready:
            self._let_happen(ready)
        ended = self.overlaps.poll(self._is_ready, backed_up=self.backup is not None)
        for course in self.overlaps.broken():
            outcome = self.abort(course.number, course.problem or "it could not begin")
            self._happened.append(replace(outcome, not_at_once=True))
        self._happened += [self._overlapped(course) for course in ended]
        return self._all_happened()

    def _let_happen(self, courses: Sequence[InFlightChange]) -> None:
        """Lets courses take effect, together; if that is impossible, one by one, and aborts the one that cannot."""
        try:
            self._happened += self._take_effect(courses)
        except _NoEffectError as error:
            if len(courses) > 1:
                for course in courses:
                    self._let_happen([course])
                return
            _log.exception("reconfiguration %d cannot take effect", courses[0].number)
            reason = f"it could not take effect: {error}"
            self._happened.append(replace(self.abort(courses[0].number, reason), not_at_once=True))

    def _advanced(self, course: InFlightChange) -> tuple[str | None, bool]:
        """What keeps a course from going on, and whether it would do so again at once."""
        try:
            r = course.reconfiguration
            if course.drained is None and course.problem is None:
                frozen, stuck = freeze(self.host, r.change, r.marker, course.old)
                course.frozen |= frozen
                if stuck is not None:
                    return stuck, True
            return self._advance(course), False
        except JournalError:
            raise
        except Exception as error:
            _log.exception("reconfiguration %d cannot go on", course.number)
            return f"it could not go on: {reason_of(error)}", True

    def _all_happened(self) -> list[ReconfigurationOutcome]:
        """What nobody has been told yet: also of a look that ended early, such as for want of room on the disk."""
        found, self._happened = self._happened, []
        return found

    def _is_ready(self, course: InFlightChange) -> bool:
        return course.preparing is None or self._is_done(course.preparing)

    def _overlapped(self, course: InFlightChange) -> ReconfigurationOutcome:
        """An overlap's outcome: nobody waited at markers, and its windows' time is told apart."""
        forget(self.plan, course.reconfiguration.change.fragments_before.values())
        outcome = self._outcome(course, self._clock())
        waited = outcome.markers_s
        return replace(outcome, markers_s=0.0, waiting_s=waited, windows_s=course.windows_s, overlapped=True)

    def can_take_back(self, number: int) -> bool:
        return number not in self.overlaps.forked and all(o.number != number for o in self._happened)

    def is_elsewhere(self, number: int) -> bool:
        """Whether it depends on others than this host, so that nobody here should wait for it."""
        return False

    def _mark_prepared(self) -> None:
        """Sends the markers of reconfigurations whose plans are ready now.

        Those whose markers find no room are taken back: fragments wait for them already, and one whose channels are all
        cut may have stopped, before what it has to empty was opened.
        """
        prepared = [c for c in self._courses.values() if c.preparing is not None and self._is_done(c.preparing)]
        for course in prepared:
            course.preparing = None
        try:
            self._mark(prepared)
        except JournalError as error:
            for course in prepared:
                course.problem = f"its markers could not be put in: {error}"

    def _is_done(self, preparing: Future[None]) -> bool:
        if not self._background:
            preparing.exception()
        return preparing.done()

    def _advance(self, course: InFlightChange) -> str | None:
        """Starts the moves that can start; says what makes going on impossible."""
        if course.problem is not None:
            return course.problem
        routing = self.host.routing
        if course.drained is None and all(f in routing.drained for f in course.old):
            course.drained = self._clock()
        for handover in course.travelling:
            if handover not in course.moves and handover.source in routing.drained:
                try:
                    move = self._move(course, handover)
                    if move is not None:
                        move.start()
                        course.moves[handover] = move
                except InputError as error:
                    return str(error)
        for move in course.moves.values():
            if not self._background:
                move.poll()
            if move.state in (MoveState.FAILED, MoveState.CANCELLED):
                return move.error or "its state could not be moved"
        if course.drained is not None and len(course.moves) < len(course.travelling):
            return self._overdue(course, "there is no way for the state of an operator to its new node")
        if course.drained is None:
            return self._overdue(course, "a fragment did not reach its markers")
        return None

    def _overdue(self, course: InFlightChange, reason: str) -> str | None:
        return f"{reason} within {self.timeout_s:g} s" if self._clock() - course.started > self.timeout_s else None

    def _move(self, course: InFlightChange, handover: Handover) -> StateMove | None:
        hops = self.paths.hops(handover.origin, handover.destination)
        if hops is None:
            return None
        keys = course.keys(handover)
        staging, store = course.staging(handover), self.host.store
        job = Job(store, handover.source, store, staging, f"reconfiguration {course.number}", keys, hops)
        chosen = course.reconfiguration.strategy
        strategy = self._strategy if chosen is None else state_strategy(chosen)
        if strategy.needs_input:
            kept = kept_input(course, handover, self.host, self.paths, self.backup)
            if kept is None:
                _log.warning("a sender of fragment %d is cut off: its state moves as it is", handover.source)
                strategy = MIGRATION_QUERY
            job = replace(job, replay=kept)
        return strategy.begin(job, clock_ms=self._clock_ms, background=self._background)

    def _clock_ms(self) -> float:
        """State takes its time by the same clock as all else."""
        return self._clock() * 1000

    # ---------------------------------------------------------------- ending

    def _take_effect(self, courses: Sequence[InFlightChange]) -> list[ReconfigurationOutcome]:
        """One commit for everything that changes, then the routing table, each sender being between two steps."""
        host = self.host
        closed = [c for course in courses for c in course.reconfiguration.closed.values()]
        fed = host.ingest_channels
        host.stop_feeding({p for course in courses for p in gone_ports(course)})
        try:
            self._commit_effect(courses, closed)
        except (JournalError, _NoEffectError):
            host.take_in(fed)
            raise
        for course in courses:
            host.take_in(course.installation.ingest)
            forget(self.plan, course.reconfiguration.change.fragments_before.values())
            del self._courses[course.number]
        host.wake()
        ended = self._clock()
        return [self._outcome(course, ended) for course in courses]

    def _commit_effect(self, courses: Sequence[InFlightChange], closed: Sequence[Channel]) -> None:
        host, routing = self.host, self.host.routing
        alone = [course.reconfiguration for course in courses if not course.old]
        known = {c.sender for r in alone for c in r.opened.values() if c.sender in routing.fragments}
        with self._boundaries({c.sender for c in closed} | known):
            try:
                change = effect(courses, host.store, self.paths, backed_up=self.backup is not None)
            except Exception as error:
                raise _NoEffectError(reason_of(error)) from error
            try:
                host.store.commit(change)
            except REFUSED as error:
                raise _NoEffectError(reason_of(error)) from error
            gone = {f for course in courses for f in course.old}
            added = [routing.as_bound(f) for course in courses for f in course.installation.fragments]
            pauses: dict[FragmentId, Pause] = {}
            for course in courses:
                pauses |= pauses_after(host, course.reconfiguration.change, course.frozen)
            routing.exchange(gone - {f.fragment for f in added}, added, pauses)
            wires = self._without(c for c in closed if c.sender not in gone)
            for r in alone:  # fragments that stay and had no marker to put in feed them from now on
                wires = self._with(wires, r)
            if wires:
                routing.rewire(wires)
            for course in courses:
                self._stop_gone(course.reconfiguration.change.fragments_after.values())
            host.store.state.begin_epoch()

    def abort(self, number: int, reason: str) -> ReconfigurationOutcome:
        """Takes a reconfiguration back: what ran before goes on from where it stopped."""
        course = self.overlaps.give_up(number) or self._courses[number]
        course.problem = course.problem or reason  # if there is no room to write it down, it is tried again
        for move in course.moves.values():
            move.cancel()
        r = course.reconfiguration
        if course.preparing is not None or r.protocol.overlaps:  # nothing of it has begun
            return self._given_up(course, reason)
        known = set(self.host.store.exchange.channels())
        opened = [c for c in r.opened.values() if c.id in known] if course.old else []
        # A step that is under way may be about to stop old fragments: it ends first, and what it says is taken back.
        with self._boundaries({c.sender for c in opened} | set(course.old)):
            remove = tuple(RemoveChannel(c.id, discard=True) for c in opened)
            retire = tuple(course.staging(h) for h in course.moves)
            cut = tuple(Rewire(c.id, c.receiver, is_cut=True) for c in to_be_drained(course))
            self.host.store.commit(Commit(rewire=cut, remove=remove, retire=retire, records=tuple(forgotten(course))))
            wires = self._without(opened)
            if wires:
                self.host.routing.rewire(wires)
            self.host.routing.go_on(number)
            self._stop_gone(r.change.fragments_before.values())
        self.host.wake()
        _log.warning("reconfiguration %d was taken back: %s", number, reason)
        return self._given_up(course, reason)

    def _given_up(self, course: InFlightChange, reason: str) -> ReconfigurationOutcome:
        change = course.reconfiguration.change
        self._courses.pop(course.number, None)
        forget(self.plan, change.fragments_after.values())
        self.taken_back(change)
        return self._outcome(course, self._clock(), reason)

    def taken_back(self, change: DeploymentChange) -> None:
        """Fragments go on where they were, also if their node went and came back meanwhile: they were to be elsewhere
        then, so that nobody let them go on."""
        self._let_back({f.id: f.node for f in change.fragments_before.values()})

    def _let_back(self, fragments: Mapping[FragmentId, NodeId]) -> None:
        """Fragments of nodes that are there go on; those that find no room for it do so with one of the next looks."""
        self._back.update(fragments)
        for fragment, node in list(self._back.items()):
            try:
                self._stand_in([fragment] if self.paths.topology.is_alive(node) else [])
            except JournalError as error:
                _log.warning("fragment %d waits: %s", fragment, error)
                return
            del self._back[fragment]

    def _outcome(self, course: InFlightChange, ended: float, reason: str | None = None) -> ReconfigurationOutcome:
        change = course.reconfiguration.change
        marked = course.marked or ended
        drained = course.drained or ended
        messages, size = control_of(course.reconfiguration)
        results = {w.channel for f in course.old.values() for out in f.outputs for w in out if w.channel >= OUTSIDE}
        kept = {w.channel for f in course.new.values() for out in f.outputs for w in out}
        return ReconfigurationOutcome(
            course.number,
            reason,
            marked - course.started,
            max(0.0, drained - marked),
            ended - drained,
            sum(m.bytes for m in course.moves.values()),
            len(change.fragments_after.keys() - change.fragments_before.keys()),
            len(change.fragments_after.keys() & change.fragments_before.keys()),
            len(change.fragments_before.keys() - change.fragments_after.keys()),
            control_messages=messages,
            control_bytes=size,
            operators=tuple(sorted(change.operators)),
            moved={h.operator: m.bytes for h, m in course.moves.items()},
            closed=tuple(sorted(results - kept)) if reason is None else (),
        )

    # ---------------------------------------------------------------- other ways, and coming back

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Lets channels take another way, or none until it is back."""
        channels = self.overlaps.reroute(channels)
        if channels:
            rewire = tuple(Rewire(c.id, c.receiver, self.paths.delay_ms(c), c.is_cut) for c in channels.values())
            records = tuple(map(ChannelRecord, channels.values()))
            self.host.store.commit(Commit(rewire=rewire, records=records))
            self.host.wake()

    def node_gone(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        """The node's fragments stop where their last commit left them, until they get another place."""
        stopped = [f for f in fragments if f in self.host.routing.fragments]
        with self.host.between_steps(stopped):
            for fragment in stopped:
                self.host.routing.pause(fragment, f"{GONE}: {self.paths.topology.name(node)}")
        if self.backup is not None and not self._has_copies:
            self.backup.lose(stopped)
        copies = tuple(self.paths.stand_ins.get(node, ()))
        self.host.store.commit(Commit(records=(GoneNodeRecord(node, copies),)))

    def node_back(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        self.paths.stand_ins.pop(node, None)
        self._let_back(dict.fromkeys(fragments, node))
        self.host.store.commit(Commit(records=tuple(forget_all(GoneNodeRecord, [node]))))

    def _stop_gone(self, fragments: Iterable[Fragment]) -> None:
        """Fragments of nodes that are gone stop (again): a copy stood in for what lay before a marker, for no more."""
        topology, routing = self.paths.topology, self.host.routing
        for fragment in fragments:
            if not topology.is_alive(fragment.node) and fragment.id in routing.fragments:
                routing.pause(fragment.id, f"{GONE}: {topology.name(fragment.node)}")

    def _stand_in(self, fragments: Iterable[FragmentId]) -> None:
        """Fragments of a node that is gone go on: it is back, or a copy does what they have to do before a marker."""
        for fragment in fragments:
            if self.host.routing.paused.get(fragment, "").startswith(GONE):
                try:
                    if self.backup is not None and self.backup.is_lost(fragment):
                        self.backup.rebuild(self.host.routing.fragments[fragment])
                except InputError as error:  # it would fail again: it waits until somebody resumes it
                    self.host.routing.pause(fragment, Pause(str(error), Cause.DATA))
                else:
                    self.host.routing.resume(fragment)

    def recover(self, slots: Mapping[FragmentId, int] | None = None) -> tuple[Deployment, list[Reconfiguration], int]:
        """Installs what the store says ran here, and takes up what was under way.

        Gives the deployment that will run when that is done, what is under way, and the next number.
        """
        store, routing = self.host.store, self.host.routing
        deployment = self._recorded()
        bindings = slots or {f: first_slot(f, routing.slots) for f in deployment.fragments}
        delays = {c.id: self.paths.delay_ms(c) for c in deployment.channels.values()}
        plan, known = with_former(self.plan), bounds_of(self.plan)
        here = [f for f in deployment.fragments.values() if self.runs_here(f.id)]
        channels = {k: c for k, c in deployment.channels.items() if any(map(self.runs_here, (c.sender, c.receiver)))}
        installation = install(plan, here, channels, bindings, delays, self.late, known)
        self.host.install(installation)
        if self.backup is not None:
            self.backup.adopt()
        self._recover_failures(deployment)
        found = [
            reconfiguration(number, record.change, plan)
            for number, record in store.records(ReconfigurationRecord).items()
        ]
        started = self._clock()
        for r in found:
            course = self._course(r, started, plan, known)
            course.marked = started
            routing.rewire(self._with({}, r))
            routing.wait_for(r.marker)
            done = {f: each for f in course.old if (each := store.record(DrainedRecord, (r.number, f)))}
            course.frozen = {f for f, drained in done.items() if drained.is_frozen}
            routing.drain(dict.fromkeys(done, r.number))
            for handover in r.handovers:  # what had begun to arrive begins again
                store.commit(Commit(retire=(course.staging(handover),)))
                remove_rebuilt(course, handover, store)
            self._courses[r.number] = course
            deployment.apply(r.change)
            self._stand_in(course.old)
        for r in self.overlaps.recover(plan, lambda r: self._course(r, started, plan, known)):
            deployment.apply(r.change)
            self._stand_in(r.change.fragments_before)
            found.append(r)
        kept = [*deployment.fragments.values(), *(f for r in found for f in r.change.fragments_before.values())]
        keep_only(self.plan, {(f.id, f.version) for f in kept})
        saved = store.record(NumbersRecord) or NumbersRecord(1, 1, 1)
        deployment.next_fragment = max(deployment.next_fragment, saved.fragment)
        deployment.next_channel = max(deployment.next_channel, saved.channel)
        return deployment, found, saved.reconfiguration

    def _recorded(self) -> Deployment:
        """What the store says about what runs."""
        store = self.host.store
        fragments = (record.fragment for record in store.records(FragmentRecord).values())
        return deployment_from(fragments, (record.channel for record in store.records(ChannelRecord).values()))

    def site_of(self, fragment: FragmentId) -> str:
        """The site that runs a fragment; all run on this host unless there are others."""
        return HOME

    def runs_here(self, fragment: FragmentId) -> bool:
        """Whether a fragment is this host's to run; some may be those of others."""
        return True

    def _recover_failures(self, deployment: Deployment) -> None:
        for node, gone in self.host.store.records(GoneNodeRecord).items():
            if self.paths.topology.is_alive(node):
                continue
            self.paths.stand_ins[node] = gone.copies
            for fragment in deployment.fragments.values():
                if fragment.node == node:
                    self.host.routing.pause(fragment.id, f"{GONE}: {self.paths.topology.name(node)}")


def _never_begun(number: int, reason: str) -> ReconfigurationOutcome:
    return ReconfigurationOutcome(number, reason, 0.0, 0.0, 0.0, 0, 0, 0, 0, not_at_once=True)


def _done() -> Future[None]:
    """What a course waits for whose plans are known already."""
    found: Future[None] = Future()
    found.set_result(None)
    return found
