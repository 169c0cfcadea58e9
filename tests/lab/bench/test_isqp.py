"""`meander bench isqp` in miniature: every workload runs and reports its targets."""

from __future__ import annotations

import pytest

from lab.bench.isqp import amenders as isqp_amenders
from lab.bench.isqp import bench as isqp
from lab.bench.isqp import contention as isqp_contention
from lab.bench.isqp import scale as isqp_scale
from lab.bench.isqp.slices import Slices, merged, ratio_figures
from lab.bench.report import Figure
from lab.workloads.isqp import Meshes, published_shape
from meander.place.amenders.count import by_cores


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isqp, "RUNNING", 32)
    monkeypatch.setattr(isqp, "ADDED", 96)
    monkeypatch.setattr(isqp, "TRAIN_QUERIES", 100)
    monkeypatch.setattr(isqp, "MOVES", (40, 40))
    monkeypatch.setattr(isqp, "CHANGES_B", (32, 32))
    monkeypatch.setattr(isqp, "query_set", lambda: (published_shape(128, distinct=32, conflict=0.5), "a small set"))
    monkeypatch.setattr(isqp_scale, "QUERIES", (100, 200, 300))
    monkeypatch.setattr(isqp_scale, "NODES", (1_000, 2_000))
    monkeypatch.setattr(isqp_contention, "SHARES", (0.0, 1.0))
    monkeypatch.setattr(isqp_contention, "THREADS", (1, 2))
    monkeypatch.setattr(isqp_amenders, "ROUNDS", (2, 2))


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_the_report_has_every_target() -> None:
    said: list[str] = []
    report = isqp.run(True, said.append)
    names = [target.name for target in report.targets]
    for mechanism in ("bottom_up", "ilp"):
        for other in ("serial", "batched"):
            assert f"A, {mechanism}: {other} holistic to incremental, time" in names
    assert sum(name.startswith("C, bottom_up") for name in names) == 10
    assert [name for name in names if name.startswith("scale")] == [
        "scale: query change, most to fewest queries",
        "scale: query change, most to fewest nodes",
        "scale: move of a sensor, most to fewest nodes",
    ]
    assert ("amenders, ilp, hard: one to two" in names) == (by_cores() > 1)
    figures = {figure.name: figure for figure in report.figures}
    assert figures["amenders, bottom_up, hard: one to two"].goal is None
    assert figures["amenders, bottom_up, hard: share of CPU time in HiGHS"].measured == 0.0
    assert figures["amenders, ilp, hard: share of CPU time in HiGHS"].measured > 0.5
    assert figures["A, ilp: incremental, operators touched per change"].values == (2.0,)
    assert figures["contention, pessimistic, 100% conflicts, 1 thread: attempts aborted"].measured == 0.0
    assert any(name.startswith("B, 50% removals: serial holistic to incremental") for name in figures)
    assert said[0].startswith("A: adding")


def test_a_ratio_is_taken_slice_by_slice() -> None:
    mine = Slices([1.0, 2.0], [1.0, 1.0], touched=4, changes=2)
    theirs = Slices([30.0, 20.0], [9.0, 9.0], touched=8, changes=2)
    figures = {f.name: f for f in ratio_figures("X", {"incremental": mine, "whole": theirs}, {"whole": 25.0})}
    ratio = figures["X: whole to incremental, time"]
    assert (ratio.values, ratio.goal, ratio.at_least, ratio.holds) == ((30.0, 10.0), 25.0, True, False)
    assert figures["X: whole to incremental, CPU time"].goal is None
    both = merged([{"whole": theirs}, {"whole": theirs}])["whole"]
    assert (both.wall_us, both.touched, both.changes) == ([30.0, 20.0] * 2, 16, 4)


def test_a_goal_may_be_a_minimum() -> None:
    least = Figure.of("speed", "ratio", [30.0], 25.0, at_least=True)
    assert least.holds
    assert not Figure.of("speed", "ratio", [20.0], 25.0, at_least=True).holds
    assert least.wanted == ">= 25"
    assert least.as_json()["goal_is"] == "at least"


def test_one_and_two_amenders_take_turns_on_the_same_batches() -> None:
    one_to_two, one, two, share = isqp_amenders.compare(
        isqp_amenders.AmenderCase("small", "ilp", Meshes(2, 6, 1), 1.5), 2
    )
    assert len(one_to_two.values) == len(one.values) == len(two.values) == 2
    assert one_to_two.values == tuple(a / b for a, b in zip(one.values, two.values, strict=True))
    assert one_to_two.at_least
    assert 0.0 < share.measured < 1.0
