"""Chaos: many seeded schedules of trouble on real processes, and a check for lost, double and wrong results.

Schedules run one after the other on a test bed, a fresh one for every group of them. While rows come in and queries are
changed, processes are killed, ended and paused, links cut and slowed, disks filled and clocks shifted; after every few
schedules all comes back, and everything must be there exactly once.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lab.bench.report import Figure, Report
from lab.testbed.chaos import BRIEF_S, Plan, ScheduleOutcome
from lab.testbed.chaos import run as run_schedules
from lab.testbed.disks import can_be_full
from lab.testbed.links import capabilities
from lab.testbed.process_test_bed import ProcessTestBedError

SCHEDULES, QUICK_SCHEDULES = 1_000, 20
GROUP = 100
"""Schedules on one test bed."""


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    count = QUICK_SCHEDULES if quick else SCHEDULES
    (can, reason), (disks, no_disks) = capabilities(), can_be_full()
    outcomes: list[ScheduleOutcome] = []
    fallen: list[str] = []
    begun, rows = time.monotonic(), 0
    for first in range(1, count + 1, GROUP):
        plan = Plan(range(first, min(first + GROUP, count + 1)), BRIEF_S)
        with tempfile.TemporaryDirectory(prefix="meander-chaos-") as work:
            try:
                found = run_schedules(Path(work), plan, can, _quietly(progress), disks=disks)
            except ProcessTestBedError as error:  # the other groups have beds of their own
                fallen.append(f"seeds {plan.seeds[0]} to {plan.seeds[-1]}: {error}")
                progress(fallen[-1])
                continue
        outcomes += found
        rows += found[-1].rows
        progress(f"{sum(len(o.seeds) for o in outcomes)} schedules after {(time.monotonic() - begun) / 60:.0f} min")
    return _report(outcomes, fallen, rows, time.monotonic() - begun, [r for r in (reason, no_disks) if r])


def _quietly(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Prints the outcomes of schedules, and not all events in them."""
    return lambda text: progress(text) if text.startswith("seeds") else None


def _report(
    outcomes: list[ScheduleOutcome], fallen: list[str], rows: int, seconds: float, reasons: list[str]
) -> Report:
    """`fallen` are groups whose test bed did not come up, or had a process that ended by itself."""
    trouble: Counter[str] = sum((o.done for o in outcomes), Counter())
    bad = [str(o) for o in outcomes if not o.verdict.is_good]
    lasts = [o.verdict for n, o in enumerate(outcomes) if n + 1 == len(outcomes) or o.rows > outcomes[n + 1].rows]
    notes = [
        f"{rows:,} rows, 50 a second; every process is real",
        "trouble: " + ", ".join(f"{n} {kind}" for kind, n in sorted(trouble.items())),
        f"changes that could not be made just then: {sum(o.refused for o in outcomes)}",
        *reasons,
        *bad,
        *fallen,
    ]
    return Report(
        "chaos",
        f"brief schedules of {BRIEF_S:g} s, up to {GROUP} on one bed, on a coordinator and two sites",
        1,
        (
            Figure.of("results lost", "", [sum(o.verdict.lost for o in outcomes)], 0),
            Figure.of("results double", "", [sum(o.verdict.double for o in outcomes)], 0),
            Figure.of("results wrong", "", [sum(o.verdict.wrong for o in outcomes)], 0),
            Figure.of("beds that did not last", "", [len(fallen)], 0),
            Figure.of("results compared", "", [sum(v.expected for v in lasts)]),
            Figure.of("schedules", "", [sum(len(o.seeds) for o in outcomes)]),
            Figure.of("from the end of trouble to the last result", "s", [o.recovery_s for o in outcomes] or [0.0]),
            Figure.of("everything", "min", [seconds / 60]),
        ),
        tuple(notes),
    )
