"""`meander status` names what waits, with its reason."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.cli.main import app

TOPOLOGY = """
nodes:
  - {name: s, kind: sensor, slots: 0}
  - {name: c, kind: cloud, slots: 1}
links: [{source: s, target: c}]
streams: [{name: r, schema: "ts timestamp, v double", nodes: [s]}]
sinks: [{name: out, node: c}]
"""
TWO = "CREATE QUERY a AS SELECT v FROM r WHERE v > 1 INTO out; CREATE QUERY b AS SELECT v FROM r WHERE v > 2 INTO out"


@pytest.fixture
def placement(tmp_path: Path) -> Path:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    (tmp_path / "q.sql").write_text(TWO)
    target = tmp_path / "placement.json"
    arguments = ["place", "-t", str(tmp_path / "t.yaml"), "-q", str(tmp_path / "q.sql"), "-o", str(target)]
    CliRunner().invoke(app, arguments)
    return target


def test_operators_that_wait_are_named_with_their_reason(placement: Path) -> None:
    text = CliRunner().invoke(app, ["status", str(placement)]).output
    assert "operators wait for another try:" in text
    assert "no room for 1 slots" in text
    found = json.loads(CliRunner().invoke(app, ["status", str(placement), "--json"]).output)
    assert found["queries"] == 2
    assert found["placed"] == sum(found["nodes"].values())
    assert all(o["waits_because"] for o in found["waiting"])


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    result = CliRunner().invoke(app, ["status", str(tmp_path / "x.json")])
    assert result.exit_code != 0
    assert "this is not a placement" in str(result.exception)


def written(folder: Path, **changes: Any) -> Path:
    """The status of a run, as this process would write it."""
    latency = {"slow": {"count": 4, "p50_ms": 10.0, "p95_ms": 20.0, "p99_ms": 30.0, "most_ms": 30.0}}
    status = {
        "healthy": True,
        "problems": [],
        "slots": ["a"],
        "fragments": 3,
        "totals": {"steps": 4, "late": 1, "seconds": 0.2},
        "pending_tuples": 7,
        "state_bytes": 1234,
        "store": {"disk_bytes": 5678, "pressure": 0.25},
        "ingest": {"rows": 1000, "malformed": 2},
        "delivery": {"rows": 50, "latency": latency},
    }
    times = {"started": time.time() - 12, "written": time.time()}
    content = {"process": os.getpid(), "phase": "running", **times, "status": status | changes.pop("status", {})}
    folder.mkdir(exist_ok=True)
    (folder / "status.json").write_text(json.dumps(content | changes))
    return folder


def test_a_running_run_is_shown(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(written(tmp_path / "results"))])
    assert result.exit_code == 0
    assert f"results/: running for 12 s in process {os.getpid()}" in result.output
    assert "1,000 in, 50 out, 7 wait; 1 late, 2 malformed" in result.output
    assert "3 fragments in 1 slots: 4 steps, 50 ms each" in result.output
    assert "latency of slow: p50 10, p95 20, p99 30 ms" in result.output
    assert "healthy" in result.output


def test_how_stages_of_a_run_are_run_is_shown(tmp_path: Path) -> None:
    stages = {"prepared": 4, "operator_at_a_time": 1, "plain": 0, "refused": 2}
    use = {"stages": stages, "refused": {"its physical plan has Python": 2}, "runs": {"plain": 9}, "evicted": 0}
    result = CliRunner().invoke(app, ["status", str(written(tmp_path / "results", status={"stages": use}))])
    assert "stages: 4 prepared, 1 operator at a time, 2 refused (its physical plan has Python)" in result.output


def test_problems_of_a_run_are_shown_and_change_the_exit_code(tmp_path: Path) -> None:
    sick = {"healthy": False, "problems": ["sink binding slow > alerts is paused: OSError: nobody answers"]}
    result = CliRunner().invoke(app, ["status", str(written(tmp_path / "results", status=sick))])
    assert result.exit_code == 1
    assert "problem: sink binding slow > alerts is paused: OSError: nobody answers" in result.output


def test_where_nothing_runs_status_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    result = CliRunner().invoke(app, ["status", str(folder)])
    assert result.exit_code == 1
    assert f"nothing runs in {folder}/, and nothing did; start with `meander run -o {folder}`" in result.output
    assert json.loads(CliRunner().invoke(app, ["status", str(folder), "--json"]).output) == {"running": False}
    result = CliRunner().invoke(app, ["status", str(written(folder, phase="ended"))])
    assert result.exit_code == 1
    assert re.search(
        rf"nothing runs in {re.escape(str(folder))}/; the last run ended \d+ s ago after 12 s", result.output
    )
    result = CliRunner().invoke(app, ["status", str(written(folder, written=time.time() - 100))])
    unexpected = (
        rf"nothing runs in {re.escape(str(folder))}/; process {os.getpid()} ended unexpectedly, last seen \d+ s ago"
    )
    assert re.search(unexpected, result.output)


def test_a_run_as_json(tmp_path: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["status", str(written(tmp_path / "r")), "--json"]).output)
    assert (found["running"], found["phase"], found["status"]["ingest"]["rows"]) == (True, "running", 1000)
