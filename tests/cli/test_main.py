"""The command line: what it prints where, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.cli.main import app
from meander.run.java import JavaNotFoundError

ROOT = Path(__file__).parents[2]
TOPOLOGY = str(ROOT / "examples" / "topologies" / "ring.yaml")
SCRIPT = "CREATE STREAM s (ts timestamp, v double); SELECT v FROM s WHERE v < 3 INTO out DEMAND hops <= 2"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_explain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", SCRIPT) == 0
    shown = capsys.readouterr().out
    assert "3 map v" in shown
    assert "hops <= 2" in shown


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", SCRIPT, "--json") == 0
    (query,) = json.loads(capsys.readouterr().out)
    assert [o["kind"] for o in query["operators"]] == ["source", "filter", "map", "sink"]
    assert query["demands"][0]["text"] == "hops <= 2"


def test_explain_shows_what_rewrites_make_of_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    query = """SELECT t.id, w.wind FROM train AS t JOIN weather AS w ON t.station = w.station WITHIN 3 s
               WHERE w.wind > 4 * 2 INTO alerts"""
    assert run("explain", query, "-t", TOPOLOGY, "--logical") == 0
    written, placed = capsys.readouterr().out.split("rewrites: fold constants, push filters, narrow inputs")
    assert written.index("filter wind > 4 * 2") < written.index("window join")
    assert placed.index("filter wind > 8") > placed.index("window join")
    assert run("explain", query, "-t", TOPOLOGY, "--logical", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["rewrites"] == ["fold_constants", "push_filters", "narrow_inputs"]
    assert len(found["written"]) == 6
    assert len(found["operators"]) == 7


def test_explain_shows_ways_and_how_long_they_may_become(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology = tmp_path / "two.yaml"
    topology.write_text(
        """
nodes:
  - {name: car, kind: sensor, slots: 0}
  - {name: fog, kind: edge, slots: 4}
  - {name: cloud, kind: cloud, slots: 9}
links:
  - {source: car, target: fog, latency_ms: 2}
  - {source: fog, target: cloud, latency_ms: 8}
streams:
  - {name: cars, schema: {ts: timestamp, id: bigint, speed: double}, event_time: ts, nodes: car, rate_tps: 10}
sinks:
  - {name: out, node: cloud}
detour: 3
""",
        encoding="utf-8",
    )
    query = "SELECT id FROM cars WHERE speed < 5 INTO out"
    assert run("explain", query, "-t", str(topology)) == 0
    shown = capsys.readouterr().out
    assert "  routes, as bottom_up places it alone (detour 3, or 1 ms longer)\n" in shown
    assert (
        "car to cloud: 10.0 ms through the operators, 10.0 ms on the cheapest path; operators follow beyond 30.0 ms\n"
    ) in shown
    assert run("explain", query, "-t", str(topology), "--detour", "1", "--mechanism", "top_down", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["placement"] == {
        "mechanism": "top_down",
        "detour": 1.0,
        "routes": [{"from": "car", "to": "cloud", "through_ms": 10.0, "fresh_ms": 10.0, "limit_ms": 11.0}],
        "waiting": {},
        "refused": None,
    }
    assert run("explain", query, "-t", str(topology), "--detour", "0.5") == 2


def test_explain_says_why_a_query_has_no_place_on_the_topology(capsys: pytest.CaptureFixture[str]) -> None:
    script = "CREATE STREAM s (ts timestamp, v double); SELECT v FROM s INTO alerts"
    assert run("explain", script, "-t", TOPOLOGY) == 0
    assert capsys.readouterr().out.endswith(
        "\n\n  not placed: stream 's' has no node that produces it; list its nodes in the topology\n"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "queries").glob("*.[sp][qy]*")), ids=lambda p: p.name)
def test_examples_with_the_ring(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", str(path), "--topology", TOPOLOGY) == 0
    assert capsys.readouterr().out.startswith(f"query {path.stem}\n")


def test_bad_input_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "SELECT * FROM trian INTO alerts", "-t", TOPOLOGY) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "error: query, line 1, column 15: no stream 'trian'; known streams: train, vehicle, weather\n"
    )


def test_a_script_without_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "CREATE STREAM s (ts timestamp)") == 2
    assert "there is no query to explain; add a SELECT" in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert "explain" in shown
    assert "Continuous queries on Spark" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("meander ")


def test_without_java_a_run_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise JavaNotFoundError("Spark needs Java 17 or newer (none). Run `make setup`.")

    monkeypatch.setattr("meander.run.session.java_home_for_spark", missing)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    query = str(ROOT / "examples" / "queries" / "slow_trains.sql")
    assert run("run", "-t", TOPOLOGY, "-q", query, "-o", str(tmp_path)) == 2
    assert capsys.readouterr().err.strip() == "error: Spark needs Java 17 or newer (none). Run `make setup`."
