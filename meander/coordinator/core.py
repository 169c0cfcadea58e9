"""The decision core: one thread that owns all decisions. Other threads put commands into its queue and get answers.

A command is written into the ledger before it is carried out, and once more with its result. Commands that wait at the
same time are carried out as one batch; one that cannot be is refused on its own. Requests that only read go to the read
model and do not come here.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

from meander.adapt.decisions import Decision
from meander.coordinator.commands import Answer, Command, CommandBatch, CoreTask
from meander.coordinator.epochs import SteppedDownError
from meander.coordinator.ledger.departed import Departure
from meander.coordinator.ledger.ledger import Placing
from meander.coordinator.problems import ServiceRefusedError, conflict
from meander.coordinator.read_model.measuring import Measured
from meander.coordinator.read_model.publisher import Publisher
from meander.coordinator.read_model.read_model import pair_of
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.place.admission import admit
from meander.place.engine import BatchReport, Engine
from meander.reconfigure.outcome import ReconfigurationOutcome

_log = logging.getLogger(__name__)
BUSY_S, IDLE_S = 0.01, 0.05
GATHER_S = 0.02
"""While changes keep coming, those of so much time become one batch: a batch costs more than a change."""
FAILURE_SHOWN_S = 60.0
"""For so long a failure inside is a problem that `GET /health` names."""
VALIDATING = 0.05
"""The share of its time that the core spends at most on comparing the running fragments with the catalog."""
MOST_AT_ONCE = 1_000
"""Events in one batch at most."""


class ObservedEngine(Engine):
    """An engine whose reports can be read afterwards, whichever caller ran it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reports: list[BatchReport] = []

    def run(self, events: Sequence[ChangeEvent], *, escalates: bool = True) -> BatchReport:
        report = super().run(events, escalates=escalates)
        self.reports.append(report)
        return report

    def told(self) -> list[BatchReport]:
        """The reports since the last time."""
        found, self.reports = self.reports, []
        return found


