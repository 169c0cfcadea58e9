"""Many machines: sites that join and leave, measured over the real protocol."""

from __future__ import annotations

from collections.abc import Callable

from meander.lab.bench import machines_members
from meander.lab.bench.report import Report


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    figures = machines_members.figures(quick, progress)
    notes = ("sites are simulated in a process that shares the machine's cores with the coordinator",)
    return Report("machines", machines_members.DATA, 1, figures, notes)
