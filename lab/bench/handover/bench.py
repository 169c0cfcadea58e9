"""`meander bench handover`: a large state follows a mobile node, with and without prediction.

With it the state is sent before the node moves; without, it is copied ahead while data takes the long way. Both at the
same time: two trains in one service move at the same moments, and the moves of one of them are predicted. Stopping and
copying is a setting of the service, so it has a run of its own. A train on a ring line, a vehicle as it was recorded,
and states of different sizes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from lab.bench.handover.accuracy import HIT, accuracy
from lab.bench.handover.recorded import stays_s
from lab.bench.handover.scene import NODES, HandoverRun, HandoverWays, Ring, RingRun
from lab.bench.report import Figure, Report
from meander.adapt.mobility.settings import PredictionSettings
from meander.run.session import start_session

STOP, AHEAD, PREDICTED = "stop_and_copy", "copied ahead", "predicted"
PREDICTED_NODE, OTHER_NODE = NODES
WITH_AND_WITHOUT = HandoverWays(
    {PREDICTED_NODE: PREDICTED, OTHER_NODE: AHEAD},
    prediction=PredictionSettings("markov", most_bytes=512_000_000, nodes=(PREDICTED_NODE,)),
)
STOPPED = HandoverWays(dict.fromkeys(NODES, STOP), "stop_and_copy")
EFFECT_GOAL, GAP_GOAL, LATENCY_GOAL = 0.5, 1.2, 1.0
"""Of the same without prediction: the time to effect, the gap in the output, and the latency where the way over the old
station is long."""
QUIET_GOAL = 3.0
"""Of the gap in quiet times, which is one step of the slot: a handover takes one or two more."""
PAUSE_GOAL = 0.5
"""Of the pause with stop_and_copy."""
LONG_WAY_MS, ROAD_CLOUD_MS = 50.0, 30.0
"""The latency between two stations of the road: what goes over the old one is so much older. And to the cloud."""
ROAD_STATIONS, FASTER, QUICK_FASTER = 4, 20.0, 30.0
NO_TRACES = "vehicle moves were not measured: set MEANDER_DATA to the folder above `traces`"


@dataclass(frozen=True, slots=True)
class Scene:
    """A ring, how many handovers it begins with, how many are measured, and whether there is a run that stops and
    copies."""

    ring: Ring
    warm_up: int
    measured: int
    stops: bool = False

    @property
    def runs(self) -> tuple[HandoverWays, ...]:
        return (STOPPED, WITH_AND_WITHOUT) if self.stops else (WITH_AND_WITHOUT,)


def scenes(quick: bool, folder: Path | None = None) -> dict[str, Scene]:
    """Scenes by name; without recorded moves there is none of vehicles."""
    recorded = stays_s(ROAD_STATIONS, QUICK_FASTER if quick else FASTER, folder)
    window_s = 10 if quick else 40
    road = Ring(
        ROAD_STATIONS, window_s=window_s, stays=recorded, latency_ms=LONG_WAY_MS, cloud_latency_ms=ROAD_CLOUD_MS
    )
    if quick:
        found = {"ring line": Scene(Ring(window_s=10, dwell_s=4.0), 5, 5)}
        return {**found, "vehicle": Scene(road, 6, 5)} if recorded else found
    line = Ring(stations=6, dwell_s=10.0, window_s=80, link_mbps=40.0)
    found = {"ring line": Scene(line, 8, 10, stops=True)}
    if recorded:
        found["vehicle"] = Scene(replace(road, link_mbps=40.0), 8, 10)
    turning = Ring(stations=4, dwell_s=10.0, window_s=40, link_mbps=40.0, turns=True, jitter=0.3)
    found["there and back"] = Scene(turning, 14, 10)
    return {**found, **large()}


def large() -> dict[str, Scene]:
    """States of 16 and 128 MB, by wide readings, over links that carry them within a stay."""
    middle = Ring(dwell_s=8.0, window_s=40, readings_tps=500, columns=100, link_mbps=80.0)
    big = Ring(dwell_s=12.0, window_s=40, readings_tps=1000, columns=400, link_mbps=400.0)
    return {"16 MB": Scene(middle, 5, 5, stops=True), "128 MB": Scene(big, 5, 5, stops=True)}


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """The scenes one after the other in one session."""
    chosen = scenes(quick)
    progress("starting Spark")
    spark = start_session("meander-bench")
    try:
        found = {name: measured(name, scene, spark, progress) for name, scene in chosen.items()}
    finally:
        spark.stop()
    data = "; ".join(
        f"{name}: two rings of {s.ring.stations} stations, a join on each that remembers "
        f"{s.ring.state_bytes / 1e6:.1f} MB, links of {s.ring.link_mbps:g} Mbit/s, {s.measured} handovers each way"
        for name, s in chosen.items()
    )
    expected = {name: ways[PREDICTED].outcomes.get("outcomes") for name, ways in found.items()}
    notes = [
        "a gap is the longest time without a result in the first half of a stay, latency that of results in it; "
        "quiet is the second half",
        "two nodes move at the same moments in one service; the moves of one are predicted. All of it is compared with "
        "the oracle",
        f"expected moves, from the first one on: {expected}",
    ]
    if "vehicle" not in chosen:
        notes.append(NO_TRACES)
    shown = [
        figure
        for name, ways in found.items()
        for figure in figures(name, ways, long_way=chosen[name].ring.latency_ms >= LONG_WAY_MS)
    ]
    outcomes = accuracy()
    if outcomes:
        shares = [100 * counts[HIT] / counts.total() for counts in outcomes.values()]
        shown.append(Figure.of("moves of the published device scenarios that are expected", "%", shares))
    return Report("handover", data, max(s.measured for s in chosen.values()), tuple(shown), tuple(notes))


def measured(name: str, scene: Scene, spark: SparkSession, progress: Callable[[str], None]) -> dict[str, HandoverRun]:
    """A scene's runs by way."""
    found: dict[str, HandoverRun] = {}
    for ways in scene.runs:
        with tempfile.TemporaryDirectory(prefix="meander-handover-", ignore_cleanup_errors=True) as folder:
            progress(f"{name}: filling two windows of {scene.ring.state_bytes / 1e6:.1f} MB")
            found |= RingRun(scene.ring, ways, Path(folder), spark).measure(scene.warm_up, scene.measured, progress)
    return found


