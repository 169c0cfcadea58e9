"""Every function over extreme values: nothing fails, and what Spark can compute is what Spark computes."""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.expressions.functions import SCALARS, call
from meander.model.expressions.tree import Call, Column, Expression, Literal, literal, sql
from meander.model.schema import INT, STRING, TIMESTAMP, DataType, Kind
from meander.run.expressions import spark_sql
from meander.run.frames import arrow_type
from meander.run.null_guards import MOST_REPEATED, attempt, groups_of
from tests.model.expressions.every_call import CONSTANTS, TYPES, calls, columns_of, types_of

MOST_ROWS = 600
TEXTS = ["", "a", "abc", "(", "[a", "a\\", "$5", "%", "\\", "utf-8", "hour", "2026-03-01", "1", "-1", '{"a": [1]}']
MORE_TEXTS = ["yyyy-MM-dd", "MONDAY", "Europe/Berlin", "99999999999999999999", "NaN", "http://h/%zz?q=1", "\x00ü", None]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "int": [0, 1, -1, 2, 7, 64, 2**31 - 1, -(2**31), None],
    "bigint": [0, 1, -1, 3, MOST_REPEATED + 1, 2**63 - 1, -(2**63), None],
    "float": [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 3.4e38, None],
    "double": [0.0, -0.0, 1.5, -2.5, 1e20, -1e20, float("inf"), float("-inf"), float("nan"), 5e-324, None],
    "string": [*TEXTS, *MORE_TEXTS],
    "timestamp": [
        0,
        -1,
        1_772_323_200_000_000,
        253_402_300_799_999_999,
        -62_135_596_800_000_000,
        2**62,
        -(2**62),
        None,
    ],
    "date": [0, -1, 20_513, 2_932_896, -719_162, 2**30, -(2**30), None],
    "binary": [b"", b"\xff\xfe", b"abc", None],
    "array<double>": [[], [1.0, float("nan"), None], [0.0, -0.0], None],
    "array<string>": [[], ["a", None, "b"], ["a"], None],
    "array<int>": [[], [1, None], None],
    "array<array<int>>": [[], [[1], [2, None]], [None, [1]], None],
}


def test_a_name_for_every_letter() -> None:
    letters = {c for s in SCALARS.values() for takes in s.takes for c in takes} - set("?*")
    assert letters == {*TYPES, *CONSTANTS}


def rows_of(columns: Sequence[tuple[str, str]]) -> pa.Table:
    """All combinations of extreme values, or as many of them as there is time for."""
    combinations = list(itertools.product(*(VALUES[t] for _, t in columns)))
    if len(combinations) > MOST_ROWS:
        combinations = random.Random(1).sample(combinations, MOST_ROWS)
    arrays = [
        pa.array([c[i] for c in combinations], pa.int64() if t == "timestamp" else pa.int32() if t == "date" else None)
        if t in ("timestamp", "date")
        else pa.array([c[i] for c in combinations], arrow_type(DataType.parse(t)))
        for i, (_, t) in enumerate(columns)
    ]
    return pa.table(arrays, names=[n for n, _ in columns]) if columns else pa.table({"nothing": [0]})


def as_text(text: str, type_: DataType) -> str:
    """A form that tells all values apart."""
    match type_.kind:
        case Kind.ARRAY:
            return f"to_json({text})"
        case Kind.BINARY:
            return f"hex({text})"
        case Kind.TIMESTAMP:
            return f"CAST(unix_micros({text}) AS STRING)"
        case Kind.DATE:
            return f"CAST(unix_date({text}) AS STRING)"
    return f"CAST({text} AS STRING)"


ONLY_OURS = ("repeat", "lpad", "rpad", "array_repeat", "array_insert", "regexp_substr")
"""Functions that give null where Spark would make something huge, or cannot be attempted as they are."""


def test_nothing_fails_and_what_spark_can_compute_is_what_spark_computes(spark: SparkSession) -> None:
    grouped: dict[tuple[tuple[str, str], ...], list[Call]] = defaultdict(list)
    for each in calls():
        grouped[columns_of(each)].append(each)
    wrong: list[str] = []
    for columns, group in grouped.items():
        frame = spark.createDataFrame(rows_of(columns))
        times = {"timestamp": "timestamp_micros", "date": "date_from_unix_date"}
        items = [f"{times.get(t, '')}({n}) AS {n}" for n, t in columns] or ["*"]
        wrong += _wrong(frame.selectExpr(*items), group)
    assert not wrong, "\n".join(wrong)


def _wrong(frame: Any, group: Sequence[Call]) -> list[str]:
    try:
        # apart from each other: what is the same in both would be computed once for both, unguarded
        ours = frame.selectExpr("*", *(f"{_ours(c)} AS c{i}" for i, c in enumerate(group))).toArrow()
        theirs = frame.selectExpr("*", *(f"{_theirs(c)} AS c{i}" for i, c in enumerate(group))).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if len(group) == 1:
            return [f"{sql(group[0])} ({types_of(group[0])}): {_cause(str(error))}"]
        half = len(group) // 2
        return [*_wrong(frame, group[:half]), *_wrong(frame, group[half:])]
    found = []
    for i, each in enumerate(group):
        for row, (a, b) in enumerate(zip(ours[f"c{i}"].to_pylist(), theirs[f"c{i}"].to_pylist(), strict=True)):
            if a != b and not (a is None and each.function in ONLY_OURS):
                given = {n: ours[n][row] for n, _ in columns_of(each)}
                found.append(f"{sql(each)} ({types_of(each)}) over {given}: {a!r}, Spark says {b!r}")
                break
    return found


