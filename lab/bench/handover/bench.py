"""`meander bench handover`: a large state follows a mobile node, stopped and copied, copied ahead, and sent before it
moves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lab.bench.handover.accuracy import HIT, accuracy
from lab.bench.handover.scene import HandoverRun, HandoverWay, Ring, RingRun
from lab.bench.report import Figure, Report
from meander.adapt.mobility.settings import PredictionSettings
from meander.run.session import start_session

STOP, AHEAD, PREDICTED = "stop_and_copy", "copied ahead", "predicted"
WAYS = (
    HandoverWay(STOP, "stop_and_copy"),
    HandoverWay(AHEAD, "migration_query"),
    HandoverWay(PREDICTED, "migration_query", PredictionSettings("markov", most_bytes=512_000_000)),
)
LINE, VEHICLE = "ring line", "vehicle"
QUICK = {LINE: (Ring(), 5, 4)}
FULL = {
    LINE: (Ring(stations=6, dwell_s=10.0, window_s=80, link_mbps=40.0), 8, 10),
    VEHICLE: (Ring("vehicle-1", stations=4, dwell_s=10.0, window_s=40, link_mbps=40.0, turns=True, jitter=0.3), 14, 10),
}
"""Scenes, with how many handovers they begin with and how many are measured."""
PAUSE_GOAL, EFFECT_GOAL = 0.5, 0.5
"""Of the pause, and of the time to effect, of the way before."""


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """Each scene once for each way, one after the other in one session."""
    scenes = QUICK if quick else FULL
    progress("starting Spark")
    spark = start_session("meander-bench")
    found: dict[tuple[str, str], HandoverRun] = {}
    try:
        for scene, (ring, warm_up, measured) in scenes.items():
            for way in WAYS:
                with tempfile.TemporaryDirectory(prefix="meander-handover-", ignore_cleanup_errors=True) as name:
                    progress(f"{scene}, {way.name}: filling a window of {ring.state_bytes / 1e6:.1f} MB")
                    done = RingRun(ring, way, Path(name), spark).measure(warm_up, measured, progress)
                    found[scene, way.name] = done
    finally:
        spark.stop()
    data = "; ".join(
        f"{scene}: {ring.stations} base stations, a join that remembers {ring.state_bytes / 1e6:.1f} MB, "
        f"links of {ring.link_mbps:g} Mbit/s, {measured} handovers each way"
        for scene, (ring, _, measured) in scenes.items()
    )
    expected = {scene: found[scene, PREDICTED].outcomes.get("outcomes") for scene in scenes}
    notes = (
        "a gap is the longest time without a result in the first half of a stay, latency that of results in it",
        "all ways run after each other in one process, with the same tuples; each is compared with the oracle",
        f"expected moves, from the first one on: {expected}",
    )
    shown = [figure for s in scenes for figure in figures(s, found)]
    outcomes = accuracy()
    if outcomes:
        shares = [100 * counts[HIT] / counts.total() for counts in outcomes.values()]
        shown.append(Figure.of("moves of the published device scenarios that are expected", "%", shares))
    repeats = max(measured for _, _, measured in scenes.values())
    return Report("handover", data, repeats, tuple(shown), notes)


def figures(scene: str, found: Mapping[tuple[str, str], HandoverRun]) -> Iterator[Figure]:
    """Ratios first."""
    ways = {way.name: found[scene, way.name] for way in WAYS}
    stop, ahead, predicted = ways[STOP], ways[AHEAD], ways[PREDICTED]
    name = f"{scene}: the join stands still: copied ahead, to stop_and_copy"
    yield Figure.of(name, "x", _ratios(ahead.pause_s, stop.pause_s), PAUSE_GOAL)
    name = f"{scene}: from the move until in effect: predicted, to copied ahead"
    yield Figure.of(name, "x", _ratios(predicted.effect_s, ahead.effect_s), EFFECT_GOAL)
    for way, one in ways.items():
        yield Figure.of(f"{scene}, {way}: results lost or double", "", [one.lost + one.double], 0)
    for way, one in ways.items():
        about = f"{scene}, {way}"
        yield Figure.of(f"{about}: the join stands still", "ms", [1000 * s for s in one.pause_s])
        yield Figure.of(f"{about}: in effect", "ms", [1000 * s for s in one.effect_s])
        yield Figure.of(f"{about}: gap in the output", "ms", [1000 * s for s in one.gaps_s])
        yield Figure.of(f"{about}: gap in the output, quiet", "ms", [1000 * s for s in one.quiet_gaps_s])
        for label, values in (("p50", one.p50_s), ("p95", one.p95_s), ("worst", one.worst_s)):
            yield Figure.of(f"{about}: latency, {label}", "ms", [1000 * s for s in values])
        yield Figure.of(f"{about}: latency, p50, quiet", "ms", [1000 * s for s in one.quiet_p50_s])
        yield Figure.of(f"{about}: state moved", "MB", [b / 1e6 for b in one.state_bytes])
    yield Figure.of(f"{scene}, predicted: sent in vain", "MB", [predicted.outcomes.get("wasted_bytes", 0) / 1e6])


def _ratios(values: list[float], to: list[float]) -> list[float]:
    middle = sorted(to)[len(to) // 2]
    return [value / middle for value in values]
