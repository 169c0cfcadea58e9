"""Plots of `meander bench rebinding`: latency over time, its distribution, and latency while the load rises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np

from lab.experiments.rebinding_model import Floats, LatencySamples


def draw(
    constant: Mapping[str, LatencySamples],
    rising: Mapping[str, LatencySamples],
    load: Floats,
    bound_s: float,
    folder: Path,
    name: str = "rebinding",
) -> None:
    """Writes two images, the second only if the load rose; the dotted line is twice the unloaded latency."""
    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for label, latencies in constant.items():
        seconds, average = latencies.over_time()
        left.plot(seconds, 1000 * average, label=label)
        known = np.sort(latencies.latency_s[np.isfinite(latencies.latency_s)])
        right.plot(1000 * known, 100 * np.arange(1, known.size + 1) / latencies.latency_s.size, label=label)
    left.axhline(1000 * bound_s, color="0.4", linestyle=":")
    right.axvline(1000 * bound_s, color="0.4", linestyle=":")
    left.set(xlabel="time (s)", ylabel="average latency of queries (ms)", yscale="log", title="constant load")
    right.set(xlabel="latency (ms)", ylabel="results (%)", xscale="log", title="distribution")
    right.legend(fontsize=8)
    figure.savefig(folder / f"{name}-constant.svg")
    pyplot.close(figure)
    if not rising:
        return
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for label, latencies in rising.items():
        seconds, average = latencies.over_time()
        at = load[np.minimum(seconds.astype(np.int64), load.size - 1)]
        axes.plot(at / 1000, 1000 * average, label=label)
    axes.axhline(1000 * bound_s, color="0.4", linestyle=":")
    axes.set(
        xlabel="load (1,000 tuples/s)", ylabel="average latency of queries (ms)", yscale="log", title="rising load"
    )
    axes.legend(fontsize=8)
    figure.savefig(folder / f"{name}-rising.svg")
    pyplot.close(figure)
