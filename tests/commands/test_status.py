"""`meander status` names what waits, with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli import app

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
