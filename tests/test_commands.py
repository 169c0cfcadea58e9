"""The table of commands says what they say of themselves, and a command starts without what it does not need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from meander.cli.commands import COMMANDS, MECHANISM_NAMES, CommandEntry
from meander.cli.main import app
from meander.place.mechanisms import MECHANISMS

HEAVY = frozenset(
    {"pyspark", "py4j", "numpy", "scipy", "numba", "pyarrow", "sqlglot", "highspy"}
    | {"fastapi", "starlette", "uvicorn", "pydantic", "cryptography"}
)
"""Libraries that take long to load."""
PLANNERS = frozenset({"explain", "place", "nova", "topology", "run", "replay", "bench", "testbed"})
"""Commands that read topologies or plan by themselves, and so need some of them."""
LOADED = "import json, sys; {}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"


def loaded(statement: str) -> set[str]:
    """The libraries that are loaded after a statement in a process of its own."""
    run = subprocess.run([sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: str(entry.name))
def test_the_table_says_what_the_command_says(entry: CommandEntry) -> None:
    root: Any = typer.main.get_command(app)
    command = root.load(entry.name)
    assert command.name == entry.name
    assert re.sub(r"\s+", " ", command.help.split("\n\n")[0]) == entry.about


def test_help_loads_no_command() -> None:
    calls = "from meander.cli.main import app; app(['--help'], standalone_mode=False)"
    found = loaded(calls)
    assert "typer" in found
    assert found & HEAVY == set()


def test_commands_that_ask_the_coordinator_start_without_libraries_that_take_long() -> None:
    modules = sorted({entry.module for entry in COMMANDS if entry.name not in PLANNERS})
    assert len(modules) > 10
    assert loaded(f"import {', '.join(modules)}") & HEAVY == set()


def test_commands_that_plan_start_without_spark_solvers_and_servers() -> None:
    modules = sorted({entry.module for entry in COMMANDS if entry.name in PLANNERS and "lab" not in entry.module})
    assert len(modules) > 4
    assert loaded(f"import {', '.join(modules)}") & HEAVY == {"numpy", "scipy", "numba", "sqlglot"}


def test_the_mechanisms_that_help_names_are_those_of_the_table() -> None:
    assert tuple(m.name for m in MECHANISMS) == MECHANISM_NAMES


def test_a_query_alone_is_explained_without_what_topologies_need() -> None:
    text = "CREATE STREAM cars (ts timestamp, id bigint); SELECT id FROM cars INTO out"
    found = loaded(f"from meander.cli.main import app; app(['explain', '{text}'], standalone_mode=False)")
    assert found & {"numpy", "numba", "scipy", "pyspark"} == set()
