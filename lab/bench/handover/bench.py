"""`meander bench handover`: a large state follows a train, stopped and copied, copied ahead, and sent before the train
moves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lab.bench.handover.scene import HandoverRun, HandoverWay, Ring, RingRun
from lab.bench.report import Figure, Report
from meander.adapt.mobility.settings import PredictionSettings
from meander.run.session import start_session

STOP, AHEAD, PREDICTED = "stop_and_copy", "copied ahead", "predicted"
WAYS = (
    HandoverWay(STOP, "stop_and_copy"),
    HandoverWay(AHEAD, "migration_query"),
    HandoverWay(PREDICTED, "migration_query", PredictionSettings("markov", lead_ms=6_000, most_bytes=512_000_000)),
)
GAP_GOAL, PREDICTED_GOAL = 0.5, 0.5
"""Of the time without results, and of the time to effect, of the way before."""


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """The scene once for each way, one after the other in one session."""
    ring = Ring() if quick else Ring(stations=6, dwell_s=10.0, window_s=80)
    warm_up, measured = (ring.stations + 2, 5) if quick else (2 * ring.stations, 12)
    progress("starting Spark")
    spark = start_session("meander-bench")
    found: dict[str, HandoverRun] = {}
    try:
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="meander-handover-", ignore_cleanup_errors=True) as name:
                progress(f"{way.name}: filling a window of {ring.state_bytes / 1e6:.1f} MB")
                found[way.name] = RingRun(ring, way, Path(name), spark).measure(warm_up, measured, progress)
    finally:
        spark.stop()
    data = (
        f"a train on a ring of {ring.stations} stations, a join beside it that remembers "
        f"{ring.state_bytes / 1e6:.1f} MB, links of {ring.link_mbps:g} Mbit/s, {measured} handovers each way"
    )
    notes = (
        "a gap is the longest time without a result in the first half of a stay, latency that of results in it",
        "all ways run after each other in one process, with the same tuples; each is compared with the oracle",
        f"expected moves: {found[PREDICTED].outcomes.get('outcomes')}",
    )
    return Report("handover", data, measured, tuple(figures(found)), notes)


def figures(found: Mapping[str, HandoverRun]) -> Iterator[Figure]:
    """Ratios first."""
    stop, ahead, predicted = found[STOP], found[AHEAD], found[PREDICTED]
    name = "the join stands still: copied ahead, to stop_and_copy"
    yield Figure.of(name, "x", _ratios(ahead.pause_s, stop.pause_s), GAP_GOAL)
    name = "from the move until in effect: predicted, to copied ahead"
    yield Figure.of(name, "x", _ratios(predicted.effect_s, ahead.effect_s), PREDICTED_GOAL)
    for way, one in found.items():
        yield Figure.of(f"{way}: results lost or double", "", [one.lost + one.double], 0)
    for way, one in found.items():
        yield Figure.of(f"{way}: the join stands still", "ms", [1000 * s for s in one.pause_s])
        yield Figure.of(f"{way}: in effect", "ms", [1000 * s for s in one.effect_s])
        yield Figure.of(f"{way}: gap in the output", "ms", [1000 * s for s in one.gaps_s])
        yield Figure.of(f"{way}: gap in the output, quiet", "ms", [1000 * s for s in one.quiet_gaps_s])
        for label, values in (("p50", one.p50_s), ("p95", one.p95_s), ("worst", one.worst_s)):
            yield Figure.of(f"{way}: latency, {label}", "ms", [1000 * s for s in values])
        yield Figure.of(f"{way}: latency, p50, quiet", "ms", [1000 * s for s in one.quiet_p50_s])
        yield Figure.of(f"{way}: state moved", "MB", [b / 1e6 for b in one.state_bytes])
    sent = predicted.outcomes
    yield Figure.of("predicted: sent in vain", "MB", [sent.get("wasted_bytes", 0) / 1e6])


def _ratios(values: list[float], to: list[float]) -> list[float]:
    middle = sorted(to)[len(to) // 2]
    return [value / middle for value in values]
