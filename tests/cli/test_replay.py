"""`meander replay` ends with an error when it did not do what was asked, and says what."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.local import replay as replaying
from meander.local.replay import PHASES
from meander.local.replay_report import ReplayReport
from meander.run import session
from meander.run.delivery.latency import LatencyHistogram
from meander.run.oracle.comparison import Comparison

WORLD = """
nodes: [{name: s, kind: sensor, slots: 1}, {name: e, kind: edge, slots: 1}, {name: c, kind: cloud, slots: 9}]
links: [{source: s, target: e}, {source: e, target: c}]
streams: [{name: r, schema: "ts timestamp, v double", nodes: [s]}]
sinks: [{name: out, node: c, options: {connector: jsonl}}]
"""
# s - e - c
QUERIES = "CREATE QUERY a AS SELECT v FROM r WHERE v > 1 INTO out; CREATE QUERY b AS SELECT v FROM r INTO out"


def report(taken_in: int, given: int, expected: dict[str, int], steps: int = 7, unchecked: str | None = None) -> Any:
    """Of a replay of two queries; `expected` are the rows of those that were compared with the oracle."""
    status: Any = SimpleNamespace(
        ingest=SimpleNamespace(rows=taken_in),
        delivery=SimpleNamespace(rows=given, sink_bindings={"a > out": None, "b > out": None}),
        totals=SimpleNamespace(steps=steps),
        healthy=True,
        problems=(),
    )
    latency = {phase: LatencyHistogram().percentiles() for phase in PHASES}
    checks = {name: Comparison(rows, 0, 0) for name, rows in expected.items()}
    return ReplayReport((), 0, 1, 2, 2, 1, latency, status, True, checks, unchecked, (), (), (), True)


NOTHING = {"a > out": 0, "b > out": 0}
FAULTS = {
    "nobody has made a step": (report(90, 0, {"a > out": 9, "b > out": 9}, steps=0), "no slot has made a step"),
    "no results": (report(90, 0, {"a > out": 9, "b > out": 9}), "no results, although 90 tuples came in"),
    "not compared": (report(90, 0, {}, unchecked="not asked for"), "no results, although 90 tuples came in"),
    "events touch all queries": (report(90, 0, {}), "no results, although 90 tuples came in"),
    "events touch a query": (report(90, 0, {"a > out": 0}), "no results, although 90 tuples came in"),
    "no tuples": (report(0, 0, NOTHING), "no tuple came in"),
}


def replayed(monkeypatch: pytest.MonkeyPatch, folder: Path, found: ReplayReport) -> tuple[int, str]:
    (folder / "t.yaml").write_text(WORLD)
    (folder / "q.sql").write_text(QUERIES)
    (folder / "e.jsonl").write_text('{"at_ms": 0, "event": "node_removed", "node": "e"}\n')
    monkeypatch.setattr(replaying, "replay_live", lambda *_: found)
    monkeypatch.setattr(session, "start_session", lambda _: SimpleNamespace(stop=lambda: None))
    flags = {"-t": folder / "t.yaml", "-q": folder / "q.sql", "-e": folder / "e.jsonl", "-o": folder / "results"}
    ran = CliRunner().invoke(app, ["replay", *(str(word) for pair in flags.items() for word in pair)])
    return ran.exit_code, ran.output


@pytest.mark.parametrize("what", FAULTS)
def test_a_replay_without_results_ended_as_if_all_were_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    found, words = FAULTS[what]
    code, text = replayed(monkeypatch, tmp_path, found)
    assert code == 1
    assert f"error: the replay did not do what was asked: {words}" in text


@pytest.mark.parametrize(("given", "expected"), [(18, {"a > out": 9, "b > out": 9}), (0, NOTHING), (9, {"a > out": 9})])
def test_a_replay_that_gives_what_the_oracle_gives_is_well_even_if_that_is_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: int, expected: dict[str, int]
) -> None:
    code, text = replayed(monkeypatch, tmp_path, report(90, given, expected))
    assert (code, "error" in text) == (0, False)
