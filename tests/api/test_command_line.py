"""The command line against a coordinator that runs: what people type, and what they read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.api.coordinator import Coordinator
from meander.cli.changes import read_events
from meander.cli.client import connect
from meander.cli.main import app
from meander.model.errors import InputError
from meander.reconfigure.agent.failover import GONE
from meander.run.failures import Cause
from meander.run.fragments.routing import Pause
from tests.api.conftest import Until


@pytest.fixture
def typed(coordinator: Coordinator) -> Any:
    """Runs a command on the coordinator's directory and gives what it printed."""

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "-d", str(coordinator.home.directory)])
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


def test_a_query_from_submit_to_stop(typed: Any, tmp_path: Path, until: Until) -> None:
    file = tmp_path / "typed.sql"
    file.write_text("SELECT id, value FROM noise WHERE value >= 0 INTO side DEMAND hops <= 9")
    assert "query typed is running" in typed("submit", str(file), "--wait", "90s")
    listed = json.loads(typed("list", "--json"))
    assert "typed" in {q["id"] for q in listed}
    assert "typed" in typed("list")
    until(lambda: json.loads(typed("describe", "typed", "--json"))["newest"])
    shown = typed("describe", "typed")
    assert "demand hops <= 9" in shown
    assert "source noise at s0" in shown
    assert "demands latency < 5000 ms" in typed("demand", "set", "typed", "latency < 5 s")
    assert "demands nothing" in typed("demand", "set", "typed")
    assert "stopping" in typed("stop", "typed")
    until(lambda: "typed" not in {q["id"] for q in json.loads(typed("list", "--json"))})


def test_changes_are_planned_made_and_looked_up(typed: Any) -> None:
    planned = typed("plan", "node_removed", "node=s2")
    assert "nothing was changed" in planned
    assert "node s2 removed" in planned
    made = typed("events", "node_added", "name=typed-1", "kind=edge", "slots=3")
    assert "node_added typed-1" in made
    assert "node_added typed-1" in typed("events", "--last", "5")
    found = json.loads(typed("events", '{"event": "node_removed", "node": "typed-1"}', "--json"))
    assert found[0]["unplaced"] == {}


def test_a_node_is_removed_restored_and_forgotten(typed: Any) -> None:
    assert "node s2 removed" in typed("node", "remove", "s2", "--dry-run")
    assert "s2" not in typed("node", "list", "--removed")
    typed("node", "remove", "s2")
    assert "removed; comes back with 1 link" in typed("node", "list", "--removed")
    assert "this would happen" in typed("node", "restore", "s2", "--dry-run")
    typed("node", "restore", "s2")
    assert {n["name"] for n in json.loads(typed("node", "list", "--json")) if n["alive"]} >= {"s2", "e0"}
    typed("events", "node_added", "name=typed-2", "kind=edge", "slots=3")
    typed("node", "remove", "typed-2")
    assert "forgotten: typed-2" in typed("node", "forget", "typed-2")
    assert "typed-2" not in typed("node", "list")


def test_what_is_paused_goes_on_when_somebody_says_so(typed: Any, coordinator: Coordinator) -> None:
    host = coordinator.parts.host
    failed, gone = list(host.routing.fragments)[:2]
    host.routing.pause(failed, Pause("a function of a user raised", Cause.DATA))
    host.routing.pause(gone, f"{GONE}: s9")
    assert host.feeding.ingest is not None
    host.feeding.ingest._tasks["noise"]._pause("the cable is out")
    assert "nothing called 'nobody' was paused" in typed("resume", "nobody")
    assert f"home: fragment {failed} goes on" in typed("resume", f"fragment {failed}")
    assert failed not in host.routing.paused
    assert "home: stream noise goes on" in typed("resume")
    assert host.feeding.ingest.metrics().streams["noise"].paused is None
    assert list(host.routing.paused) == [gone]  # waits for its node
    host.routing.resume(gone)
    assert all(each["resumed"] == [] for each in json.loads(typed("resume", "--json")))
    assert "nothing was paused" in typed("resume")


def test_an_operator_is_moved_and_released(typed: Any, coordinator: Coordinator) -> None:
    dag = json.loads(typed("describe", "steady", "--json"))["dag"]
    free = next(o for o in dag["operators"] if o["kind"] not in ("source", "sink"))
    number = str(free["id"])
    assert "operators placed anew" in typed("move", number, "e1")
    assert json.loads(typed("move", number, "--release", "--json"))["unplaced"] == {}
    for words in ((), ("e1", "--release")):
        refused = CliRunner().invoke(app, ["move", number, *words, "-d", str(coordinator.home.directory)])
        assert "or --release" in str(refused.exception)


def test_decisions_and_measures_are_shown(typed: Any) -> None:
    assert isinstance(json.loads(typed("adapt", "log", "--json")), list)
    assert "set for this query" in typed("adapt", "set", "steady", "stay=1min", "margin=0.3")
    assert "queries with settings of their own: steady" in typed("adapt", "show")
    assert "taken back: margin" in typed("adapt", "reset", "steady", "margin")
    assert re.search(r"mechanisms +all +default", typed("adapt", "show"))
    typed("adapt", "set", "stay=2min", "churn_levels=nan", code=1)
    assert re.search(r"stay +5s +default", typed("adapt", "show"))
    exchanged = {m["name"]: m["exchanged_bytes"] for m in json.loads(typed("adapt", "mechanisms", "--json"))}
    placing = next(q["mechanism"] for q in json.loads(typed("list", "--json")) if q["id"] == "steady")
    assert exchanged[placing]["placement"] > 0
    assert re.search(rf"{placing} .*{exchanged[placing]['placement']:,}.*steady", typed("adapt", "mechanisms"))
    assert json.loads(typed("adapt", "reset", "steady", "--json"))["reset"] == ["stay"]
    assert "tuples_in" in typed("top", "--for", "1ms", "--json")


def test_mistakes_are_told_in_one_sentence(typed: Any, coordinator: Coordinator, tmp_path: Path) -> None:
    client = connect(coordinator.home.directory, None, None)
    with pytest.raises(InputError, match="no query 'nobody'; known queries: "):
        client.get("/queries/nobody")
    with pytest.raises(InputError, match="meander init"):
        connect(tmp_path, None, None)
    with pytest.raises(InputError, match="no coordinator answers"):
        connect(coordinator.home.directory, "http://127.0.0.1:9", None).get("/queries")
    with pytest.raises(InputError, match="is no address"):
        connect(tmp_path, "nonsense", "token")
    with pytest.raises(InputError, match="key=value"):
        read_events(["node_removed", "station"])
    result = CliRunner().invoke(app, ["submit", "query.py", "-d", str(coordinator.home.directory)])
    assert isinstance(result.exception, InputError)
    assert "only SQL" in str(result.exception)
