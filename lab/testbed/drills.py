"""Drills: one trouble at a time while rows come in, and how long nothing came out because of it.

Schedules mix troubles, so what they cost cannot be told apart. A drill makes one, waits until it is over and everything
is there, and takes the longest time in which no query had a new result although rows had come for one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.testbed import world
from lab.testbed.chaos import FINISH_S, ROWS_PER_S, TICK_S, Chaos, Progress, world_on_a_bed
from lab.testbed.links import Can
from lab.testbed.schedule import JUMP_MS, SHIFT_MS, Chances, Trouble, TroubleKind

LASTS_S = 3.0
"""The length of what lasts."""
AFTER_S = 1.0
"""Rows come for so long after the trouble."""
CALM_S = 1.0
MOMENTARY = (TroubleKind.BREAK, TroubleKind.HALF_OPEN, TroubleKind.MOVE, TroubleKind.RELINK)


@dataclass(frozen=True, slots=True)
class Drill:
    """The outcome of one trouble."""

    kind: TroubleKind
    target: tuple[str, ...]
    standstill_s: float
    recovered_s: float
    """From its beginning until everything was there."""
    verdict: world.Verdict

    def __str__(self) -> str:
        return (
            f"drill {self.kind} {' - '.join(self.target)}: nothing came for {self.standstill_s:.1f} s at most, all "
            f"there after {self.recovered_s:.1f} s; lost {self.verdict.lost}, double {self.verdict.double}, "
            f"wrong {self.verdict.wrong}"
        )


def troubles(chances: Chances, kinds: Sequence[TroubleKind], times: int) -> Iterator[Trouble]:
    """Each kind so many times, its targets in turn."""
    for kind in (k for k in kinds if k in chances.kinds):
        rng = random.Random(f"drill {kind}")
        for _ in range(times):
            lasts_s = 0.0 if kind in MOMENTARY else LASTS_S
            by = {TroubleKind.SHIFT: SHIFT_MS, TroubleKind.JUMP: JUMP_MS}.get(kind, 0)
            yield Trouble(0.0, kind, chances.target(kind, rng), lasts_s, by)


def drill(chaos: Chaos, trouble: Trouble) -> Drill | None:
    """Makes a trouble, or gives None if it cannot be made now."""
    feeding = _Feeding(chaos)
    feeding.during(CALM_S)
    if not chaos.make(trouble):
        return None
    began = time.monotonic()
    feeding.longest_s, feeding.moved = 0.0, began
    feeding.during(trouble.lasts_s + AFTER_S, until=lambda: not chaos.is_damaged)
    verdict = chaos.verdict(ended=False)
    while not verdict.is_good and time.monotonic() - feeding.moved < FINISH_S:
        feeding.look()
        chaos.bring_back(time.monotonic())
        time.sleep(TICK_S)
        verdict = chaos.verdict(ended=False)
    return Drill(trouble.kind, trouble.target, feeding.longest_s, time.monotonic() - began, verdict)


def run(
    directory: Path,
    kinds: Sequence[TroubleKind],
    times: int,
    can: Can,
    progress: Progress,
    *,
    disks: bool = False,
    queries: Mapping[str, str] = world.QUERIES,
) -> list[Drill]:
    """Drills on one test bed; ends with the first one after which something is missing, double or wrong."""
    found: list[Drill] = []
    with world_on_a_bed(directory, can, progress, disks=disks, widely=True, queries=queries) as chaos:
        for trouble in troubles(chaos.chances, kinds, times):
            outcome = drill(chaos, trouble)
            progress(f"drill {trouble.kind} could not be made" if outcome is None else str(outcome))
            if outcome is not None:
                found.append(outcome)
                if not outcome.verdict.is_good:
                    progress(f"all of it is kept in {chaos.keep()}")
                    break
    return found


class _Feeding:
    """Rows come, and the files of results are looked at."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos, self._size = chaos, 0
        self.moved, self.longest_s = time.monotonic(), 0.0

    def during(self, seconds: float, until: Callable[[], bool] = lambda: True) -> None:
        """For so long, and until then; repairs are made in their time."""
        began, written = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds or not until():
            due = round(now * ROWS_PER_S)
            if due > written:
                self._chaos.rows.write(due - written)
                written = due
            self._chaos.bring_back(time.monotonic())
            self.look()
            time.sleep(TICK_S)

    def look(self) -> None:
        now, size = time.monotonic(), self._chaos.results_bytes()
        self.longest_s = max(self.longest_s, now - self.moved)
        if size != self._size:
            self._size, self.moved = size, now
