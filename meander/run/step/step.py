"""A step: one batch of one slot, as a plain function. Structured Streaming calls it; tests call it directly.

For every group of fragments that have something to do: read their channels, run the template's stages on Spark, and
collect the results. Everything a step changes (positions consumed, tuples appended, state) becomes one commit under
(slot, batch id), so a step that is repeated after a crash has no second effect, and a step that failed half-way has
none at all.

Steps are bulkheads: an unexpected error of one group stops no other. Groups are run one by one, then halves of their
fragments, until those are found that fail; they are paused with the reason, or tried again later if it was not their
fault (`failures` tells which).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from meander.model.ids import ChannelId, OperatorId
from meander.run.execution.runner import Runner
from meander.run.failures import Cause, Failure, failure_of
from meander.run.fragments.bindings import Bindings
from meander.run.fragments.rebind_requests import Requests
from meander.run.fragments.routing import Group, Pause, Routing
from meander.run.step.backup_bases import with_bases
from meander.run.step.diagnosis import failing_operators
from meander.run.step.emit import append_waiting, emit
from meander.run.step.idle_timeout import IdleTimeout
from meander.run.step.input import LEAST_ROWS, GroupReader
from meander.run.step.measures import StepMeasures
from meander.run.step.retries import Retries
from meander.run.step.stage_scheduler import StageScheduler, resident_state
from meander.run.step.work import StepReport, Work
from meander.run.store.commit import REFUSED, Writer, slot_writer
from meander.run.store.journal import JournalError
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
MOST_ROWS = 1_000_000
"""Tuples that a step reads at most, over all channels of a group; the rest waits for the next step."""

MOST_SEARCHED = 64
"""Parts of groups that a step runs alone at most to find out who lets workers end: each time may take a while."""

Check = Callable[[Work], None]
"""Raises when something is wrong with a commit as far as it has grown."""


class Stepper:
    """Runs steps of any slot over one store and one routing table."""

    def __init__(
        self,
        store: Store,
        routing: Routing,
        runner: Runner,
        most_rows: int = MOST_ROWS,
        idle_timeout_ms: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.routing, self.runner = store, routing, runner
        self.setbacks = Retries(routing, clock)
        self.idle_timeout = IdleTimeout(store, idle_timeout_ms)
        self.reader = GroupReader(store, routing, self.idle_timeout, self.setbacks, most_rows)
        self.requests = Requests(routing)
        self.resident = resident_state(store)
        self.measures: StepMeasures | None = None
        """The consumer of step times, if there is one."""
        self.bindings: Bindings | None = None
        """The store of bindings, if they are kept."""

    def step(self, slot: int, batch_id: int, writer: Writer | None = None) -> StepReport:
        """One batch. A batch id that its writer has committed before is recognised and not run again."""
        started = time.perf_counter()
        report = StepReport(batch_id)
        writer = writer or slot_writer(slot)
        last = self.store.last_batch(writer)
        if last is not None and last >= batch_id:
            report.repeated = True
            return report
        self.requests.hand_over(slot)
        if self.bindings is not None:
            self.bindings.keep()
        self.routing.resume_due(self.setbacks.clock())
        groups = self.routing.groups(slot)
        # Those that have to read in small portions are not handed all at once.
        whole = (group.inputs for group in groups if not self.setbacks.reads_less(group.template.key))
        downstream = frozenset[ChannelId]().union(*whole)
        work = Work()
        self._run(groups, work, downstream, report)
        append_waiting(work)
        if work.versions:
            try:
                self._commit(work, writer, batch_id)
            except REFUSED as error:
                _log.warning("a step cannot be committed as a whole (%s); its groups are looked at one by one", error)
                report = StepReport(batch_id)
                work = self._checked(groups, downstream, report, writer)
                if work.versions:
                    self._commit(work, writer, batch_id)
            if work.drained:
                self.routing.drain(work.drained)
                report.drained = len(work.drained)
            if work.looked:
                self.routing.looked(work.looked)
        report.seconds = time.perf_counter() - started
        return report

    def _commit(self, work: Work, writer: Writer, batch_id: int) -> None:
        commit = work.commit(writer, batch_id)
        if self.idle_timeout.is_limited:
            commit = with_bases(commit, self.routing.fragments, self.store)
        self.store.commit(replace(commit, settles=False))

    def _checked(
        self, groups: Sequence[Group], downstream: frozenset[ChannelId], report: StepReport, writer: Writer
    ) -> Work:
        """The commit of groups, each of which fits: one whose positions or tuples the store refuses is left out."""

        def check(grown: Work) -> None:
            whole = grown.copy()
            append_waiting(whole)
            self.store.check(whole.commit(writer, report.batch_id))

        work = Work()
        for group in groups:
            self._run([replace(group, after=())], work, downstream, report, check)
        append_waiting(work)
        return work

    def has_work(self, slot: int) -> bool:
        """Whether a step of the slot would do something."""
        try:
            return self._has_work(slot)
        except Exception:  # a channel ended while this looked, or a fragment is broken: the step will see which
            return True

    def _has_work(self, slot: int) -> bool:
        self.routing.resume_due(self.setbacks.clock())
        groups = self.routing.groups(slot)
        if self.requests.are_waiting(slot):
            return True
        if self.routing.fresh and any(f.fragment in self.routing.fresh for g in groups for f in g.fragments):
            return True
        if self.idle_timeout.is_limited and any(self.idle_timeout.is_due(f) for g in groups for f in g.fragments):
            return True
        return self.reader.has_input(groups)

    # ---------------------------------------------------------------- running, and what fails

    def _run(
        self,
        groups: Sequence[Group],
        work: Work,
        downstream: frozenset[ChannelId],
        report: StepReport,
        check: Check | None = None,
    ) -> None:
        """Runs groups; failing ones are run in smaller and smaller parts, until the failing fragments are known."""
        trial, counted, started = work.copy(), replace(report), self.setbacks.clock()
        front = StageScheduler(
            self.store.state,
            self.runner,
            lambda group: self.reader.read(group, trial, counted),
            lambda batch: emit(batch, trial, self.store.exchange, downstream, counted),
            trial,
            counted,
            self.resident,
        )
        try:
            front.run(groups, self.reader.quiet(groups))
            if check is not None:
                check(trial)
        except JournalError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure.cause is Cause.INTERRUPTED:
                raise
            took_s = self.setbacks.clock() - started
            for part in self._parts(groups, work, failure, report, took_s):
                self._run(part, work, downstream, report, check)
            return
        work.take(trial)
        report.take(counted)
        self.setbacks.did_well(f for batch in front.done for f in batch.fragments)
        if self.measures is not None:
            for batch in front.done:
                self.measures.note_batch(batch, batch.seconds)

    def _parts(
        self, groups: Sequence[Group], work: Work, failure: Failure, report: StepReport, took_s: float
    ) -> list[list[Group]]:
        """The parts to run instead of groups that failed; for fragments whose failure it is, nothing."""
        group, fragments = groups[0], groups[0].fragments
        if len(groups) > 1:
            return [[replace(each, after=())] for each in groups]
        if failure.cause is Cause.MEMORY:
            can_do_with_less = self.setbacks.read_less(group.template.key, self.reader.most_rows, LEAST_ROWS)
            if not group.inputs.isdisjoint(work.handed):  # it waits in channels, from which the next step reads less
                return []
            if can_do_with_less:
                return [[group]]
        if failure.cause is not Cause.DATA:
            report.searched += 1
            if report.searched > MOST_SEARCHED or not self.setbacks.is_to_be_looked_into(fragments, failure):
                self.setbacks.put_off(fragments, failure, took_s=took_s)
                return []
        if len(fragments) > 1:
            middle = len(fragments) // 2
            return [[Group(group.template, half)] for half in (fragments[:middle], fragments[middle:])]
        self._pause(group, work, failure, took_s)
        return []

    def _pause(self, group: Group, work: Work, failure: Failure, took_s: float) -> None:
        """Takes a fragment out of the steps that failed alone, with an operator that did.

        If data has broken it that is for good; otherwise it is tried again later.
        """
        (fragment,) = group.fragments
        try:
            batch = self.reader.read(group, work.copy(), StepReport(0))
            found = {} if batch is None else failing_operators(self.store.state, self.runner, batch)
        except JournalError:
            raise
        except Exception as error:
            other = failure_of(error)
            if other.cause is Cause.INTERRUPTED:
                raise
            if other.cause is not Cause.DATA:
                return self.setbacks.put_off([fragment], other, took_s=took_s)
            found = {}
        failing = frozenset[OperatorId]()
        if found:  # one by one, each with its own reason: what else fails is found when this one is set apart
            operator = min(found, key=lambda o: (found[o].cause is not Cause.DATA, o))
            failing, failure = frozenset([operator]), found[operator]
        if failure.cause is not Cause.DATA:
            return self.setbacks.put_off([fragment], failure, failing, took_s)
        self.routing.pause(fragment.fragment, Pause(failure.reason, failure.cause, failing))
        named = f" (operators {', '.join(map(str, sorted(failing)))})" if failing else ""
        _log.warning("fragment %d%s is paused: %s", fragment.fragment, named, failure.reason)
        return None
