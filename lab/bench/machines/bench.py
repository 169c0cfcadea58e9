"""Many machines: a pipeline over sites, state on its way between them, and sites that join and leave."""

from __future__ import annotations

from collections.abc import Callable

from lab.bench.machines import (
    members as machines_members,
)
from lab.bench.machines import (
    migration as machines_migration,
)
from lab.bench.machines import (
    pipeline as machines_pipeline,
)
from lab.bench.report import Report


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    members = machines_members.figures(quick, progress)
    pipeline = machines_pipeline.figures(quick, progress)
    moved, remarks = machines_migration.figures(quick, progress)
    notes = (
        "sites that join and leave are simulated in a process that shares the machine's cores with the coordinator",
        "all processes of the pipeline and of the chains share the cores of one machine",
        *remarks,
    )
    data = "; ".join((machines_members.DATA, machines_pipeline.DATA, machines_migration.DATA))
    return Report("machines", data, 1, (*members, *pipeline, *moved), notes)
