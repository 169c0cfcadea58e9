"""`meander bench handover`: a large state follows a mobile node, with and without prediction.

With it the state is sent before the node moves; without, it is copied ahead while data takes the long way, or stopped
and copied. A train on a ring line, a vehicle as it was recorded, and states of different sizes.

Ways run one after the other, and what else the machine does falls on them differently: so gaps are compared with those
of quiet times of the same run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from lab.bench.handover.accuracy import HIT, accuracy
from lab.bench.handover.recorded import stays_s
from lab.bench.handover.scene import HandoverRun, HandoverWay, Ring, RingRun
from lab.bench.report import Figure, Report
from meander.adapt.mobility.settings import PredictionSettings
from meander.run.session import start_session

STOP, AHEAD, PREDICTED = "stop_and_copy", "copied ahead", "predicted"
WAYS = {
    STOP: HandoverWay(STOP, "stop_and_copy"),
    AHEAD: HandoverWay(AHEAD, "migration_query"),
    PREDICTED: HandoverWay(PREDICTED, "migration_query", PredictionSettings("markov", most_bytes=512_000_000)),
}
EFFECT_GOAL, GAP_GOAL = 0.5, 1.5
"""Of the same without prediction: the time to effect. Of the gap in quiet times: that around handovers."""
PAUSE_GOAL = 0.5
"""Of the pause with stop_and_copy."""
ROAD_STATIONS, FASTER = 4, 20.0
NO_TRACES = "vehicle moves were not measured: set MEANDER_DATA to the folder above `traces`"


@dataclass(frozen=True, slots=True)
class Scene:
    """A ring, the ways that are compared on it, how many handovers it begins with, and how many are measured."""

    ring: Ring
    ways: tuple[str, ...]
    warm_up: int
    measured: int


def scenes(quick: bool, folder: Path | None = None) -> dict[str, Scene]:
    """Scenes by name; without recorded moves there is none of vehicles."""
    recorded = stays_s(ROAD_STATIONS, FASTER, folder)
    if quick:
        found = {"ring line": Scene(Ring(window_s=12, dwell_s=5.0), (AHEAD, PREDICTED), 5, 5)}
        road = Ring("vehicle-1", ROAD_STATIONS, window_s=12, stays=recorded)
        return {**found, "vehicle": Scene(road, (AHEAD, PREDICTED), 6, 4)} if recorded else found
    line = Ring(stations=6, dwell_s=10.0, window_s=80, link_mbps=40.0)
    found = {"ring line": Scene(line, (STOP, AHEAD, PREDICTED), 8, 10)}
    if recorded:
        road = Ring("vehicle-1", ROAD_STATIONS, window_s=40, link_mbps=40.0, stays=recorded)
        found["vehicle"] = Scene(road, (AHEAD, PREDICTED), 8, 10)
    turning = Ring("vehicle-1", stations=4, dwell_s=10.0, window_s=40, link_mbps=40.0, turns=True, jitter=0.3)
    found["there and back"] = Scene(turning, (AHEAD, PREDICTED), 14, 10)
    return {**found, **large()}


def large() -> dict[str, Scene]:
    """States of 16 and 128 MB, by wide readings, over links that carry them within a stay."""
    ways = (STOP, AHEAD, PREDICTED)
    middle = Ring(dwell_s=8.0, window_s=40, readings_tps=500, columns=100, link_mbps=80.0)
    big = Ring(dwell_s=12.0, window_s=40, readings_tps=1000, columns=400, link_mbps=400.0)
    return {"16 MB": Scene(middle, ways, 5, 5), "128 MB": Scene(big, ways, 5, 5)}


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """Each scene once for each way, one after the other in one session."""
    chosen = scenes(quick)
    progress("starting Spark")
    spark = start_session("meander-bench")
    try:
        found = {name: measured(name, scene, spark, progress) for name, scene in chosen.items()}
    finally:
        spark.stop()
    data = "; ".join(
        f"{name}: {s.ring.stations} base stations, a join that remembers {s.ring.state_bytes / 1e6:.1f} MB, "
        f"links of {s.ring.link_mbps:g} Mbit/s, {s.measured} handovers each way"
        for name, s in chosen.items()
    )
    expected = {name: ways[PREDICTED].outcomes.get("outcomes") for name, ways in found.items()}
    notes = [
        "a gap is the longest time without a result in the first half of a stay, latency that of results in it; "
        "quiet is the second half",
        "all ways run after each other in one process, with the same tuples; each is compared with the oracle",
        f"expected moves, from the first one on: {expected}",
    ]
    if "vehicle" not in chosen:
        notes.append(NO_TRACES)
    shown = [figure for name, ways in found.items() for figure in figures(name, ways)]
    outcomes = accuracy()
    if outcomes:
        shares = [100 * counts[HIT] / counts.total() for counts in outcomes.values()]
        shown.append(Figure.of("moves of the published device scenarios that are expected", "%", shares))
    return Report("handover", data, max(s.measured for s in chosen.values()), tuple(shown), tuple(notes))


def measured(name: str, scene: Scene, spark: SparkSession, progress: Callable[[str], None]) -> dict[str, HandoverRun]:
    """A scene's runs by way."""
    found: dict[str, HandoverRun] = {}
    for way in scene.ways:
        with tempfile.TemporaryDirectory(prefix="meander-handover-", ignore_cleanup_errors=True) as folder:
            progress(f"{name}, {way}: filling a window of {scene.ring.state_bytes / 1e6:.1f} MB")
            run = RingRun(scene.ring, WAYS[way], Path(folder), spark)
            found[way] = run.measure(scene.warm_up, scene.measured, progress)
    return found


def figures(scene: str, ways: Mapping[str, HandoverRun]) -> Iterator[Figure]:
    """Ratios first."""
    ahead, predicted = ways[AHEAD], ways[PREDICTED]
    if STOP in ways:
        name = f"{scene}: the join stands still: copied ahead, to stop_and_copy"
        yield Figure.of(name, "x", _ratios(ahead.pause_s, ways[STOP].pause_s), PAUSE_GOAL)
    about = f"{scene}: predicted, to copied ahead"
    yield Figure.of(
        f"{about}: from the move until in effect", "x", _ratios(predicted.effect_s, ahead.effect_s), EFFECT_GOAL
    )
    yield Figure.of(f"{about}: gap in the output", "x", _ratios(predicted.gaps_s, ahead.gaps_s))
    yield Figure.of(f"{about}: event-time latency, p95", "x", _ratios(predicted.p95_s, ahead.p95_s))
    name = f"{scene}, predicted: gap in the output, to that of quiet times"
    yield Figure.of(name, "x", _ratios(predicted.gaps_s, predicted.quiet_gaps_s), GAP_GOAL)
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
