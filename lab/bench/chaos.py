"""Chaos: many seeded schedules of trouble on real processes, and a check for lost, double and wrong results.

Schedules run one after the other on a test bed, a fresh one for every group of them, and two test beds run at the same
time. While rows come in and queries are changed, processes are killed, ended and paused, connections between hosts cut,
slowed, broken off and lost in one direction, disks filled and clocks shifted; after every few schedules all comes back,
and everything must be there exactly once. On other beds one trouble is made at a time, which says how long nothing
came out because of it.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lab.bench.report import Figure, Report
from lab.testbed import drills, world
from lab.testbed.chaos import BRIEF_S, Plan, ScheduleOutcome
from lab.testbed.chaos import run as run_schedules
from lab.testbed.disks import can_be_full
from lab.testbed.drills import Drill
from lab.testbed.links import Can, capabilities
from lab.testbed.process_test_bed import ProcessTestBedError
from lab.testbed.schedule import TroubleKind

SCHEDULES, QUICK_SCHEDULES = 1_000, 20
GROUP = 100
"""Schedules on one test bed."""
BEDS = 2
"""Test beds at the same time."""
DRILLS = 5
"""Of each kind."""
QUICK_DRILLS = (
    TroubleKind.MUTE,
    TroubleKind.ONE_WAY,
    TroubleKind.HALF_OPEN,
    TroubleKind.BREAK,
    TroubleKind.PAUSE,
    TroubleKind.JUMP,
)
STANDSTILL_S = 120.0
"""The longest time without a new result, once all trouble has ended, that is allowed: starting Spark is part of it."""
Progress = Callable[[str], None]


@dataclass(slots=True)
class _Found:
    """The outcomes of all beds so far."""

    outcomes: list[ScheduleOutcome] = field(default_factory=list)
    drills: list[Drill] = field(default_factory=list)
    fallen: list[str] = field(default_factory=list)
    """Groups whose test bed did not come up, or had a process that ended by itself."""
    rows: int = 0
    compared: int = 0


def run(quick: bool, progress: Progress) -> Report:
    (can, reason), (disks, no_disks) = capabilities(), can_be_full()
    count = QUICK_SCHEDULES if quick else SCHEDULES
    found, begun = _Found(), time.monotonic()
    groups = [Plan(range(n, min(n + GROUP, count + 1)), BRIEF_S) for n in range(1, count + 1, GROUP)]
    kinds, times = (QUICK_DRILLS, 1) if quick else (tuple(TroubleKind), DRILLS)
    with ThreadPoolExecutor(BEDS, "bed") as beds:
        waiting = [beds.submit(_drilled, kinds, times, can, disks, found, progress)]
        for number, plan in enumerate(groups):
            queries = world.QUERIES | (world.APPLIED if number % 2 else {})
            waiting.append(beds.submit(_scheduled, plan, queries, can, disks, found, progress))
        for each in waiting:
            each.result()
    return _report(found, time.monotonic() - begun, [r for r in (reason, no_disks) if r])


def _scheduled(plan: Plan, queries: dict[str, str], can: Can, disks: bool, found: _Found, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix="meander-chaos-") as work:
        try:
            outcomes = run_schedules(
                Path(work), plan, can, _quietly(progress), disks=disks, widely=True, queries=queries
            )
        except ProcessTestBedError as error:  # the other groups have beds of their own
            found.fallen.append(f"seeds {plan.seeds[0]} to {plan.seeds[-1]}: {error}")
            progress(found.fallen[-1])
            return
    found.outcomes += outcomes
    found.rows += outcomes[-1].rows
    found.compared += outcomes[-1].verdict.expected


def _drilled(
    kinds: tuple[TroubleKind, ...], times: int, can: Can, disks: bool, found: _Found, progress: Progress
) -> None:
    with tempfile.TemporaryDirectory(prefix="meander-drills-") as work:
        try:
            found.drills += drills.run(Path(work), kinds, times, can, _quietly(progress), disks=disks)
        except ProcessTestBedError as error:
            found.fallen.append(f"drills: {error}")
            progress(found.fallen[-1])


def _quietly(progress: Progress) -> Progress:
    """Prints the outcomes of schedules and drills, and not all events in them."""
    return lambda text: progress(text) if text.startswith(("seeds", "drill", "all of it")) else None


def _report(found: _Found, seconds: float, reasons: list[str]) -> Report:
    outcomes = found.outcomes
    trouble: Counter[str] = sum((o.done for o in outcomes), Counter())
    verdicts = [o.verdict for o in outcomes] + [d.verdict for d in found.drills]
    bad = [str(o) for o in outcomes if not o.verdict.is_good]
    bad += [str(d) for d in found.drills if not d.verdict.is_good]
    notes = [
        f"{found.rows:,} rows, 50 a second; every process is real",
        "trouble in schedules: " + ", ".join(f"{n} {kind}" for kind, n in sorted(trouble.items())),
        f"changes that could not be made just then: {sum(o.refused for o in outcomes)}",
        *reasons,
        *bad,
        *found.fallen,
    ]
    return Report(
        "chaos",
        f"brief schedules of {BRIEF_S:g} s, up to {GROUP} on one bed, a coordinator and two sites; {BEDS} beds at once",
        1,
        (
            Figure.of("results lost", "", [sum(v.lost for v in verdicts)], 0),
            Figure.of("results double", "", [sum(v.double for v in verdicts)], 0),
            Figure.of("results wrong", "", [sum(v.wrong for v in verdicts)], 0),
            Figure.of("beds that did not last", "", [len(found.fallen)], 0),
            Figure.of(
                "longest time without a result after all trouble",
                "s",
                [max((o.standstill_s for o in outcomes), default=0.0)],
                STANDSTILL_S,
            ),
            Figure.of("results compared", "", [found.compared]),
            Figure.of("schedules", "", [sum(len(o.seeds) for o in outcomes)]),
            Figure.of("drills", "", [len(found.drills)]),
            *_standstills(found.drills),
            Figure.of("from the end of trouble to the last result", "s", [o.recovery_s for o in outcomes] or [0.0]),
            Figure.of("everything", "min", [seconds / 60]),
        ),
        tuple(notes),
    )


def _standstills(found: list[Drill]) -> list[Figure]:
    """By kind of trouble: how long nothing came out because of one."""
    kinds = dict.fromkeys(d.kind for d in found)
    return [
        Figure.of(f"nothing came out, {kind}", "s", [d.standstill_s for d in found if d.kind is kind]) for kind in kinds
    ]
