"""Mechanisms side by side on the five TCEP queries: latency, overhead, network usage and hops of their placements.

Every mechanism places each query on the same roads, on which vehicles stand at random units. Latency is that of the
network; overhead is what the mechanism's messages for this placement take, the cost space not included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.bench.report import Figure
from lab.workloads import tcep as road
from meander.adapt.mechanism_forecasts import CatalogForesight, Forecast
from meander.model.demands import Metric
from meander.model.events import QueryAdded
from meander.model.ids import QueryId
from meander.model.topology.elements import Link
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, mechanism

COMPARED = {Metric.LATENCY: "ms", Metric.OVERHEAD: "bytes", Metric.NETWORK_USAGE: "bytes", Metric.HOPS: "links"}


@dataclass(frozen=True, slots=True)
class RoadSample:
    """One placement of one query on one road."""

    mechanism: str
    query: str
    values: dict[Metric, float]
    place_ms: float


def road_with(seed: int) -> Catalog:
    """A catalog whose vehicles stand at random units."""
    catalog = Catalog(road.topology(), road.streams(), dict(road.SINKS), rules=0)
    rng = np.random.default_rng(seed)
    for vehicle, unit in road.vehicles().items():
        catalog.topology.remove_link(vehicle, unit)
        catalog.topology.add_link(Link(vehicle, f"rsu-{int(rng.integers(1, road.UNITS + 1))}", 5.0, 5.0))
    return catalog


def samples(roads: int, progress: Callable[[str], None], kinds: Sequence[str] | None = None) -> list[RoadSample]:
    """All mechanisms on all queries, or some; queries that a mechanism cannot place are left out."""
    found: list[RoadSample] = []
    library = {m.name: mechanism(m.name) for m in MECHANISMS}
    for kind in kinds or road.NAMES:
        progress(f"placing {kind} with {len(library)} mechanisms on {roads} roads")
        for seed in range(roads):
            catalog = road_with(seed)
            Engine(catalog, library["bottom_up"]).run([QueryAdded(0, road.query(kind))])
            foresight = CatalogForesight(catalog, library, seed=seed, time_limit_s=60)
            for name in library:
                started = time.process_time()
                forecast = foresight.forecast(QueryId(kind), name)
                took = (time.process_time() - started) * 1000
                if isinstance(forecast, Forecast):
                    values = {metric: forecast.values[metric] for metric in COMPARED}
                    found.append(RoadSample(name, kind, values, took))
    return found


def figures(samples: Sequence[RoadSample], kind: str = "congestion") -> list[Figure]:
    """Figures of one query; the spread is over roads."""
    found = [s for s in samples if s.query == kind]
    figures: list[Figure] = []
    for metric, unit in COMPARED.items():
        for name in dict.fromkeys(s.mechanism for s in found):
            values = [s.values[metric] for s in found if s.mechanism == name]
            figures.append(Figure.of(f"{kind}, {metric.value}, {name}", unit, values))
    return figures


def plot(found: Sequence[RoadSample], path: Path, kind: str = "congestion") -> None:
    """The distribution of each metric over roads, one line per mechanism."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(COMPARED), figsize=(16, 3.6), sharey=True)
    for axis, (metric, unit) in zip(axes, COMPARED.items(), strict=True):
        for name in dict.fromkeys(s.mechanism for s in found):
            values = np.sort([s.values[metric] for s in found if s.mechanism == name and s.query == kind])
            axis.step(values, np.arange(1, len(values) + 1) / max(len(values), 1), where="post", label=name)
        axis.set_xlabel(f"{metric.value} ({unit})")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of roads")
    axes[-1].legend(fontsize="x-small")
    figure.suptitle(f"{kind}: placements by mechanism")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