class Core:
    """Made and started by the coordinator."""

    def __init__(self, publisher: Publisher, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.publisher, self.clock = publisher, clock
        self.loop, self.ledger, self.sink_bindings = publisher.loop, publisher.ledger, publisher.sink_bindings
        self.adaptation = publisher.adaptation
        self.failures: dict[str, float] = {}
        """Internal failures, with the time of the last occurrence of each."""
        self.on_stepped_down: Callable[[str], None] = lambda reason: None
        """Told when another coordinator has taken over."""
        self.on_measured: Callable[[], None] = lambda: None
        """Called after new measures were shown."""
        self._queue: queue.SimpleQueue[Command | CoreTask | None] = queue.SimpleQueue()
        self._measures: deque[Measured] = deque(maxlen=1)
        self._placed: dict[OperatorId, tuple[NodeId, bool]] = {}
        """The node of each operator as the ledger has it, and whether it was put there by hand."""
        self._unsaved: dict[OperatorId, None] = {}
        """Operators that were placed, moved or removed since the ledger was last told."""
        self.validates = False
        """Whether the running fragments are compared with the catalog after every change."""
        self._validated, self._validates_at = (0, 0), 0.0
        self._changed = 0.0
        """The time at which the last batch was applied."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="core", daemon=True)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the present command; commands that wait are refused."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def halt(self) -> None:
        """Decides nothing any more, from any thread; does not wait for that."""
        self._stopping.set()
        self._queue.put(None)

    def ask(self, command: Command | CoreTask) -> Future[Answer]:
        """Puts a command into the queue, from any thread."""
        self._queue.put(command)
        if not self._thread.is_alive() and self._stopping.is_set():
            self._refuse_all()
        return command.answer

    def measured(self, found: Measured) -> None:
        """New measures, from another thread."""
        self._measures.append(found)

    def restore(self) -> None:
        """The ledger has the placements that the catalog has."""
        found = {o: self._placing(o) for o in self.loop.catalog.placement.nodes}
        self._placed = {o: placing for o, placing in found.items() if placing is not None}

    def _run(self) -> None:
        while not self._stopping.is_set():
            commands = self._gather()
            try:
                self.take(commands)
                self.carry_on()
            except Exception as error:
                self.failed("deciding", error)
                for command in commands:
                    if not command.answer.done():
                        command.answer.set_exception(error)
        self._refuse_all()

    def failed(self, what: str, error: Exception) -> None:
        """Something that should not happen happened; everything else goes on, unless another coordinator acts now."""
        if isinstance(error, SteppedDownError):
            self._stopping.set()
            self.on_stepped_down(str(error))
            return
        _log.error("%s failed", what, exc_info=error)
        self.failures[f"{what} failed: {type(error).__name__}: {error}"] = time.monotonic()

    def recent_failures(self) -> list[str]:
        """The internal failures of the last minute."""
        since = time.monotonic() - FAILURE_SHOWN_S
        return [what for what, at in list(self.failures.items()) if at >= since]

    def _gather(self) -> list[Command | CoreTask]:
        """Takes all waiting commands and tasks from the queue; sleeps for a moment when there are none."""
        found: list[Command | CoreTask] = []
        busy = self.loop.pending or self.loop.deployer.under_way or self.adaptation.transitions.under_way
        try:
            command = self._queue.get(timeout=BUSY_S if busy else IDLE_S)
            if time.monotonic() - self._changed < 5 * GATHER_S:
                time.sleep(GATHER_S)
            while command is not None:
                found.append(command)
                command = self._queue.get_nowait()
        except queue.Empty:
            pass
        return found

    def _refuse_all(self) -> None:
        try:
            while True:
                command = self._queue.get_nowait()
                if command is not None:
                    reason = "the coordinator is stopping; try again when it runs"
                    command.answer.set_exception(ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason))
        except queue.Empty:
            pass

    # ---------------------------------------------------------------- commands

    def take(self, commands: Sequence[Command | CoreTask]) -> None:
        """Carries commands out, in their order; changes that follow each other become one batch."""
        group: list[Command] = []
        for command in commands:
            if isinstance(command, CoreTask):
                self._change(group)
                group = []
                self._run_task(command)
                continue
            same = command.key is not None and any(w.key and w.key.key == command.key.key for w in group)
            if same or sum(len(w.changes.events) for w in group) + len(command.changes.events) > MOST_AT_ONCE:
                self._change(group)
                group = []
            if not self._seen_before(command):
                group.append(command)
        self._change(group)

    def _seen_before(self, command: Command | CoreTask) -> bool:
        """Answers a request that was carried out before as it was answered then."""
        key = command.key
        seen = self.ledger.answer_to(key.key) if key is not None else None
        if key is None or seen is None:
            return False
        if seen.fingerprint != key.fingerprint:
            command.answer.set_exception(
                conflict("this Idempotency-Key was used for another request; choose a new one")
            )
        elif seen.status is None:
            command.answer.set_exception(
                conflict("this request was not finished; look at what it did before you repeat it")
            )
        else:
            command.answer.set_result((seen.status, seen.body))
        return True

    def _run_task(self, task: CoreTask) -> None:
        if self._seen_before(task):
            return
        try:
            answer = task.run(self)
        except InputError as error:
            task.answer.set_exception(error)
            return
        if task.key is not None:
            with self.ledger.transaction():
                self.ledger.expect(task.key.key, task.key.fingerprint, self.clock(), None, None)
                self.ledger.answered(task.key.key, *answer)
        task.answer.set_result(answer)

    def _change(self, commands: Sequence[Command]) -> None:
        """One batch: admitted, written down, applied, written down with its result, answered."""
        good = self._admitted(commands)
        if not good:
            return
        now = self.clock()
        events = [e for w in good for e in w.changes.events]
        texts = {q: text for w in good for q, text in w.changes.texts.items()}
        with self.ledger.transaction():
            number = self.ledger.accept(now, [v for w in good for v in w.changes.values], _query_steps(events, texts))
            for command in good:
                if command.key is not None:
                    self.ledger.expect(
                        command.key.key, command.key.fingerprint, now, number, command.response.as_json()
                    )
        batch = self.apply(number, events, texts)
        answers = [(command, command.response.answer(self, batch)) for command in good]
        with self.ledger.transaction():
            for command, answer in answers:
                if command.key is not None:
                    self.ledger.answered(command.key.key, *answer)
        for command, answer in answers:
            command.answer.set_result(answer)
        self.begin(batch)

    def _admitted(self, commands: Sequence[Command]) -> list[Command]:
        """The commands that can be carried out one after the other; the others are refused, each with its own
        reason."""
        if self._all_fit(commands):
            return list(commands)
        good: list[Command] = []
        events: list[ChangeEvent] = []
        for command in commands:
            try:
                self._admit(command, events)
            except InputError as error:
                self.publisher.totals.refused += 1
                command.answer.set_exception(error)
            else:
                good.append(command)
                events += command.changes.events
        return good

    def _all_fit(self, commands: Sequence[Command]) -> bool:
        """Whether several simple commands can be carried out together: the usual case, looked at once."""
        events = [e for w in commands for e in w.changes.events]
        if any(w.check for w in commands) or any(isinstance(e, QueryAdded | QueryRemoved) for e in events):
            return False
        try:
            admit(self.loop.catalog, events)
        except InputError:
            return False
        return True

    def _admit(self, command: Command, before: Sequence[ChangeEvent]) -> None:
        """Raises when a command cannot be carried out after these events."""
        if command.check is not None:
            command.check(self)
        added = [e.query for e in command.changes.events if isinstance(e, QueryAdded)]
        for query in added:
            self.loop.engine.applicator.preparation.prepare(query)
        if not before:
            admit(self.loop.catalog, command.changes.events)
        elif not self._fits_after(before, command.changes.events):  # alone, so that the error counts its own events
            admit(self.loop.catalog, command.changes.events)
            admit(self.loop.catalog, [*before, *command.changes.events])
        for query in added:
            self.sink_bindings.prepare(query)

    def _fits_after(self, before: Sequence[ChangeEvent], events: Sequence[ChangeEvent]) -> bool:
        try:
            admit(self.loop.catalog, [*before, *events])
        except InputError:
            return False
        return True

    def apply(self, number: int, events: Sequence[ChangeEvent], texts: Mapping[QueryId, str]) -> CommandBatch:
        """Applies a batch that was accepted, and writes down its result; `begin` has to follow."""
        topology, now = self.loop.catalog.topology, self.clock()
        names, links = self._touched(events)
        departure = Departure.of(topology, self.ledger, events)
        for event in events:
            if isinstance(event, QueryRemoved):
                self.adaptation.transitions.give_up(event.query)
        applied = self.loop.decide(events)
        self._told_reports()
        self.adaptation.note(events, now)
        nodes = {topology.known_id(name) for name in names}
        pairs = {pair_of(topology.known_id(a), topology.known_id(b)) for a, b in links}
        with self.ledger.transaction():
            self._note(events, texts)
            moves = self.publisher.moves(applied.report)
            self.publisher.by_hand([e.operator for e in events if isinstance(e, PlacementChanged)])
            owner = self.loop.deployer.deployment.owner
            fragments = {owner[m.operator] for m in applied.report.moves if m.operator in owner}
            batch = CommandBatch(number, applied, moves, len(fragments))
            self.ledger.save_nodes(topology, nodes)
            self.ledger.save_links(topology, pairs)
            nodes |= {topology.known_id(name) for name in departure.note()}
            self._save_placements([e.operator for e in events if isinstance(e, PlacementChanged)])
            self.ledger.applied(number, batch.in_numbers())
        self.publisher.totals.batches += 1
        self.publisher.totals.events += len(events)
        nodes |= {n for m in applied.report.moves for n in (m.source, m.target) if n is not None}
        self.publisher.placed(moves, nodes, pairs)
        self.publisher.queries([q for e in events if (q := _query_of(e)) is not None])
        return batch

    def begin(self, batch: CommandBatch) -> None:
        """Begins to deploy the decisions of a batch. Its commands have been answered by then, and do not wait for
        deployment."""
        self._changed = time.monotonic()
        self.loop.begin(batch.applied)
        self.publisher.reconfigurations((), self.clock())

    def _touched(self, events: Iterable[ChangeEvent]) -> tuple[set[str], set[tuple[str, str]]]:
        """Names of nodes and ends of links that events are about to change."""
        nodes: set[str] = set()
        links: set[tuple[str, str]] = set()
        for event in events:
            match event:
                case NodeAdded(node=node):
                    nodes.add(node.name)
                case CapacityChanged(node=name):
                    nodes.add(name)
                case NodeRemoved(node=name):
                    nodes.add(name)
                    links |= {(name, other) for other in self._neighbours(name)}
                case LinkAdded(link=link):
                    links.add((link.source, link.target))
                case LinkRemoved(source=a, target=b):
                    links.add((a, b))
        return nodes, links

    def _neighbours(self, name: str) -> list[str]:
        topology = self.loop.catalog.topology
        node = topology.find(name)
        if node is None:
            return []
        ends = [topology.arcs.tip[a] for a in topology.arcs_from(node)]
        ends += [topology.arcs.tail[a] for a in topology.arcs_to(node)]
        return [topology.name(NodeId(int(n))) for n in ends]

    def _note(self, events: Iterable[ChangeEvent], texts: Mapping[QueryId, str]) -> None:
        """Writes down the effects of applied events, besides topology and placements."""
        for event in events:
            match event:
                case QueryAdded(query=query):
                    self.ledger.save_demands(query.id, None)  # those of a former query of this name
                    self.publisher.texts[query.id] = texts[query.id]
                    self.sink_bindings.expect(query.id)
                    self.publisher.read_model.show_query(query.id)
                case QueryRemoved(query=name):
                    self.sink_bindings.stop(name)
                    self.ledger.save_demands(name, None)
                case DemandChanged(query=name, demands=demands):
                    self.ledger.save_demands(name, [str(d) for d in demands])
                case RateChanged(stream=stream):
                    rates = self.loop.catalog.rates_tps
                    self.ledger.save_rates({key: rate for key, rate in rates.items() if key[0] == stream})

    def _save_placements(self, by_hand: Iterable[OperatorId] = ()) -> None:
        """Writes down the places of operators that moved, and of those that a user moved or released."""
        why = self.publisher.read_model.why
        changed: dict[OperatorId, Placing | None] = {}
        for operator in (*self._unsaved, *by_hand):
            placing = self._placing(operator)
            if self._placed.get(operator) != placing:
                changed[operator] = None if placing is None else Placing(*placing, why.get(operator, ""))
                if placing is None:
                    del self._placed[operator]
                else:
                    self._placed[operator] = placing
        self.ledger.save_placements(changed)
        self._unsaved.clear()

    def _placing(self, operator: OperatorId) -> tuple[NodeId, bool] | None:
        """Its node, and whether it was put there by hand; None when it has no place."""
        node = self.loop.catalog.placement.nodes.get(operator)
        return None if node is None else (node, self.loop.catalog.plan[operator].is_held)

    # ---------------------------------------------------------------- carrying on

    def carry_on(self) -> None:
        """Carries on with the work in flight, and publishes its results."""
        now = self.clock()
        outcomes = self._polled()
        decided = self._adapted(now)
        self.follow()
        self.publisher.reconfigurations(outcomes, now)
        self.publisher.decisions(decided)
        for query in self.sink_bindings.tick():
            self.publisher.gone(query)
        if self._measures:
            self.publisher.measures(self._measures.pop())
            self.on_measured()
        if self.validates:
            self._validate()

    def _validate(self) -> None:
        """Compares the running fragments with the catalog, once after each change, when nothing is in flight any
        more."""
        deployer, batches = self.loop.deployer, (self.publisher.totals.batches, self.loop.deployer.next_number)
        started = time.monotonic()
        if deployer.has_open_changes or batches == self._validated or started < self._validates_at:
            return
        self._validated = batches
        self._check()
        self._validates_at = time.monotonic() + (time.monotonic() - started) / VALIDATING

    def _check(self) -> None:
        for fault in self.loop.validate([binding.channel for binding in self.sink_bindings.known.values()]):
            self.failed("validation", RuntimeError(fault))

    def _polled(self) -> list[ReconfigurationOutcome]:
        """The outcomes of changes since the last call; when polling fails, the other duties go on."""
        try:
            return self.loop.poll()
        except Exception as error:
            self.failed("deploying", error)
            return []

    def _adapted(self, now_ms: int) -> list[Decision]:
        """The decisions of the adaptation loop; when it fails, queries run on as they are placed."""
        try:
            return self.adaptation.tick(now_ms)
        except Exception as error:
            self.failed("adaptation", error)
            return []

    def follow(self) -> None:
        """Takes note of placements that changed outside of a batch, such as those of the adaptation loop."""
        reports = self._told_reports()
        if not reports:
            return
        moves = [m for report in reports for m in self.publisher.moves(report)]
        with self.ledger.transaction():
            self._save_placements()
        ends = (n for report in reports for m in report.moves for n in (m.source, m.target))
        self.publisher.placed(moves, {n for n in ends if n is not None}, ())

    def _told_reports(self) -> list[BatchReport]:
        engine = self.loop.engine
        found = engine.told() if isinstance(engine, ObservedEngine) else []
        for report in found:
            self._unsaved.update(dict.fromkeys(report.difference.operators))
        return found


def _query_of(event: ChangeEvent) -> str | None:
    match event:
        case QueryAdded(query=query):
            return query.id
        case QueryRemoved(query=name) | DemandChanged(query=name):
            return name
    return None


def _query_steps(events: Iterable[ChangeEvent], texts: Mapping[QueryId, str]) -> list[tuple[str, str | None]]:
    steps: list[tuple[str, str | None]] = []
    for event in events:
        if isinstance(event, QueryAdded):
            steps.append((event.query.id, texts[event.query.id]))
        elif isinstance(event, QueryRemoved):
            steps.append((event.query, None))
    return steps
