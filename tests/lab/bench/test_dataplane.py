"""`meander bench dataplane` in miniature: every part runs, and every figure that has a goal is a target."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from lab.bench import Bench, command
from lab.bench.dataplane import bench as dataplane
from lab.bench.dataplane import latency as dataplane_latency
from lab.bench.dataplane import many as dataplane_many
from lab.bench.dataplane.data import KINDS
from lab.bench.report import Figure, Report
from meander.cli.main import app


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dataplane, "QUICK", dataplane.DataplaneExtent((500,), 1, 1, (1, 4), (2,), (200.0,), 1.0, 1, memory_s=None)
    )
    monkeypatch.setattr(dataplane_latency, "WARM_S", 0.5)
    monkeypatch.setattr(dataplane_many, "WARM_S", 1.0)
    monkeypatch.setattr(dataplane_many, "SOURCES", 8)
    monkeypatch.setattr(dataplane_many, "QUERIES", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_every_part_reports_its_targets(spark: SparkSession, tmp_path: Path) -> None:
    figures = dataplane.measure(spark, tmp_path, dataplane.QUICK, lambda text: None)
    names = [f.name for f in figures]
    targets = {f.name: f.wanted for f in figures if f.goal is not None}
    for kind in KINDS:
        assert targets[f"throughput of {kind.name}, 500 tuples a batch, to plain Spark"] == ">= 0.8"
        for share in ("p50", "p95"):
            assert targets[f"latency {share} of {kind.name} at 200 tuples/s, to plain Spark"] == "<= 1.3"
    for kind in KINDS[:2]:
        assert targets[f"step of {kind.name}, 10,000 tuples, 4 to 1 fragments"] == "<= 2"
    assert "the same by 2 plain queries, window aggregate" in names
    assert "2 queries over 8 sources, window join, sustained" in names
    assert all(f.measured > 0 for f in figures)


@pytest.mark.slow
def test_memory_is_a_target_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataplane_many, "SOURCES", 4)
    monkeypatch.setattr(dataplane_many, "QUERIES", 1)
    figures = dataplane_many.measure_memory(spark, tmp_path, 100, 6.0, lambda text: None)
    assert [f.wanted for f in figures if f.goal is not None] == ["<= 1.1"] * 2


@pytest.mark.parametrize(("value", "code"), [(0.9, 0), (0.7, 1)])
def test_a_target_that_is_missed_changes_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    figure = Figure.of("throughput of a, to plain Spark", "x", [value], 0.8, at_least=True)
    report = Report("dataplane", "nothing", 1, (figure,))
    monkeypatch.setattr(command, "bench", lambda name: Bench(name, "", lambda quick, progress: report))
    assert CliRunner().invoke(app, ["bench", "dataplane", "--json"]).exit_code == code
