"""What `meander run` refuses before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.model.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("flag", "value", "named"),
    [("--mechanism", "nvoa", "nova, bottom_up"), ("--rebinding", "stedy", "steady, greedy, off")],
)
def test_a_name_that_is_not_known_is_refused_with_the_known_ones(
    flag: str, value: str, named: str, tmp_path: Path
) -> None:
    query = EXAMPLES / "queries" / "slow_trains.sql"
    topology = EXAMPLES / "topologies" / "ring.yaml"
    output = tmp_path / "results"
    arguments = ["run", "-t", str(topology), "-q", str(query), "-o", str(output), flag, value]
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, InputError)
    assert value in str(found.exception)
    assert named in str(found.exception)
    assert not output.exists()
