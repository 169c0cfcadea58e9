"""Which mechanism serves which demand, what learning costs, and whether transitions hold what one mechanism cannot.

Everything here is decided for real and placed by the real mechanisms; running is simulated (`lab/tcep_world`).
"""

from __future__ import annotations

from collections.abc import Callable

from meander.lab import tcep_day, tcep_learning, tcep_mechanisms
from meander.lab.bench.report import Figure, Report

QUERIES = 1_000

NOTES = (
    "transitions on the data plane (MFGS, SMS, stop-and-restart: their time, bytes and output gap) are not in it yet; "
    "here a transition takes one round, and its placement messages and moved state are counted",
    "placements are those of the real mechanisms; latency is that of routes plus simulated processing and noise",
    "a day: two queries; in calm hours a bound on network usage, in two rush hours of three hours each a bound on "
    "latency, always a bound on overhead. A round counts as met when all demands that apply are met",
    "fixed mechanisms keep placements valid as vehicles move; 'placed again' ones also place all every half hour",
    "learning: nine mechanisms that meet a demand with probabilities 0.1 to 0.95; after 1,000 rounds the best one "
    "breaks and another becomes as good. Times of learning and selection are CPU time",
)


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """All parts; `quick` has longer rounds, fewer days and fewer roads."""
    minutes, days, roads, seeds, repeats = (10, 1, 5, 5, 5) if quick else (2, 3, 40, 30, 20)
    figures: list[Figure] = []
    figures += tcep_learning.measure(repeats, QUERIES, progress)
    figures += tcep_learning.compare(seeds, progress)
    figures += tcep_day.measure(minutes, days, progress)
    figures += tcep_mechanisms.measure(roads, progress)
    data = (
        f"generated road traffic: {days} days in rounds of {minutes} min, {roads} roads; {QUERIES:,} queries to select"
    )
    return Report("tcep", data, repeats, tuple(figures), NOTES)