def figures(scene: str, ways: Mapping[str, HandoverRun], *, long_way: bool = False) -> Iterator[Figure]:
    """Ratios first. With a `long_way` over the old station, latency has to gain."""
    ahead, predicted = ways[AHEAD], ways[PREDICTED]
    if STOP in ways:
        name = f"{scene}: the join stands still: copied ahead, to stop_and_copy"
        yield Figure.of(name, "x", _ratios(ahead.pause_s, ways[STOP].pause_s), PAUSE_GOAL)
    about = f"{scene}: predicted, to copied ahead"
    yield Figure.of(
        f"{about}: from the move until in effect", "x", _ratios(predicted.effect_s, ahead.effect_s), EFFECT_GOAL
    )
    yield Figure.of(f"{about}: gap in the output", "x", _ratios(predicted.gaps_s, ahead.gaps_s), GAP_GOAL)
    goal = LATENCY_GOAL if long_way else None
    yield Figure.of(f"{about}: event-time latency, p95", "x", _ratios(predicted.p95_s, ahead.p95_s), goal)
    name = f"{scene}, predicted: gap in the output, to that of quiet times"
    yield Figure.of(name, "x", _ratios(predicted.gaps_s, predicted.quiet_gaps_s), QUIET_GOAL)
    for way, one in ways.items():
        yield Figure.of(f"{scene}, {way}: results lost or double", "", [one.lost + one.double], 0)
    for way, one in ways.items():
        about = f"{scene}, {way}"
        yield Figure.of(f"{about}: the join stands still", "ms", _ms(one.pause_s))
        yield Figure.of(f"{about}: in effect", "ms", _ms(one.effect_s))
        yield Figure.of(f"{about}: gap in the output", "ms", _ms(one.gaps_s))
        yield Figure.of(f"{about}: gap in the output, quiet", "ms", _ms(one.quiet_gaps_s))
        for label, values in (("p50", one.p50_s), ("p95", one.p95_s), ("worst", one.worst_s)):
            yield Figure.of(f"{about}: event-time latency, {label}", "ms", _ms(values))
        for label, values in (("p50", one.quiet_p50_s), ("p95", one.quiet_p95_s)):
            yield Figure.of(f"{about}: event-time latency, {label}, quiet", "ms", _ms(values))
        yield Figure.of(f"{about}: state moved", "MB", [b / 1e6 for b in one.state_bytes])
    yield Figure.of(f"{scene}, predicted: sent in vain", "MB", [predicted.outcomes.get("wasted_bytes", 0) / 1e6])


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * s for s in seconds]


def _ratios(values: Sequence[float], to: Sequence[float]) -> list[float]:
    middle = float(np.median(to)) if to else 0.0
    return [value / middle for value in values] if middle else [0.0]
