"""Meander beside a user's own Spark session: that one stays as it was, and Meander's results are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


def _child(folder: Path, how: str) -> dict[str, Any]:
    """Spark's sessions are shared in a process, so each case has one of its own."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.run.beside_a_user", str(folder), how]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-4000:]
    said: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return said | {"errors": found.stderr}


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _child(tmp_path_factory.mktemp("beside") / "run", "beside")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _child(tmp_path_factory.mktemp("alone") / "run", "alone")


def test_a_users_session_is_as_it_was(beside: dict[str, Any]) -> None:
    assert beside["is_own"]
    assert beside["before"]["settings"]["spark.sql.shuffle.partitions"] == "199"
    assert beside["before"] == beside["after"]
    assert beside["after"]["views"] == ["mine"]
    assert beside["after"]["is_active"]
    assert (beside["twice"], beside["from_rdd"]) == (42, True)


def test_results_do_not_depend_on_a_users_settings(beside: dict[str, Any], alone: dict[str, Any]) -> None:
    for said in (beside, alone):
        assert (said["problems"], said["drained"], said["lost"], said["double"]) == ([], True, 0, 0)
        assert len(said["load"]) == 36
        assert said["ticks"] == 40
    assert {json.loads(line)["at"] for line in beside["load"]} == {6, 7}  # UTC
    assert beside["load"] == alone["load"]
    assert beside["lake"] == alone["lake"] != []
    assert beside["own"] == alone["own"]
    assert beside["own"]["spark.sql.session.timeZone"] == "UTC"


def test_what_cannot_be_set_any_more_is_said_with_what_it_costs(beside: dict[str, Any], alone: dict[str, Any]) -> None:
    assert alone["limits"] == []
    named = {limit.split()[0] for limit in beside["limits"]}
    assert {"spark.sql.codegen.cache.maxEntries", "spark.driver.extraJavaOptions"} <= named
    assert all(limit in beside["errors"] for limit in beside["limits"])
