"""Mechanisms compared on the TCEP queries: every mechanism has its samples, and what is optimal is not beaten."""

from __future__ import annotations

from pathlib import Path

from lab.experiments.tcep_learning import compare
from lab.experiments.tcep_learning import measure as measure_learning
from lab.experiments.tcep_mechanisms import figures, plot, samples
from lab.workloads import tcep as road
from meander.model.demands import Metric
from meander.place.mechanisms import MECHANISMS


def quiet(_: str) -> None:
    return None


def test_the_optimum_is_not_beaten_and_the_distributions_are_drawn(tmp_path: Path) -> None:
    found = samples(2, quiet)
    assert len(found) == 2 * len(road.NAMES) * len(MECHANISMS)
    for query in road.NAMES:
        for metric in (Metric.NETWORK_USAGE,):
            values = {s.mechanism: s.values[metric] for s in found if s.query == query}
            assert values["global_optimal"] <= min(values.values()) * 1.001
    path = tmp_path / "mechanisms.png"
    plot(found, path)
    assert path.stat().st_size > 10_000


def test_figures_of_one_query() -> None:
    found = figures(samples(1, quiet, ["congestion"]))
    assert len(found) == 4 * len(MECHANISMS)
    assert all(len(f.values) == 1 for f in found)


def test_learning_is_timed_and_compared() -> None:
    names = [f.name for f in (*measure_learning(1, 10, quiet), *compare(1, quiet))]
    assert names[:2] == ["learning update", "selection for 10 queries"]
    assert sum("thompson" in name for name in names) == sum("linear_ranking" in name for name in names) == 3
