"""The number of amenders that place at the same time: as configured, or one for each core."""

from __future__ import annotations

import os

from meander.model.errors import InputError

MOST = 8
"""With more, deltas seldom suffice for all."""


def by_cores() -> int:
    """One for each core that this process may use, up to a few."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


def check_amenders(amenders: int | None) -> None:
    """None stands for `by_cores`."""
    if amenders is not None and amenders < 1:
        raise InputError(f"amenders must be at least 1, not {amenders}; leave it out to have one for each core")
