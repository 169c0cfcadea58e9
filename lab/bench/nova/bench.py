"""Joins over very many nodes: speed of placement, distance from the latency bound, and overload, at first and after
changes.

`nova_scale` measures phases I to III from a thousand to a million nodes, `nova_changes` events on running placements,
`nova_capacity` what is refused when capacity binds, and what improvement adds,
`nova_quality` latency and overload against the published values, a plain greedy, all baselines and the optimum, and
`nova_live` the effect on the data plane.
"""

from __future__ import annotations

from collections.abc import Callable

from lab.bench.nova import capacity as nova_capacity
from lab.bench.nova import changes as nova_changes
from lab.bench.nova import live as nova_live
from lab.bench.nova import quality as nova_quality
from lab.bench.nova import scale as nova_scale
from lab.bench.report import Report
from lab.workloads.nova import DATA, data_sets

Progress = Callable[[str], None]


def run(quick: bool, progress: Progress) -> Report:
    """Everything; `quick` leaves out the sizes of 10 thousand and a million nodes, and some repeats."""
    sets = data_sets()
    figures = nova_scale.figures(quick, progress)
    figures += nova_changes.figures(quick, progress)
    figures += nova_capacity.figures(sets, quick, progress)
    figures += nova_quality.figures(sets, quick, progress)
    figures += nova_live.figures(quick, progress)
    found = ", ".join(f"{s.name} ({len(s.points)} nodes)" for s in sets)
    return Report(
        "nova",
        "synthetic clusters in the plane, 60% sources, rates 1..75 or 1..200, six levels of heterogeneity; "
        + (f"published latencies of {found}" if sets else f"no published latencies: there are none in {DATA}"),
        nova_quality.repeats(quick),
        tuple(figures),
        (*nova_scale.NOTES, *nova_changes.NOTES, *nova_capacity.NOTES, *nova_quality.NOTES, *nova_live.NOTES),
    )
