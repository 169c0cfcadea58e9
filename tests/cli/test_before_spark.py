"""What commands refuse before they start Spark: it takes seconds to start, and its answers are longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.cli.up import options_of
from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.directory.settings import read_settings
from meander.model.errors import InputError
from meander.run import session

TOPOLOGY = """
nodes:
  - {name: sensor, kind: sensor, slots: 0}
  - {name: edge, kind: edge, slots: 2}
  - {name: cloud, kind: cloud, slots: 2}
links:
  - {source: sensor, target: edge, latency_ms: 1}
  - {source: edge, target: cloud, latency_ms: 1}
streams:
  - {name: s, schema: "ts timestamp, v double", event_time: ts, nodes: [sensor], options: {SOURCE}}
sinks:
  - {name: out, node: cloud, options: {SINK}}
"""
# sensor - edge - cloud
QUERY = "SELECT ts, v FROM s WHERE v < 3 INTO out"
EVENTS = '{"at_ms": 1000, "event": "link_removed", "source": "edge", "target": "cloud"}\n'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "_prepare_environment", started)
    monkeypatch.setattr(session, "start_session", started)
    _write(tmp_path)
    (tmp_path / "q.sql").write_text(QUERY)
    (tmp_path / "events.jsonl").write_text(EVENTS)
    (tmp_path / "file").write_text("")
    return tmp_path


def _write(folder: Path, source: str = "{connector: random}", sink: str = "{}") -> None:
    text = TOPOLOGY.replace("{SOURCE}", source).replace("{SINK}", sink)
    (folder / "world.yaml").write_text(text)


def _refused(arguments: list[str]) -> str:
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, InputError), (found.exception, found.output)
    return str(found.exception)


def _replay(world: Path, *more: str) -> list[str]:
    given = ("-t", "world.yaml"), ("-q", "q.sql"), ("-e", "events.jsonl")
    files = [text for flag, name in given for text in (flag, str(world / name))]
    return ["replay", *files, "-o", str(world / "results"), *more]


def _run(world: Path, *more: str) -> list[str]:
    return ["run", "-t", str(world / "world.yaml"), "-q", str(world / "q.sql"), "-o", str(world / "results"), *more]


@pytest.mark.parametrize(
    ("flag", "value", "named"),
    [
        ("--state", "rpelay", "no state strategy 'rpelay'; known state strategies: replay, migration_query"),
        ("--protocol", "isdq", "isqd"),
        ("--mechanism", "botom_up", "bottom_up"),
        ("--quiet", "soon", "soon"),
        ("--output", "file", "this is a file, not a folder"),
    ],
)
def test_a_replay_is_refused_by_a_value_before_spark_starts(world: Path, flag: str, value: str, named: str) -> None:
    chosen = str(world / value) if flag == "--output" else value
    assert named in _refused(_replay(world, flag, chosen))


@pytest.mark.parametrize(
    ("flag", "value", "named"),
    [
        ("--for", "soon", "soon"),
        ("--output", "file", "this is a file, not a folder"),
        ("--late", "file", "this is a file, not a folder"),
    ],
)
def test_a_run_is_refused_by_a_value_before_spark_starts(world: Path, flag: str, value: str, named: str) -> None:
    chosen = value if flag == "--for" else str(world / value)
    assert named in _refused(_run(world, flag, chosen))


@pytest.mark.parametrize(
    ("source", "sink", "named"),
    [
        ("{connector: rnadom}", "{}", "no connector 'rnadom'"),
        ("{connector: random, raneg: 3}", "{}", "raneg"),
        ("{connector: random}", "{connector: http}", "url"),
    ],
)
@pytest.mark.parametrize("command", [_run, _replay])
def test_sources_and_sinks_that_cannot_be_are_refused_before_spark_starts(
    world: Path, command: object, source: str, sink: str, named: str
) -> None:
    _write(world, source, sink)
    assert named in _refused(command(world))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--rpc-listen", "nowhere"], "write host:port"),
        (["--rpc-listen", "0.0.0.0:99999"], "write host:port"),
        (["--rpc-address", "hub:7070"], "write grpc://host:port"),
        (["--rebinding", "stedy"], "steady"),
        (["--session-timeout", "soon"], "soon"),
    ],
)
def test_a_coordinator_is_refused_by_a_value_before_spark_starts(world: Path, more: list[str], named: str) -> None:
    place = ["--dir", str(world / "home"), "-t", str(world / "world.yaml"), "--port", "0"]
    assert named in _refused(["up", *place, *more])


def test_a_coordinator_whose_source_cannot_be_is_refused_before_spark_starts(world: Path) -> None:
    _write(world, "{connector: rnadom}")
    place = ["--dir", str(world / "home"), "-t", str(world / "world.yaml"), "--port", "0"]
    assert "no connector 'rnadom'" in _refused(["up", *place])


def test_help_names_all_state_strategies() -> None:
    from meander.reconfigure.state import STATE_STRATEGIES

    shown = CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "300"}).output
    assert [s.name for s in STATE_STRATEGIES if s.name not in shown] == []


def test_amenders_come_from_the_settings_or_a_flag_and_fewer_than_one_are_refused(world: Path) -> None:
    home = create(world / "home", world / "world.yaml").directory
    (home / "meander.toml").write_text("amenders = 0")
    said = _refused(["up", "--dir", str(home)])
    assert "meander.toml" in said
    assert "amenders must be at least 1, not 0; leave it out" in said
    assert CliRunner().invoke(app, ["up", "--dir", str(home), "--amenders", "0"]).exit_code == 2
    (home / "meander.toml").write_text("amenders = 3")
    assert options_of(read_settings(CoordinatorDirectory(home))).amenders == 3
    assert options_of({}).amenders is None
