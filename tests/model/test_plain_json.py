"""Operators as plain values: what comes back is what was sent, and nothing else can be made."""

from __future__ import annotations

import json

import pytest

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.plain_json import from_plain, to_plain
from tests.run.harness import SINKS, STREAMS

QUERIES = """
CREATE QUERY a AS SELECT id, road || 'x' AS name FROM cars WHERE speed < 5.5 AND road IS NOT NULL INTO one;
CREATE QUERY b AS SELECT window_start, road, avg(speed) AS mean FROM cars GROUP BY road
WINDOW SLIDING(ts, 2 s, 1 s) INTO two;
CREATE QUERY c AS SELECT cars.id, rain.mm FROM cars JOIN rain ON cars.road = rain.road WITHIN 10 s INTO three;
"""


def test_what_travels_comes_back_as_it_was() -> None:
    found = [o for q in sql(QUERIES, STREAMS, SINKS).queries for o in q.plan.operators.values()]
    schemas = [s for q in sql(QUERIES, STREAMS, SINKS).queries for s in q.plan.schemas.values()]
    for each in (*found, *schemas, *STREAMS.values(), *SINKS.values()):
        assert from_plain(json.loads(json.dumps(to_plain(each)))) == each


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"@": "Popen", "args": "ls"}, "'Popen' is no part of a query"),
        ({"@": "Tumbling", "size_ms": 1, "more": 2}, "a Tumbling does not look like one"),
        ({"@": "Tumbling", "size_ms": 0}, "must be positive"),
    ],
)
def test_nothing_else_can_be_made(value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_plain(value)
