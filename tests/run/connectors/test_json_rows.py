"""Values of results as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa

from meander.run.connectors.json_rows import json_lines, json_rows

UTC_MICROS = pa.timestamp("us", "UTC")


def test_times_keep_their_microseconds_and_know_years_beyond_9999() -> None:
    ordinary = [datetime(2026, 3, 1, 12, 30, 0, 5000, UTC), datetime(2026, 3, 1, 12, 30, 0, 5001, UTC), None]
    micros = pa.array(ordinary, UTC_MICROS).cast(pa.int64()).to_pylist()
    times = pa.array([*micros, 253_402_300_800_000_000, 2**63 - 1, -(2**62)], pa.int64()).cast(UTC_MICROS)
    days = pa.array([0, -719_528, 2_932_897, None, 2**31 - 1, 1], pa.int32()).cast(pa.date32())
    rows = json_rows(pa.table({"at": times, "day": days}))
    assert [row["at"] for row in rows] == [
        "2026-03-01T12:30:00.005Z",
        "2026-03-01T12:30:00.005001Z",
        None,
        "10000-01-01T00:00:00.000Z",
        "294247-01-10T04:00:54.775807Z",
        "-144169-06-28T09:59:32.612096Z",
    ]
    assert [row["day"] for row in rows[:4]] == ["1970-01-01", "0000-01-01", "10000-01-01", None]
    assert date.fromisoformat(rows[5]["day"]) == date(1970, 1, 2)


def test_nested_values_and_those_that_json_lacks() -> None:
    table = pa.table(
        {
            "list": pa.array([[1.5, float("nan"), None], None, []], pa.list_(pa.float64())),
            "times": pa.array([[0], [None], None], pa.list_(pa.timestamp("us", "UTC"))),
            "deep": pa.array([[[1], None], [[]], None], pa.list_(pa.list_(pa.int32()))),
            "bytes": pa.array([b"\x00\xff", None, b""], pa.binary()),
            "number": pa.array([float("inf"), float("-inf"), 0.5]),
        }
    )
    for part in (table, pa.concat_tables([table.slice(0, 1), table.slice(1)])):
        assert [json.loads(line) for line in json_lines(part).splitlines()] == [
            {"list": [1.5, "NaN", None], "times": ["1970-01-01T00:00:00.000Z"], "deep": [[1], None], "bytes": "AP8=",
             "number": "Infinity"},
            {"list": None, "times": [None], "deep": [[]], "bytes": None, "number": "-Infinity"},
            {"list": [], "times": None, "deep": None, "bytes": "", "number": 0.5},
        ]  # fmt: skip
    assert json_rows(table.slice(1, 1))[0]["deep"] == [[]]
