"""Prediction: which moves of mobile nodes are expected, what is prepared for them, and what came of it.

The predictor learns from every batch. When a move is likely and near, its events are tried on a copy of the catalog;
the changes that would follow are told to the hosts, which make plans ready and send the bulk of large states ahead.
That is all: nothing stops, nothing is decided. When the node moves, its change finds everything there; when it goes
elsewhere or does not move in time, what was prepared is dropped. Trials take a bounded share of the core's time.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.adapt.mobility.predictor import Attachment, ExpectedMove, Predictor, line_of
from meander.adapt.mobility.settings import PredictionSettings
from meander.coordinator.dry_run import try_events
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.mobility.attachments import attachment_of, mobile_nodes, move, touched
from meander.coordinator.mobility.move_outcomes import MoveOutcome, MoveOutcomes, PredictionOutcome
from meander.deploy.contexts import Reconfiguration, parts, reconfiguration
from meander.model.errors import InputError
from meander.model.events import ChangeEvent
from meander.model.ids import OperatorId
from meander.model.operators import STATEFUL
from meander.reconfigure.driver.expected import ExpectedReconfigurations

_log = logging.getLogger(__name__)
MOVES = "moves.json"
"""The file of what was learned, beside the ledger."""
LOOK_MS = 250
SHARE = 0.05
"""The share of the core's time that trials take at most."""
SOON_MS, AGAIN_MS = 500, 5_000
"""How long until a move for which nothing was prepared is tried again: while a change is under way there, and usually,
as state grows."""
NEVER_MS = 1 << 62
"""A move that did not come in time is not prepared for again before the node has moved."""
SETTLE_MS = 15_000
"""How long what was prepared for a move that came is kept: its change takes it in the meantime."""
SHOW_MS, SAVE_MS = 1_000, 30_000
MOST_LOOKED_AT = 64
"""Operators below a node's sources that are looked at for memory."""


@dataclass(slots=True)
class _Preparation:
    """The preparations of hosts for one move."""

    expected: ExpectedMove
    source: str
    numbers: list[int]
    operators: tuple[OperatorId, ...]
    until_ms: float


