"""`meander bench isqd` in miniature: the matrix is the published one, every part runs and reports its targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.bench.isqd import bench as isqd
from lab.bench.isqd import makespan as isqd_makespan
from lab.bench.isqd import plots as isqd_plots
from lab.bench.isqd.live import Live, ReplayCase, lasting, measure
from lab.workloads.isqd import DeviceShape
from meander.local.replay_report import Changed, ReplayReport
from meander.run.delivery.latency import Percentiles

TINY = DeviceShape(queries=2, sources=4, mobile=2, stateful=True, period_s=0.5, changes=3, fogs=3)


def live(shape: DeviceShape, took_s: list[float], during_ms: float = 100.0) -> Live:
    """A replay that never ran."""
    changes = tuple(Changed(0.0, 0.0, 0.0, 0.0, 0.0, s, 2, 0, 0, "isqd") for i, s in enumerate(took_s))
    quiet, during = Percentiles(9, 100.0, 200.0, 300.0, 300.0), Percentiles(9, during_ms, 300.0, 300.0, 300.0)
    report = ReplayReport.__new__(ReplayReport)
    values = {
        "changes": changes,
        "unfinished": 0,
        "failures": (),
        "latency": {"before": quiet, "during": during, "after": quiet},
        "checks": {},
        "unchecked": None,
        "drained": True,
    }
    for name, value in values.items():
        object.__setattr__(report, name, value)
    return Live(ReplayCase(shape), report)


def test_the_matrix_varies_every_parameter_as_far_as_promised() -> None:
    shapes = isqd.matrix()
    assert len(shapes) == len(set(shapes))
    for stateful in (False, True):
        mine = [s for s in shapes if s.stateful == stateful]
        assert {2, 4, 8, 16} <= {s.sources for s in mine}
        assert {2 if stateful else 1, 16} <= {s.mobile for s in mine}
        assert {4.0, 0.25} <= {s.period_s for s in mine}
    assert {s.links for s in shapes} == {"tree", "circular", "full"}
    assert {1, 2, 4, 8, 16} == {s.intermediates for s in shapes}


def test_a_queue_that_grows_is_seen() -> None:
    shape = replace(TINY, period_s=0.25)
    steady = {f.name.split(": ")[1]: f for f in live(shape, [0.2, 0.3] * 6).figures()}
    assert steady["growth of the queue"].holds
    assert steady["in effect, p95"].holds
    growing = {f.name.split(": ")[1]: f for f in live(shape, [0.1 * i for i in range(12)]).figures()}
    assert not growing["growth of the queue"].holds
    assert not growing["in effect, p95"].holds


def test_latency_is_compared_with_both_quiet_phases() -> None:
    figures = {f.name.split(": ")[1]: f for f in live(TINY, [0.1], during_ms=150.0).figures()}
    assert figures["latency p50, changes to quiet"].values == (1.5,)
    assert not figures["latency p50, changes to quiet"].holds
    assert figures["latency p95, changes to quiet"].values == (1.5,)
    assert figures["latency p95, changes to quiet"].holds


def test_makespans_of_restarts_are_taken_to_the_median_of_incremental_ones() -> None:
    ours = {"isqd": [0.1, 0.2, 0.3], "restart_concurrent": [0.4], "restart_serial": [4.0]}
    plain = {"restart_concurrent": [2.0], "restart_serial": [6.0]}
    figures = {f.name: f for f in isqd_makespan.Makespans("m", ours, plain, 0, 0).figures()}
    assert figures["m: data plane, restart_concurrent to isqd"].measured == pytest.approx(2.0)
    assert figures["m: data plane, restart_concurrent to isqd"].goal is None
    assert figures["m: plain Spark, restart_serial to isqd"].measured == pytest.approx(30.0)
    assert figures["m: plain Spark, restart_serial to isqd"].wanted == ">= 11"


def test_what_is_touched_is_counted_without_spark() -> None:
    targets = [f for f in isqd.touched(lambda text: None) if f.goal is not None]
    assert [f.holds for f in targets] == [True, True]


def test_series_differ_in_one_parameter(tmp_path: Path) -> None:
    shapes = [replace(TINY, sources=n) for n in (2, 8, 4)] + [replace(TINY, sources=16, period_s=1.0)]
    lives = [live(lasting(s, 4.0), [0.1, 0.2]) for s in shapes]
    found = isqd_plots.series(lives, "sources", stateful=True)
    assert [each.case.shape.sources for each in found] == [2, 4, 8]
    written = isqd_plots.draw(lives, [], tmp_path)
    assert [p.name for p in written] == ["isqd-sources-stateful.svg"]
    assert written[0].stat().st_size > 1000


@pytest.mark.slow
def test_replays_and_makespans_run(spark: SparkSession, tmp_path: Path) -> None:
    (found,) = measure(spark, tmp_path / "live", [ReplayCase(TINY)], 0.5, lambda text: None)
    figures = {f.name.split(": ")[1]: f for f in found.figures()}
    assert (figures["lost"].values, figures["double"].values) == ((0.0,), (0.0,))
    assert figures["changes not in effect"].holds
    made = isqd_makespan.measure(spark, tmp_path / "makespan", TINY, 1, 1, lambda text: None)
    assert {name: len(values) for name, values in made.ours_s.items()} == dict.fromkeys(isqd_makespan.NAMES, 1)
    assert all(values[0] > 0 for values in made.plain_s.values())
    assert (made.lost, made.double) == (0, 0)
