"""`meander place` from the command line: placements, replays, reasons, and what happens with bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from meander.cli.main import app
from meander.local.placement_replay import batches_of, engine_of, read_setting, waiting
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.placement import violations
from meander.place.mechanisms import MECHANISMS, mechanism

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = EXAMPLES / "topologies" / "ring.yaml"
SCENARIOS = Path(os.environ.get("MEANDER_DATA", Path(__file__).parents[3] / "shared" / "data")) / "isqd"
TOPOLOGY = """
nodes:
  - {name: sensor, kind: sensor, slots: 0}
  - {name: edge, kind: edge, slots: 2}
  - {name: spare, kind: edge, slots: 2}
  - {name: cloud, kind: cloud, slots: 2}
links:
  - {source: sensor, target: edge, latency_ms: 8}
  - {source: edge, target: cloud, latency_ms: 8}
  - {source: sensor, target: spare, latency_ms: 9}
  - {source: spare, target: cloud, latency_ms: 9}
streams:
  - {name: s, schema: "ts timestamp, v double", event_time: ts, nodes: [sensor]}
sinks:
  - {name: out, node: cloud}
"""
QUERY = "SELECT ts, v FROM s WHERE v < 3 INTO out"
# sensor - edge - cloud, and a slow way round over spare


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    (tmp_path / "slow.sql").write_text(QUERY)
    return tmp_path


def write_events(folder: Path, *events: dict[str, Any] | str) -> Path:
    path = folder / "events.jsonl"
    path.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events))
    return path


def place(files: Path, *more: str | Path) -> int:
    return run("place", "-t", files / "t.yaml", "-q", files / "slow.sql", *more)


def test_places_examples_on_the_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "placement.json"
    assert run("place", "-t", RING, "-q", EXAMPLES / "queries", "-o", output) == 0
    shown = capsys.readouterr().out
    assert "5 queries in " in shown
    assert "placed by bottom_up" in shown
    written = json.loads(output.read_text())
    assert {q["query"] for q in written["queries"]} >= {"slow_trains", "road_load"}
    assert all(operator["node"] for operator in written["operators"])
    assert all(len(route["nodes"]) > 1 for route in written["routes"])


@pytest.mark.parametrize("name", [m.name for m in MECHANISMS])
def test_every_mechanism_places_the_small_world(files: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert place(files, "-m", name, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["mechanism"], shown["waiting"], shown["valid"]) == (name, [], True)


def test_says_what_moved_and_why(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = write_events(
        files,
        {"at_ms": 1000, "event": "link_removed", "source": "edge", "target": "cloud"},
        {"at_ms": 2000, "event": "link_added", "source": "edge", "target": "cloud"},
        {"at_ms": 3000, "event": "query_added", "query": "more", "sql": "SELECT v FROM s WHERE v > 70 INTO out"},
        {"at_ms": 4000, "event": "query_removed", "query": "slow"},
    )
    assert place(files, "-e", events, "--explain") == 0
    shown = capsys.readouterr().out
    assert "1000 ms  operator 2 (filter v < 3.0D) moved from edge to spare: link edge to cloud removed" in shown
    assert "2000 ms  operator 2 (filter v < 3.0D) moved from spare to edge: link edge to cloud added" in shown
    assert "4000 ms  operator 2 (filter v < 3.0D) removed from edge: query slow removed" in shown
    assert "1 queries in 1 shared plans" in shown
    assert "5 events in 5 batches" in shown


def test_waiting_operators_are_listed_with_their_reasons(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = write_events(files, *({"at_ms": 5, "event": "node_removed", "node": n} for n in ("edge", "spare")))
    assert place(files, "-e", events) == 0
    shown = capsys.readouterr().out
    assert "waiting: " in shown
    assert "(filter v < 3.0D): " in shown
    assert "no path leads from sensor to cloud" in shown


def test_batches_by_count_or_by_time() -> None:
    times = [0, 0, 1, 2, 2, 2]
    events: list[ChangeEvent] = [QueryAdded(t, None) for t in times]  # type: ignore[arg-type]
    assert [len(b) for b in batches_of(events, None)] == [2, 1, 3]
    assert [len(b) for b in batches_of(events, 4)] == [4, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "magic"], "error: no mechanism 'magic'; known mechanisms: bottom_up, "),
        (["--control", "hopeful"], "error: no concurrency control 'hopeful'; known concurrency controls: "),
        (["-q", "nowhere.sql"], "error: nowhere.sql: cannot read the query file"),
        (["-e", "nowhere.jsonl"], "error: nowhere.jsonl: cannot read this file"),
    ],
)
def test_bad_options_end_in_one_sentence(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert place(files, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(message)
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_an_event_for_an_unknown_node_ends_the_replay(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = write_events(
        files,
        {"at_ms": 1, "event": "capacity_changed", "node": "edge", "slots": 1},
        {"at_ms": 1, "event": "node_removed", "node": "egde"},
    )
    output = files / "placement.json"
    assert place(files, "-e", events, "-o", output) == 2
    shown = capsys.readouterr()
    assert shown.err == (
        "error: batch 1 at 1 ms, of which nothing was applied, event 2 of 2: no node 'egde'; "
        "known nodes: edge, cloud, sensor, spare\n"
    )
    assert not output.exists()


def test_a_broken_line_is_named_before_anything_happens(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = write_events(files, {"at_ms": 1, "event": "node_removed", "node": "edge"}, '{"at_ms": 2, "eve')
    assert place(files, "-e", events, "--explain") == 2
    shown = capsys.readouterr()
    assert f"error: {events}, line 2" in shown.err
    assert shown.out == ""


def test_without_queries_there_is_nothing_to_place(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("place", "-t", files / "t.yaml") == 2
    assert "there is nothing to place; give --queries" in capsys.readouterr().err
    assert run("place", "-t", files) == 2
    assert "this folder has no fixed_topology.json" in capsys.readouterr().err
    (files / "empty").mkdir()
    assert run("place", "-t", files / "t.yaml", "-q", files / "empty") == 2
    assert "no query in this folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not SCENARIOS.is_dir(), reason=f"no scenarios in {SCENARIOS}; set MEANDER_DATA to the folder above")
@pytest.mark.parametrize(
    "name",
    [
        "stateful_16src_2change",
        "stateful_4src_2change_16intermediate",
        "stateful_4src_2change_full",
        "stateful_4src_2change_tree",
        "stateless_16src_1change",
        "stateless_8src_1change_rate",
    ],
)
def test_published_scenarios_stay_valid_after_every_batch(name: str) -> None:
    setting = read_setting(SCENARIOS / name, None, None)
    engine = engine_of(setting, mechanism("bottom_up"), amenders=1, control="optimistic", seed=0)
    catalog = engine.catalog
    engine.run([QueryAdded(0, q) for q in setting.queries])
    count = 0
    for batch in batches_of(setting.events, None):
        engine.run(batch)
        count += 1
        assert violations(catalog.plan, catalog.placement, catalog.topology) == []
    assert count >= 120
    assert waiting(catalog) == {}
