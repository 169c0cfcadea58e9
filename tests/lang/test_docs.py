"""The reference pages: their queries are valid, and their lists of functions are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meander.lang import load_queries, sql
from meander.lang.reader import RESERVED
from meander.model.conditions import Fact
from meander.model.demands import Metric
from meander.model.expressions.functions import AGGREGATES, SCALARS
from tests.lang.streams import SINKS, STREAMS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SQL = (REFERENCE / "sql.md").read_text(encoding="utf-8")
FLUENT = (REFERENCE / "fluent.md").read_text(encoding="utf-8")
DEMANDS = (REFERENCE / "demands.md").read_text(encoding="utf-8")
EXPRESSIONS = (REFERENCE / "expressions.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("text", blocks(SQL, "sql") + blocks(DEMANDS, "sql"))
def test_sql_blocks_are_valid(text: str) -> None:
    assert sql(text, STREAMS, SINKS).queries


@pytest.mark.parametrize("text", blocks(FLUENT, "python"))
def test_python_blocks_are_valid(text: str, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(text, encoding="utf-8")
    assert load_queries(path, STREAMS, SINKS).queries


def test_every_function_is_listed() -> None:
    operators = {
        "and",
        "or",
        "not",
        "between",
        "in",
        "ilike",
        "like",
        "rlike",
        "is_null",
        "negative",
        "case",
        "element_at_index",
    }
    functions = {f for f in (*SCALARS, *AGGREGATES) if f[0].isalpha()} - operators
    assert {f for f in functions if not re.search(rf"`{f}[`(]", EXPRESSIONS)} == set()


def test_every_reserved_word_and_metric_is_listed() -> None:
    listed = SQL.split("Reserved words: `")[1].split("`")[0].split()
    assert set(listed) == {part for word in RESERVED for part in word.lower().split()}
    assert all(f"`{metric.value}`" in SQL and f"`{metric.value}`" in DEMANDS for metric in Metric)
    assert all(f"`{fact.value}`" in DEMANDS for fact in Fact)
