"""Ways to run a stage: as one plan once that is ready, operator by operator until then, small ones without their tail.

Every change may bring operators together that were apart before: a plan that Spark has not seen, and would need a good
part of a second for. Plans of single operators are prepared beside the work as soon as a query is known, so that a
stage made of known operators can run at once. A stage that runs often so gets its own plan meanwhile, beside the work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from meander.run.execution.prepared import FEW_ROWS, PreparedRunner
from meander.run.execution.rewrites.operator_at_a_time import Course, in_one_piece, in_pieces, pieces
from meander.run.execution.rewrites.trailing_projection import WithoutProjection, without_its_tail, without_tail
from meander.run.execution.runner import Ran, Task
from meander.run.execution.stage_use import ExecutionMode, StageUse
from meander.run.fragments.template import Stage

_log = logging.getLogger(__name__)

OFTEN = 3
"""Runs in pieces after which a stage is worth a plan of its own."""


class TieredRunner:
    """Implements `Runner` over prepared plans."""

    def __init__(self, prepared: PreparedRunner) -> None:
        self.prepared = prepared
        self._pieces: dict[str, list[Stage]] = {}
        self._without_tail: dict[str, WithoutProjection | None] = {}
        self._runs: dict[str, int] = {}
        self._asked_for: set[str] = set()
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, "plans")

    def warm_up(self, stages: Iterable[Stage]) -> None:
        """Makes each stage ready in one way or the other; its operators' own plans follow beside the work."""
        wanted = list({s.key: s for s in stages}.values())
        self.prepared.warm_up([s for s in wanted if not self._is_ready(s)])
        for stage in wanted:
            for piece in self._pieces_of(stage):
                self._ask_for(piece)

    def is_warm(self, stages: Iterable[Stage]) -> bool:
        return all(map(self._is_ready, stages))

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.run_all([Task(stage, tables)])[0].result

    def run_all(self, tasks: Sequence[Task]) -> list[Ran]:
        """In rounds: a stage that runs in pieces has one of them in each."""
        courses = [self._course(*task) for task in tasks]
        seconds = [0.0] * len(tasks)
        results: dict[int, pa.Table] = {}
        waiting: dict[int, Task] = {}

        def go_on(number: int, result: pa.Table | None) -> None:
            try:
                waiting[number] = courses[number].send(result)
            except StopIteration as end:
                results[number] = end.value

        for number in range(len(tasks)):
            go_on(number, None)
        while waiting:
            round_, waiting = waiting, {}
            for number, ran in zip(round_, self.prepared.run_all(list(round_.values())), strict=True):
                seconds[number] += ran.seconds
                go_on(number, ran.result)
        return [Ran(results[number], taken) for number, taken in enumerate(seconds)]

    def _course(self, stage: Stage, tables: Sequence[pa.Table]) -> Course:
        tailless = self._tailless(stage)
        if tailless and self.prepared.is_warm([tailless.stage]) and sum(map(len, tables)) <= FEW_ROWS:
            return without_its_tail(tailless, tables)
        if self.prepared.is_warm([stage]) or not self._has_pieces(stage):
            return in_one_piece(stage, tables)
        with self._lock:
            self._runs[stage.key] = runs = self._runs.get(stage.key, 0) + 1
        if runs == OFTEN:
            self._ask_for(stage)
        return in_pieces(stage, tables)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.prepared.late(stage, tables)

    def use(self, stages: Iterable[Stage]) -> StageUse:
        """How these stages run."""
        ways = [self._way_of(stage) for stage in {s.key: s for s in stages}.values()]
        return StageUse.of(ways, self.prepared.runs, self.prepared.evicted)

    def _way_of(self, stage: Stage) -> tuple[ExecutionMode, str | None]:
        tailless = self._tailless(stage)
        way, reason = self.prepared.way_of(stage)
        if tailless and self.prepared.is_warm([tailless.stage]):
            way, reason = self.prepared.way_of(tailless.stage)
        if way is ExecutionMode.PLAIN and self._has_pieces(stage):
            ways = [self.prepared.way_of(piece) for piece in self._pieces_of(stage)]
            return next(
                (each for each in ways if each[0] is not ExecutionMode.PREPARED), (ExecutionMode.IN_PIECES, None)
            )
        return way, reason

    def evict(self, stages: Iterable[Stage]) -> None:
        """Gives up what nothing has used for a while, but for these stages, their pieces and what they are without
        their tails."""
        wanted = set[str]()
        for stage in stages:
            tailless = self._tailless(stage)
            wanted |= {stage.key, *(piece.key for piece in self._pieces_of(stage))}
            wanted |= {tailless.stage.key} if tailless else set()
        gone = self.prepared.evict(wanted)
        with self._lock:
            for key in gone:
                for kept in (self._pieces, self._without_tail, self._runs):
                    kept.pop(key, None)
            self._asked_for -= gone

    def settle(self) -> None:
        """Waits until everything that was asked for is ready."""
        self._beside.submit(lambda: None).result()

    def close(self) -> None:
        self._beside.shutdown(cancel_futures=True)
        self.prepared.close()

    def _tailless(self, stage: Stage) -> WithoutProjection | None:
        if stage.key not in self._without_tail:
            self._without_tail[stage.key] = without_tail(stage)
        return self._without_tail[stage.key]

    def _is_ready(self, stage: Stage) -> bool:
        return self.prepared.is_warm([stage]) or self._has_pieces(stage)

    def _has_pieces(self, stage: Stage) -> bool:
        return len(stage.nodes) > 1 and self.prepared.is_warm(self._pieces_of(stage))

    def _pieces_of(self, stage: Stage) -> list[Stage]:
        found = self._pieces.get(stage.key)
        if found is None:
            found = self._pieces[stage.key] = pieces(stage)
        return found

    def _ask_for(self, stage: Stage) -> None:
        with self._lock:
            if stage.key in self._asked_for:
                return
            self._asked_for.add(stage.key)
        self._beside.submit(self._prepare, stage)

    def _prepare(self, stage: Stage) -> None:
        try:
            self.prepared.warm_up([stage])
        except Exception:
            _log.exception("a plan could not be prepared; it will be when it is needed")
