"""Chaos: many seeded schedules of trouble on real processes; is any result lost, double or wrong?

Schedules run one after the other on a test bed, a fresh one for every group of them. While rows come in, processes are
killed and paused, wires cut and slowed, operators with memory moved and devices linked elsewhere; at the end of a group
everything must be there exactly once.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from meander.lab.bench.report import Figure, Report
from meander.lab.testbed.chaos import Outcome
from meander.lab.testbed.chaos import run as run_schedules
from meander.lab.testbed.wires import capabilities

SCHEDULES, QUICK_SCHEDULES = 1_000, 3
GROUP = 20
SECONDS, QUICK_SECONDS = 10.0, 15.0
EVERY_S = 2.0


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    count, seconds = (QUICK_SCHEDULES, QUICK_SECONDS) if quick else (SCHEDULES, SECONDS)
    can, reason = capabilities()
    outcomes: list[Outcome] = []
    for first in range(1, count + 1, GROUP):
        seeds = list(range(first, min(first + GROUP, count + 1)))
        with tempfile.TemporaryDirectory(prefix="meander-chaos-") as work:
            found = run_schedules(Path(work), seeds, seconds, can, progress, every_s=EVERY_S)
        outcomes += found
        verdict = found[-1].verdict
        progress(f"{len(outcomes)} schedules: lost {verdict.lost}, double {verdict.double}, wrong {verdict.wrong}")
    last = outcomes[GROUP - 1 :: GROUP] + ([outcomes[-1]] if len(outcomes) % GROUP else [])
    trouble: Counter[str] = Counter()
    for outcome in outcomes:
        trouble.update(outcome.done)
    notes = ["every process is real; rows come at 50 a second", *([reason] if reason else [])]
    notes.append("trouble: " + ", ".join(f"{n} {kind}" for kind, n in sorted(trouble.items())))
    return Report(
        "chaos",
        f"{count} schedules of {seconds:g} s, something every {EVERY_S:g} s, on a coordinator and two sites",
        1,
        (
            Figure.of("results lost", "", [sum(o.verdict.lost for o in last)], 0),
            Figure.of("results double", "", [sum(o.verdict.double for o in last)], 0),
            Figure.of("results wrong", "", [sum(o.verdict.wrong for o in last)], 0),
            Figure.of("results compared", "", [sum(o.verdict.expected for o in last)]),
            Figure.of("schedules", "", [len(outcomes)]),
            Figure.of("from the end of trouble to the last result", "s", [o.recovery_s for o in last]),
        ),
        tuple(notes),
    )