def _cause(error: str) -> str:
    return "".join(re.findall(r"Driver stacktrace.*|Caused by: .*|\\[[A-Z_.]+\\].*", error)[-1:] or [error])[:200]


def _ours(each: Call) -> str:
    return as_text(spark_sql(each), each.type)


def _theirs(each: Call) -> str:
    letters = SCALARS[each.function].letters(each.args)
    args = tuple(_as_spark_wants(*pair) for pair in zip(each.args, letters, strict=True))
    plain = sql(Call(each.function, args, each.type)).replace("CAST(", "try_cast(")
    theirs = attempt(as_text(plain, each.type), STRING)
    return f"CASE WHEN {spark_sql(each)} IS NOT NULL THEN {theirs} END" if each.function in ONLY_OURS else theirs


def _as_spark_wants(arg: Expression, letter: str) -> Expression:
    match letter, arg.type:
        case "j", DataType(Kind.BIGINT):
            return Call("cast", (arg,), INT)
        case "u", DataType(Kind.DATE):
            return Call("cast", (arg,), TIMESTAMP)
    return arg


CONSTANT_CALLS = [
    ("like", "%a_", False),
    ("like", "100\\%", False),
    ("like", "a\\", True),
    ("like", "a\\b", True),
    ("rlike", "^a+(b|c)*[0-9]{2,3}$", False),
    ("rlike", "(", True),
    ("rlike", "a{1,2}{3}", True),
    ("rlike", "(?<name>a)", True),
    ("rlike", "[[a]&&b]", True),
    ("split", ",", False),
    ("split", "[", True),
    ("regexp_extract_all", "a", True),
    ("regexp_extract_all", "(a)", False),
]


@pytest.mark.parametrize(("function", "pattern", "is_guarded"), CONSTANT_CALLS)
def test_a_constant_that_cannot_fail_costs_nothing(function: str, pattern: str, is_guarded: bool) -> None:
    text = spark_sql(call(function, Column("s", STRING), literal(pattern)))
    assert ("try_to_binary" in text) is is_guarded


def test_groups_that_are_not_there_are_guarded() -> None:
    column = Column("s", STRING)
    guarded = [
        "try_to_binary" in spark_sql(call("regexp_extract", column, literal("(a)(b)"), literal(group)))
        for group in (0, 1, 2, 3, -1)
    ]
    assert guarded == [False, False, False, True, True]
    replaced = [spark_sql(call("regexp_replace", column, literal("a"), literal(r))) for r in ("b", "$5")]
    assert ["try_to_binary" in text for text in replaced] == [False, True]


def test_patterns_that_are_certain_are_patterns_to_spark_too(spark: SparkSession) -> None:
    signs = [
        "a",
        "b",
        "(",
        ")",
        "[",
        "]",
        "^",
        "$",
        ".",
        "*",
        "+",
        "?",
        "{2}",
        "{1,}",
        "|",
        "\\d",
        "\\.",
        "-",
        "\\b",
        "&&",
    ]
    chosen = random.Random(7)
    patterns = {"".join(chosen.choices(signs, k=chosen.randint(1, 8))) for _ in range(4_000)}
    certain = sorted(p for p in patterns if groups_of(p) is not None)
    assert len(certain) > 200
    frame = spark.createDataFrame(pa.table({"p": certain, "s": ["aab-1"] * len(certain)}))
    assert frame.where("(s RLIKE p) IS NULL").count() == 0


def test_literals_of_other_types_are_left_alone() -> None:
    assert spark_sql(call("abs", Literal(-1.5, DataType(Kind.DOUBLE)))) == "abs(-1.5D)"


@pytest.mark.parametrize("function", ["like", "ilike"])
def test_like_with_many_wildcards_means_the_same_and_does_not_go_back(spark: SparkSession, function: str) -> None:
    values = ["abc", "xaybzc", "a.b+c", "acb", "", "AxBxC", "aéb_c", "a\nb\nc", "%a%b%c", "aabbcc", "a" * 60]
    patterns = ["%a%b%c", "a%b%c%", "%%%", "%a_b%c%", "%a%\\_%c", "a%a%a%", "%é%_%c", "%a" * 25 + "%b"]
    frame = spark.createDataFrame([(value,) for value in values], "s string")
    ours = [spark_sql(call(function, Column("s", STRING), literal(pattern))) for pattern in patterns]
    assert sum("RLIKE" in text for text in ours) == len(patterns) - (function == "ilike")
    found = frame.selectExpr("s", *ours).collect()
    for row in found:
        for pattern, value in zip(patterns, row[1:], strict=True):
            assert value is like(row[0], pattern, ignore_case=function == "ilike"), (row[0], pattern)


def like(text: str, pattern: str, *, ignore_case: bool) -> bool:
    """A slow LIKE of few lines: which prefixes of the text each sign of the pattern can reach."""
    text, pattern = (text.lower(), pattern.lower()) if ignore_case else (text, pattern)
    reached, signs = {0}, iter(pattern)
    for sign in signs:
        if sign == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
            continue
        wanted = next(signs) if sign == "\\" else None if sign == "_" else sign
        reached = {i + 1 for i in reached if i < len(text) and wanted in (None, text[i])}
    return len(text) in reached
