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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from http import HTTPStatus

from meander.adapt.decisions import Decision
from meander.coordinator.core.admission import admitted
from meander.coordinator.core.batches import Batches, query_steps
from meander.coordinator.core.commands import Answer, Command, CoreTask
from meander.coordinator.epochs import SteppedDownError
from meander.coordinator.loop.validation import faults_of
from meander.coordinator.mobility.prediction import MobilityPrediction
from meander.coordinator.problems import ServiceRefusedError, conflict
from meander.coordinator.read_model.measuring import Measured
from meander.coordinator.read_model.publisher import Publisher
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.run.store.journal import JournalError

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


class Core:
    """Made and started by the coordinator."""

    def __init__(self, publisher: Publisher, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.publisher, self.clock = publisher, clock
        self.loop, self.ledger, self.sink_bindings = publisher.loop, publisher.ledger, publisher.sink_bindings
        self.adaptation, self.batches = publisher.adaptation, Batches(publisher, clock)
        self.loop.let_go = self.batches.let_go
        self.failures: dict[str, float] = {}
        """Internal failures, with the time of the last occurrence of each."""
        self.on_stepped_down: Callable[[str], None] = lambda reason: None
        """Told when another coordinator has taken over."""
        self.on_measured: Callable[[], None] = lambda: None
        """Called after new measures were shown."""
        self.prediction: MobilityPrediction | None = None
        """The prediction of mobile nodes' moves, if there is one."""
        self._queue: queue.SimpleQueue[Command | CoreTask | None] = queue.SimpleQueue()
        self._measures: deque[Measured] = deque(maxlen=1)
        self.confirm: Callable[[], None] = lambda: None
        """Returns when the standby has what was written, if there is one."""
        self.validates = False
        """Whether the running fragments are compared with the catalog after every change."""
        self._validated, self._validates_at = (0, 0), 0.0
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
            if time.monotonic() - self.batches.changed < 5 * GATHER_S:
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
        seen = self.ledger.answers.find(key.key) if key is not None else None
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
                self.ledger.answers.expect(task.key.key, task.key.fingerprint, self.clock(), None, None)
                self.ledger.answers.give(task.key.key, *answer)
        self._answer([(task, answer)])

    def _change(self, commands: Sequence[Command]) -> None:
        """One batch: admitted, written down, applied, written down with its result, answered."""
        good = admitted(self, commands)
        if not good:
            return
        now = self.clock()
        events = [e for w in good for e in w.changes.events]
        texts = {q: text for w in good for q, text in w.changes.texts.items()}
        with self.ledger.transaction():
            values = [v for w in good for v in w.changes.values]
            first = self.loop.catalog.plan.next_operator
            number = self.ledger.batches.accept(now, values, query_steps(events, texts), first)
            for command in good:
                if command.key is not None:
                    self.ledger.answers.expect(
                        command.key.key, command.key.fingerprint, now, number, command.response.as_json()
                    )
        batch = self.batches.apply(number, events, texts)
        self._expecting(lambda prediction: prediction.note(events, now))
        answers = [(command, command.response.answer(self, batch)) for command in good]
        with self.ledger.transaction():
            for command, answer in answers:
                if command.key is not None:
                    self.ledger.answers.give(command.key.key, *answer)
        self._answer(answers)
        self.batches.begin(batch)

    def _answer(self, answers: Sequence[tuple[Command | CoreTask, Answer]]) -> None:
        """Tells those who asked, once nobody who takes over would not know of it."""
        try:
            self.confirm()
        except JournalError as error:
            refusal = ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"it is not certain that this lasts: {error}")
            for command, _ in answers:
                command.answer.set_exception(refusal)
            return
        for command, answer in answers:
            command.answer.set_result(answer)

    # ---------------------------------------------------------------- carrying on

    def carry_on(self) -> None:
        """Carries on with the work in flight, and publishes its results."""
        now = self.clock()
        outcomes = self._polled()
        decided = self._adapted(now)
        self._expecting(lambda prediction: prediction.tick(now))
        self.batches.follow()
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
        for fault in faults_of(self.loop, [binding.channel for binding in self.sink_bindings.known.values()]):
            self.failed("validation", RuntimeError(fault))

    def _polled(self) -> list[ReconfigurationOutcome]:
        """The outcomes of changes since the last call; when polling fails, the other duties go on."""
        try:
            return self.loop.poll()
        except Exception as error:
            self.failed("deploying", error)
            return []

    def _expecting(self, what: Callable[[MobilityPrediction], None]) -> None:
        """Lets prediction learn or look ahead; when it fails, nothing is prepared."""
        if self.prediction is None:
            return
        try:
            what(self.prediction)
        except Exception as error:
            self.failed("prediction", error)

    def _adapted(self, now_ms: int) -> list[Decision]:
        """The decisions of the adaptation loop; when it fails, queries run on as they are placed."""
        try:
            return self.adaptation.tick(now_ms)
        except Exception as error:
            self.failed("adaptation", error)
            return []