class MobilityPrediction:
    """Called by the core's thread only."""

    def __init__(
        self, loop: PlacementLoop, settings: PredictionSettings, predictor: Predictor, file: Path | None = None
    ) -> None:
        """`file` is where what was learned survives a restart."""
        self.loop, self.settings, self.predictor = loop, settings, predictor
        self.judged = MoveOutcomes()
        self.trials, self.trial_s = 0, 0.0
        self._expected = ExpectedReconfigurations(loop.driver)
        self._file = file
        self._where: dict[str, str] = {}
        self._prepared: dict[str, _Preparation] = {}
        self._tried: dict[str, tuple[str, int]] = {}
        """The attachment for which there was nothing to prepare, and when it may be tried again."""
        self._over: list[tuple[int, list[int]]] = []
        self.shown: dict[str, Any] = {**self.totals(), "nodes": []}
        """For others than the core's thread: as of the last second."""
        self._look_at = self._save_at = self._show_at = 0
        self._free_at = 0.0

    # ---------------------------------------------------------------- what happens

    def restore(self, now_ms: int) -> None:
        """Takes up what was learned; nodes are where the topology says."""
        if self._file is not None and self._file.exists():
            try:
                self.predictor.learn(json.loads(self._file.read_text(encoding="utf-8")).get(self.predictor.NAME, {}))
            except (InputError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                _log.warning("%s is not understood (%s); moves are learned anew", self._file, error)
        self._moved(mobile_nodes(self.loop.catalog.topology), now_ms)

    def note(self, events: Iterable[ChangeEvent], now_ms: int) -> None:
        """Events were applied: nodes that moved are learned from."""
        self._moved(touched(self.loop.catalog.topology, events), now_ms)

    def _moved(self, nodes: Iterable[str], now_ms: int) -> None:
        topology = self.loop.catalog.topology
        for node in nodes:
            attachment = attachment_of(topology, node)
            if attachment is None or attachment == self._where.get(node):
                continue
            if node in self._where:
                self._judge(node, attachment, now_ms)
            self._where[node] = attachment
            self._tried.pop(node, None)
            line = line_of(topology.node(topology.id(node)).kind.name.lower(), node)
            self.predictor.moved(Attachment(node, line, attachment, now_ms))

    def _judge(self, node: str, attachment: str, now_ms: int) -> None:
        """A node has moved: was that expected?"""
        prepared = self._prepared.pop(node, None)
        if prepared is not None:
            self._end(prepared, attachment, now_ms)
            return
        expected = self._likely(node, now_ms)
        if expected is not None:
            self.judged.add(MoveOutcome(expected, now_ms, self._where[node], attachment))

    def _end(self, prepared: _Preparation, attachment: str | None, now_ms: int) -> None:
        size = sum(self._sent(prepared).values())
        move = MoveOutcome(prepared.expected, now_ms, prepared.source, attachment, prepared.operators, size)
        self.judged.add(move)
        if move.outcome is PredictionOutcome.HIT:
            self._over.append((now_ms + SETTLE_MS, prepared.numbers))
        else:
            self._expected.forget(prepared.numbers)

    def _sent(self, prepared: _Preparation) -> dict[OperatorId, int]:
        found = [self._expected.statuses[n] for n in prepared.numbers if n in self._expected.statuses]
        return {o: size for status in found for o, size in status.bytes.items()}

    def _likely(self, node: str, now_ms: int) -> ExpectedMove | None:
        found = self.predictor.next(node, now_ms)
        return found if found is not None and found.probability >= self.settings.least_probability else None

    # ---------------------------------------------------------------- looking ahead

    def tick(self, now_ms: int) -> None:
        """Prepares for moves that are near, and drops what is not expected any more."""
        self._expected.tick(time.monotonic())
        if now_ms < self._look_at:
            return
        self._look_at = now_ms + LOOK_MS
        for node in [n for n, p in self._prepared.items() if now_ms > p.until_ms]:
            prepared = self._prepared.pop(node)
            self._end(prepared, None, now_ms)
            self._tried[node] = prepared.expected.attachment, NEVER_MS
        for node in [n for n, p in self._prepared.items() if self._is_refused(p)]:
            prepared = self._prepared.pop(node)
            self._expected.forget(prepared.numbers)
            self._tried[node] = prepared.expected.attachment, now_ms + SOON_MS
        for entry in [e for e in self._over if now_ms > e[0]]:
            self._over.remove(entry)
            self._expected.forget(entry[1])
        if now_ms > self._show_at:
            self._show_at = now_ms + SHOW_MS
            self.shown = {**self.totals(), "nodes": self.listing(now_ms)}
        if now_ms > self._save_at:
            self._save_at = now_ms + SAVE_MS
            self.save()
        if time.monotonic() >= self._free_at:
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        """Tries the nearest move that was not tried yet."""
        near: list[tuple[float, ExpectedMove]] = []
        for node in filter(self.settings.covers, self._where):
            expected = self._likely(node, now_ms)
            if expected is None or expected.in_ms is None or expected.in_ms > self.settings.lead_ms:
                continue
            if self._is_new(expected, now_ms):
                near.append((expected.in_ms, expected))
        for _, expected in sorted(near, key=lambda each: each[0]):
            near_by = self._near_by(expected.node)
            is_busy = not near_by.isdisjoint(self.loop.deployer.unsettled)
            self._tried[expected.node] = expected.attachment, now_ms + (SOON_MS if is_busy else AGAIN_MS)
            if not is_busy and self._has_memory(near_by):
                self._try(expected, now_ms)
                return

    def _is_new(self, expected: ExpectedMove, now_ms: int) -> bool:
        prepared = self._prepared.get(expected.node)
        if prepared is not None:
            return False
        tried, again_ms = self._tried.get(expected.node, ("", 0))
        known = self.loop.catalog.topology.find(expected.attachment) is not None
        return known and (tried != expected.attachment or now_ms >= again_ms)

    def _near_by(self, node: str) -> set[OperatorId]:
        """The operators that read what a node produces, as far as they are near it."""
        catalog = self.loop.catalog
        plan, number = catalog.plan, catalog.topology.id(node)
        left, seen = list(catalog.on_node.get(number, ())), set[OperatorId]()
        while left and len(seen) < MOST_LOOKED_AT:
            operator = left.pop()
            if operator not in seen and operator in plan.operators:
                seen.add(operator)
                left += plan[operator].readers
        return seen

    def _has_memory(self, operators: Iterable[OperatorId]) -> bool:
        plan = self.loop.catalog.plan
        return any(isinstance(plan[o].spec, STATEFUL) for o in operators)

    def _is_refused(self, prepared: _Preparation) -> bool:
        found = self._expected.statuses
        return any(found[n].refused is not None for n in prepared.numbers if n in found)

    def _try(self, expected: ExpectedMove, now_ms: int) -> None:
        started = time.thread_time()
        try:
            found = self._prepare(expected, now_ms)
        except InputError as error:  # such as a node that is not there any more
            _log.debug("the move of %s cannot be tried: %s", expected.node, error)
            found = None
        passed = time.thread_time() - started
        self.trials, self.trial_s = self.trials + 1, self.trial_s + passed
        self._free_at = time.monotonic() + passed * (1 / SHARE - 1)
        if found is not None:
            self._prepared[expected.node] = found

    def _prepare(self, expected: ExpectedMove, now_ms: int) -> _Preparation | None:
        topology = self.loop.catalog.topology
        if not topology.is_alive(topology.id(expected.attachment)):
            return None
        events = move(topology, expected.node, expected.attachment, None)
        trial = try_events(self.loop, events)
        wanted = [
            reconfiguration(0, part, trial.catalog.plan, self.loop.deployer.protocol) for part in parts(trial.change)
        ]
        wanted = [each for each in wanted if _is_worth_it(each)]
        if not wanted:
            return None
        for each in wanted:
            trial.deployment.apply(each.change)
        numbers = self._expected.prepare(wanted, trial.catalog.plan, trial.deployment, self.settings.most_bytes)
        operators = tuple(h.operator for each in wanted for h in each.handovers if h.travels)
        until_ms = now_ms + (expected.in_ms or 0.0) + self.settings.keep_ms
        return _Preparation(expected, self._where[expected.node], numbers, operators, until_ms)

    # ---------------------------------------------------------------- what is shown

    def listing(self, now_ms: int) -> list[dict[str, Any]]:
        """Every mobile node with its expected move, and what is prepared for it."""
        return [self._shown(node, now_ms) for node in sorted(self._where)]

    def _shown(self, node: str, now_ms: int) -> dict[str, Any]:
        expected, prepared = self.predictor.next(node, now_ms), self._prepared.get(node)
        in_ms = None if expected is None else expected.in_ms
        sent = {} if prepared is None else self._sent(prepared)
        numbers: Sequence[int] = () if prepared is None else prepared.numbers
        statuses = self._expected.statuses
        return {
            "node": node,
            "at": self._where[node],
            "next": None if expected is None else expected.attachment,
            "probability": None if expected is None else round(expected.probability, 3),
            "in_s": None if in_ms is None else round(in_ms / 1000, 1),
            "prepared_for": None if prepared is None else prepared.expected.attachment,
            "ready": bool(numbers) and all(n in statuses and statuses[n].is_ready for n in numbers),
            "operators": [int(o) for o in (() if prepared is None else prepared.operators)],
            "bytes": sum(sent.values()),
        }

    def totals(self) -> dict[str, Any]:
        """The outcomes of all expected moves since the process began."""
        told = self.judged.as_json()
        return {"mode": self.settings.mode, **told, "trials": self.trials, "trial_s": round(self.trial_s, 3)}

    def save(self) -> None:
        """Writes down what was learned; the file has either all of it or its former content."""
        if self._file is None:
            return
        fresh = self._file.with_name(self._file.name + ".new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({self.predictor.NAME: self.predictor.as_json()}, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
        except OSError as error:  # such as a full disk: it is tried again
            _log.warning("what was learned about moves cannot be saved: %s", error.strerror)


def prediction_of(
    loop: PlacementLoop, settings: PredictionSettings, file: Path, now_ms: int
) -> MobilityPrediction | None:
    """The prediction of a coordinator, with what it learned before; None if nothing is to be expected."""
    predictor = settings.predictor()
    if predictor is None:
        return None
    found = MobilityPrediction(loop, settings, predictor, file)
    found.restore(now_ms)
    return found


def _is_worth_it(each: Reconfiguration) -> bool:
    """Whether state would travel."""
    return any(h.travels for h in each.handovers)
