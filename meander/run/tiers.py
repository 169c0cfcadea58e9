"""Two ways to run a stage: as one plan once that is ready, operator by operator until then.

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

from meander.run.pieces import pieces, run_in_pieces
from meander.run.prepared import PreparedRunner
from meander.run.template import Stage

_log = logging.getLogger(__name__)

OFTEN = 3
"""Runs in pieces after which a stage is worth a plan of its own."""


class TieredRunner:
    """Implements `Runner` over prepared plans."""

    def __init__(self, prepared: PreparedRunner) -> None:
        self.prepared = prepared
        self._pieces: dict[str, list[Stage]] = {}
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
        if self.prepared.is_warm([stage]) or not self._has_pieces(stage):
            return self.prepared.run(stage, tables)
        with self._lock:
            self._runs[stage.key] = runs = self._runs.get(stage.key, 0) + 1
        if runs == OFTEN:
            self._ask_for(stage)
        return run_in_pieces(stage, tables, self.prepared.run)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.prepared.late(stage, tables)

    def settle(self) -> None:
        """Waits until everything that was asked for is ready."""
        self._beside.submit(lambda: None).result()

    def close(self) -> None:
        self._beside.shutdown(cancel_futures=True)
        self.prepared.close()

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
