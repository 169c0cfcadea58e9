"""Query files: names, and errors that name the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.lang import load_queries
from meander.model.errors import InputError
from tests.lang.streams import SINKS, STREAMS

HEADER = "from meander.lang import query\n\n@query\ndef slow(env):\n"


def error_of(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_queries(path, STREAMS, SINKS)
    return str(caught.value).removeprefix(f"{path}")


def test_a_query_has_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "slow.sql"
    path.write_text("SELECT * FROM train INTO alerts", encoding="utf-8")
    assert [q.id for q in load_queries(path, STREAMS, SINKS).queries] == ["slow"]


def test_a_query_has_the_name_of_its_function(tmp_path: Path) -> None:
    path = tmp_path / "queries.py"
    path.write_text(HEADER + "    return env.stream('train').into('alerts')\n", encoding="utf-8")
    assert [q.id for q in load_queries(path, STREAMS, SINKS).queries] == ["slow"]


def test_sql_errors_name_the_file(tmp_path: Path) -> None:
    message = error_of(tmp_path / "a.sql", "SELECT *\nFROM trian INTO alerts")
    assert message.startswith(", query, line 2, column 6: no stream 'trian'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "    return env.stream('trian').into('alerts')\n", ", line 5, stream('trian'): no stream 'trian'"),
        (
            HEADER + "    return env.stream('train')\n",
            "query 'slow' returns no finished query; end it with .into(sink)",
        ),
        (HEADER + "    return 1 / 0\n", ", line 5: ZeroDivisionError: division by zero"),
        ("def slow(env:\n", ", line 1: not valid Python: '(' was never closed"),
        ("x = 1\n", ": no query in this file; mark the functions that build one with @query"),
    ],
)
def test_python_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    assert message in error_of(tmp_path / "a.py", text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the query file: No such file"):
        load_queries(tmp_path / "none.sql")
