"""The adaptation experiments: mechanisms against demands, the cost of learning, transitions against single mechanisms,
and the cost of a transition.

Learning, the day and the mechanisms are decided for real and placed by the real mechanisms; running is simulated
(`lab.experiments.tcep_world`). Transitions run on Spark (`lab.bench.tcep.transitions`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lab.bench.report import Figure, Report
from lab.bench.tcep import transitions as tcep_transitions
from lab.experiments import tcep_day, tcep_learning, tcep_mechanisms

QUERIES = 1_000
PLOTS = "MEANDER_PLOTS"
"""The environment variable that names a folder for plots."""

NOTES = (
    "transitions: all queries switch from mdcep to relaxation at the same time, on one host without emulated "
    "latencies, so that state travels for nothing; the plans of both placements are known to Spark beforehand",
    "the window wait of SMS is the time in which the old operators answer what had begun, and nothing else is left to "
    "do; 'windows by themselves' is how long that takes at least, without any processing",
    "there are two restarts. 'restart' is that of the data plane: fragments stop, all state moves as a whole, and "
    "fragments begin; streaming queries of Spark run on, so it is cheap, and no goal is set for it. 'Plain Spark' is "
    "what a user of Spark has: one streaming query a road, with fewer operators than ours, is stopped and started from "
    "its checkpoint until it has made a batch; the goal is set for that",
    "a gap is the longest time without a result of one query; quiet times are all spans between transitions",
    "a day: placements are those of the real mechanisms, latency is that of routes, simulated processing and noise; "
    "a transition takes one round. Bounds are set on a day of its own so that a third of the mechanisms can meet each; "
    "a round counts when all demands that apply are met",
    "fixed mechanisms keep placements valid as vehicles move; 'placed again' ones also place all every half hour",
    "learning: nine mechanisms that meet a demand with probabilities 0.1 to 0.95; after 1,000 rounds the best one "
    "breaks and another becomes as good. Times of learning and selection are CPU time",
)
QUICK_NOTES = (
    "quick: three queries with windows of half a second, five protocols, one day with four mechanisms; plain Spark "
    "stops and starts three queries in about a third of the time of ten, so that its goal is as much lower; the "
    "figures that count are those of the full run",
)
FEW = ("bottom_up", "top_down", "global_optimal", "mdcep")


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """All parts; `quick` has fewer queries, longer rounds, fewer days and fewer roads."""
    minutes, days, roads, seeds, repeats = (2, 1, 3, 3, 5) if quick else (2, 6, 40, 30, 20)
    live = tcep_transitions.measure(tcep_transitions.QUICK if quick else tcep_transitions.FULL, progress)
    figures: list[Figure] = list(tcep_transitions.figures(live))
    for extent in () if quick else tcep_transitions.EMULATED:
        figures += tcep_transitions.emulated_figures(tcep_transitions.measure(extent, progress))
    figures += tcep_learning.measure(repeats, QUERIES, progress)
    figures += tcep_learning.compare(seeds, progress)
    figures += tcep_day.measure(minutes, days, progress, FEW if quick else None)
    samples = tcep_mechanisms.samples(roads, progress, ("congestion",) if quick else None)
    figures += tcep_mechanisms.figures(samples)
    folder = os.environ.get(PLOTS)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tcep_mechanisms.plot(samples, Path(folder) / "tcep-mechanisms.png")
        tcep_transitions.plot(live, Path(folder) / "tcep-output.svg")
    data = (
        f"{live.extent.queries} congestion queries of {live.operators // live.extent.queries} operators that run; "
        f"generated road traffic: {days} days in rounds of {minutes} min, {roads} roads; {QUERIES:,} queries to select"
    )
    return Report("tcep", data, repeats, tuple(figures), (*NOTES, *(QUICK_NOTES if quick else ())))
