"""The resident state of a host: which rows a step reads, of all that an operator remembers.

Small state is read whole, and so it is where a batch is not small beside it: to look for each row would cost more. Else
only the rows go into the plan that have a key of a new tuple. The plan is the same, and gives the same.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from meander.model.ids import FragmentId
from meander.model.locks import lock
from meander.run.channels.base import Int64s
from meander.run.fragments.template import Stage
from meander.run.frames import FRAGMENT
from meander.run.resident.partners import Partners, partners
from meander.run.resident.table import Probe, ResidentTable
from meander.run.store.state import StateTables

_log = logging.getLogger(__name__)

LEAST_ROWS = 2_000
"""Fewer rows of state are read whole."""
FEW = 4
"""So many times the new rows of a step are to be there at least."""
UNUSED_S = 60.0
"""How long a table is kept that no step reads."""


class ResidentState:
    """All resident tables of a host, within a budget of memory: beyond it, large parts are in files."""

    def __init__(
        self,
        state: StateTables,
        directory: Path,
        budget_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._directory, self._budget_bytes, self._clock = state, directory, budget_bytes, clock
        shutil.rmtree(directory, ignore_errors=True)
        self._partners: dict[str, tuple[Partners | None, ...]] = {}
        self._tables: dict[tuple[str, int, int], ResidentTable] = {}
        self._used: dict[tuple[str, int, int], float] = {}
        self._lock = lock("resident state")
        self.readings = 0
        """Times that a step did not read its state whole."""

    @property
    def bytes(self) -> int:
        """In memory."""
        return sum(table.bytes for table in self._tables.values())

    def read(
        self,
        stage: Stage,
        number: int,
        operator: int,
        tables: Sequence[pa.Table],
        fragments: Sequence[FragmentId],
        first: Int64s,
        stop: Int64s,
    ) -> pa.Table | None:
        """The rows of state table `number` that new rows can meet, as a frame of the stage; None to read it whole."""
        found = self._partners.get(stage.key)
        if found is None:
            found = self._partners[stage.key] = partners(stage)
        if (own := found[number]) is None:
            return None
        probes = [(tables[leaf], columns) for leaf, columns in own.leaves.items()]
        new = sum(len(table) for table, _ in probes)
        if self._state.rows_within(fragments, operator, first, stop) < max(LEAST_ROWS, FEW * new):
            return None
        keyed = [
            Probe(table.column(FRAGMENT).to_numpy().astype(np.int64), [table.column(c) for c in columns])
            for table, columns in probes
            if len(table)
        ]
        with self._lock:
            self.readings += 1
            key = (stage.key, number, operator)
            self._used[key] = self._clock()
            if key not in self._tables:
                self._tables[key] = ResidentTable(self._state, operator, stage.states[number], own.keys)
            rows = self._tables[key].find(fragments, first, stop, keyed)
            if self.bytes > self._budget_bytes:
                self._spill()
        return rows

    def _spill(self) -> None:
        try:
            for table in self._tables.values():
                table.spill(self._directory)
        except OSError as error:  # the next step that needs them makes them anew
            _log.warning("resident state is given up, as it cannot be kept in files: %s", error)
            self._tables.clear()

    def evict_unused(self) -> None:
        """Gives up what no step has read for a while, as of queries that are gone."""
        with self._lock:
            now = self._clock()
            for key in [key for key, used in self._used.items() if now - used >= UNUSED_S]:
                del self._used[key]
                self._tables.pop(key, None)
