"""Plots of `meander bench isqd`: the time of changes and their effect on latency, one parameter at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl

from lab.bench.isqd import state as isqd_state
from lab.bench.isqd.live import Live
from lab.bench.report import Figure
from lab.workloads.isqd import DeviceShape

PARTS = ("placement", "contexts", "markers", "state")
PARAMETERS: dict[str, Callable[[DeviceShape], float | str]] = {
    "sources": lambda shape: shape.sources,
    "mobile": lambda shape: shape.mobile,
    "period_s": lambda shape: shape.period_s,
    "links": lambda shape: shape.links,
    "intermediates": lambda shape: shape.intermediates,
}


def draw(lives: Sequence[Live], state: Sequence[Figure], folder: Path) -> list[Path]:
    """One image for each parameter and kind of query that was varied, and those of state; returns the written files."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for parameter, value in PARAMETERS.items():
        for stateful in (False, True):
            mine = series(lives, parameter, stateful=stateful)
            if len(mine) > 1:
                path = folder / f"isqd-{parameter.removesuffix('_s')}-{'stateful' if stateful else 'stateless'}.svg"
                _plot([(str(value(live.case.shape)), live) for live in mine], parameter, path)
                written.append(path)
    if any(f.name.endswith(": store and forward") for f in state):
        path = folder / "isqd-state.svg"
        isqd_state.plot(state, path)
        written.append(path)
    return written


def series(lives: Sequence[Live], parameter: str, *, stateful: bool) -> list[Live]:
    """The largest set of generated cases that differ in nothing but this parameter (and how many changes came)."""
    groups: dict[tuple[object, ...], dict[float | str, Live]] = {}
    for live in lives:
        shape = live.case.shape
        if live.case.scenario is None and shape.stateful == stateful:
            others = tuple(value(shape) for name, value in PARAMETERS.items() if name != parameter)
            groups.setdefault(others, {})[PARAMETERS[parameter](shape)] = live
    largest = max(groups.values(), key=len, default={})
    return [largest[key] for key in sorted(largest, key=lambda k: (isinstance(k, str), k))]


def _plot(points: Sequence[tuple[str, Live]], parameter: str, path: Path) -> None:
    from matplotlib import pyplot as plt

    drawing, (parts, latency) = plt.subplots(1, 2, figsize=(10, 4))
    labels = [label for label, _ in points]
    below = [0.0] * len(points)
    for part in PARTS:
        values = [1000 * live.report.quantile(f"{part}_s", 0.5) for _, live in points]
        parts.bar(labels, values, bottom=below, label=part)
        below = [a + b for a, b in zip(below, values, strict=True)]
    effect = [1000 * live.report.quantile("in_effect_s", 0.95) for _, live in points]
    parts.plot(labels, effect, "k_", markersize=16, label="in effect, p95")
    parts.set(xlabel=parameter, ylabel="a change, p50 (ms)")
    for phase, mark in (("before", "o"), ("during", "s"), ("after", "^")):
        for share, line in (("p50_ms", "-"), ("p95_ms", ":")):
            values = [getattr(live.report.latency[phase], share) for _, live in points]
            latency.plot(labels, values, mark + line, label=f"{phase}, {share.removesuffix('_ms')}")
    latency.set(xlabel=parameter, ylabel="event-time latency (ms)", ylim=(0, None))
    for axis in (parts, latency):
        axis.legend(fontsize="small")
        axis.grid(visible=True, alpha=0.3)
    drawing.tight_layout()
    drawing.savefig(path)
    plt.close(drawing)
