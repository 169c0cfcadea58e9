"""`meander demand` and `meander adapt`: demands in words, forecasts against demands, and the decision log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.adapt.decision_log import append
from meander.cli.main import app
from meander.model.errors import InputError
from tests.adapt.fakes import FakeWorld, Play

EXAMPLES = Path(__file__).parents[2] / "examples"
RUSH = "WHEN hour BETWEEN 7 AND 9 THEN latency < 50 ms OTHERWISE overhead < 1 MB"


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_check_says_how_demands_are_understood() -> None:
    assert run("demand", "check", RUSH).splitlines() == [
        "latency < 50 ms WHEN hour BETWEEN 7 AND 9",
        "overhead < 1 MB UNLESS hour BETWEEN 7 AND 9",
    ]
    at_eight = run("demand", "check", RUSH, "--hour", "8").splitlines()
    assert [line.rsplit("  ", 1)[1] for line in at_eight] == ["applies", "does not apply"]
    found = json.loads(run("demand", "check", RUSH, "--hour", "12", "--json"))
    assert [d["applies"] for d in found] == [False, True]


def test_check_refuses_contradictions_with_their_place() -> None:
    with pytest.raises(InputError, match="demand, column 17: latency > 1000 ms contradicts latency < 1 ms"):
        run("demand", "check", "latency < 1 ms, latency > 1 s")


def test_try_holds_every_mechanism_against_the_demands(tmp_path: Path) -> None:
    script = tmp_path / "slow.sql"
    script.write_text(
        "SELECT id, speed FROM train WHERE speed < 30 INTO alerts DEMAND latency < 1 ms, hops <= 99, frequency >= 1 /s",
        encoding="utf-8",
    )
    shown = run("demand", "try", "-t", EXAMPLES / "topologies" / "ring.yaml", "-q", script)
    assert "infeasible here: latency < 1 ms; the best is" in shown
    assert "only running shows: frequency >= 1 /s" in shown
    (table,) = json.loads(run("demand", "try", "-t", EXAMPLES / "topologies" / "ring.yaml", "-q", script, "--json"))
    assert {row["mechanism"] for row in table["mechanisms"]} >= {"bottom_up", "ilp", "mdcep"}
    assert [each["demand"] for each in table["infeasible"]] == ["latency < 1 ms"]
    assert all("hops <= 99" not in row["misses"] for row in table["mechanisms"])


def test_the_log_in_words(tmp_path: Path) -> None:
    world = FakeWorld({"plain": 200.0, "fast": 50.0}, forecast_ms={"plain": 200.0, "fast": 50.0})
    play = Play.of(world, "latency < 100 ms")
    play.run(8)
    path = tmp_path / "log.jsonl"
    append(path, play.decisions)
    assert "switch plain -> fast" in run("adapt", "log", path)
    only = run("adapt", "log", path, "--action", "arrived", "--query", "q").splitlines()
    assert len(only) == 1
    assert "is expected to meet" in run("adapt", "log", path, "--details")
    assert len(json.loads(run("adapt", "log", path, "--json", "--last", "1"))) == 1
    with pytest.raises(InputError, match="no action 'swich'; known actions: switch"):
        run("adapt", "log", path, "--action", "swich")
