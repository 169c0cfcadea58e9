"""`meander init` and what the other commands say before there is a coordinator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.model.errors import InputError

RING = Path(__file__).parents[2] / "examples" / "topologies" / "ring.yaml"


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_directory_is_made_and_the_next_step_is_said(tmp_path: Path) -> None:
    said = run("init", tmp_path / "here", "-t", RING)
    assert f"`meander up -d {tmp_path / 'here'}`" in said
    assert CoordinatorDirectory(tmp_path / "here").exists
    made = json.loads(run("init", tmp_path / "there", "-t", RING, "--json"))
    assert Path(made["tokens"]).is_file()


@pytest.mark.parametrize(
    "words",
    [["up"], ["list"], ["submit", "SELECT id FROM train INTO alerts"], ["describe", "q"], ["stop", "q"], ["top"]],
)
def test_without_a_directory_commands_say_how_to_make_one(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(InputError, match="make one with `meander init`"):
        run(*words, "-d", tmp_path)


def test_a_directory_where_nobody_runs_says_how_to_start(tmp_path: Path) -> None:
    run("init", tmp_path / "here", "-t", RING)
    with pytest.raises(InputError, match="start it with `meander up`"):
        run("list", "-d", tmp_path / "here")


def test_settings_with_a_mistake_do_not_start(tmp_path: Path) -> None:
    run("init", tmp_path / "here", "-t", RING)
    CoordinatorDirectory(tmp_path / "here").settings.write_text("slotz = 2")
    with pytest.raises(InputError, match="no setting 'slotz'; known settings: slots"):
        run("up", "-d", tmp_path / "here")
