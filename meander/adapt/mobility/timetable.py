"""`timetable`: where mobile nodes are when, as a file says: `node,time,attachment`, one line for each arrival.

A time is a moment (`2026-05-01T08:00:00Z`) or a time of day (`08:00:00`, UTC), which then holds every day. A node that
is late is expected at its next place until it is there; one that is elsewhere than planned is expected where it is to
be next by the clock.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, ClassVar

from meander.adapt.mobility.predictor import Attachment, ExpectedMove
from meander.model.errors import InputError

DAY_MS = 86_400_000
LATE_MS = 300_000
"""A node may be so late, or early, at a place and still count as the arrival of the timetable."""
COLUMNS = ("node", "time", "attachment")
Arrival = tuple[int, str]
"""When, and where: the moment in ms, or the time of day."""


class TimetablePredictor:
    """Implements `Predictor`."""

    NAME: ClassVar[str] = "timetable"

    def __init__(self, moments: Mapping[str, list[Arrival]], daily: Mapping[str, list[Arrival]]) -> None:
        self._moments = {node: sorted(rows) for node, rows in moments.items()}
        self._daily = {node: sorted(rows) for node, rows in daily.items()}
        self._where: dict[str, Attachment] = {}

    @staticmethod
    def load(path: Path) -> TimetablePredictor:
        """Reads a file; an error names the line."""
        try:
            with path.open(newline="", encoding="utf-8") as file:
                return TimetablePredictor.read(csv.reader(file), str(path))
        except OSError as error:
            raise InputError(f"the timetable cannot be read: {error.strerror}", str(path)) from None

    @staticmethod
    def read(rows: Iterable[list[str]], where: str) -> TimetablePredictor:
        moments: dict[str, list[Arrival]] = {}
        daily: dict[str, list[Arrival]] = {}
        for number, row in enumerate(rows, 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or tuple(cells) == COLUMNS:
                continue
            if len(cells) != len(COLUMNS) or not all(cells):
                raise InputError(f"line {number}: write {','.join(COLUMNS)}, not {','.join(row)!r}", where)
            at_ms, is_daily = _time(cells[1], number, where)
            (daily if is_daily else moments).setdefault(cells[0], []).append((at_ms, cells[2]))
        return TimetablePredictor(moments, daily)

    def moved(self, move: Attachment) -> None:
        found = self._where.get(move.node)
        if found is None or found.attachment != move.attachment:
            self._where[move.node] = move

    def next(self, node: str, now_ms: int) -> ExpectedMove | None:
        where = self._where.get(node)
        if where is None:
            return None
        arrivals = self._around(node, now_ms)
        since = min(where.at_ms, now_ms)
        here = [i for i, (t, a) in enumerate(arrivals) if a == where.attachment and abs(t - since) <= LATE_MS]
        first = (
            min(here, key=lambda i: abs(arrivals[i][0] - since)) + 1 if here else bisect_right(arrivals, (now_ms, ""))
        )
        for at_ms, attachment in arrivals[first:]:
            if attachment != where.attachment:
                return ExpectedMove(node, attachment, 1.0, float(max(0, at_ms - now_ms)))
        return None

    def _around(self, node: str, now_ms: int) -> list[Arrival]:
        """The arrivals of a node; those of every day yesterday, today and tomorrow."""
        midnight = now_ms - now_ms % DAY_MS
        days = [midnight + day * DAY_MS for day in (-1, 0, 1)]
        found = [(day + t, a) for day in days for t, a in self._daily.get(node, ())]
        return sorted([*found, *self._moments.get(node, ())])

    def as_json(self) -> dict[str, Any]:
        return {}

    def learn(self, saved: Mapping[str, Any]) -> None:
        """Nothing: the file says it all."""


def _time(text: str, number: int, where: str) -> tuple[int, bool]:
    """In ms, and whether it is a time of day."""
    try:
        if "T" not in text and ":" in text and "-" not in text:
            t = time.fromisoformat(text)
            return ((t.hour * 60 + t.minute) * 60 + t.second) * 1000 + t.microsecond // 1000, True
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-05-01T08:00:00Z, or 08:00:00 for every day"
        raise InputError(f"line {number}: {text!r} is no time; write {example}", where) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), False
