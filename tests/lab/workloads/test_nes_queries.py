"""The builder-syntax query sets: their shape, and the sets themselves where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.workloads.nes_queries import SCHEMA, load_queries, read_plan, read_queries, streams_of
from meander.model.errors import InputError
from meander.model.plan import drawn
from meander.model.signature import signatures

DATA = Path(os.environ.get("MEANDER_DATA", Path(__file__).parents[4] / "shared" / "data")) / "isqp"
LINE = (
    'Query::from("example21-1").filter(Attribute("p")>=Attribute("o")).map(Attribute("m")=1)'
    '.unionWith(Query::from("example22-1").filter(Attribute("o") * 9<Attribute("m") * 9)'
    '.project(Attribute("m"),Attribute("n"),Attribute("o"),Attribute("p"),Attribute("q"),Attribute("r"),'
    'Attribute("time1"),Attribute("time2"))).sink(NullOutputSinkDescriptor::create(),64);'
)


def test_every_written_operator_is_in_the_plan() -> None:
    plan, node = read_plan(LINE)
    assert node == 64
    assert drawn(plan).splitlines() == [
        "8 sink sink-64 (m, n, o, p, q, r, time1, time2)",
        "└─ 7 union",
        "   ├─ 3 map 1L AS m, n, o, p, q, r, time1, time2",
        "   │  └─ 2 filter p >= o",
        "   │     └─ 1 source example21-1",
        "   └─ 6 map m, n, o, p, q, r, time1, time2",
        "      └─ 5 filter o * 9L < m * 9L",
        "         └─ 4 source example22-1",
    ]


def test_equal_lines_share_a_plan() -> None:
    first, second = read_queries([LINE, "", LINE])
    assert first.query.plan is second.query.plan
    assert (first.query.id, second.query.id) == ("q1", "q3")
    assert [s.schema for s in streams_of([first, second]).values()] == [SCHEMA, SCHEMA]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("filter", "fliter", "line 1: no operator 'fliter'; known operators: filter, "),
        ('"p"', '"pp"', "line 1: no column 'pp'; known columns: p, "),
        (",64)", ",)", "line 1: expected a number, but found ')'"),
        ("create(),64);", "", "line 1: expected "),
        ("* 9<", "$ 9<", "line 1: cannot read ' $ 9<Attri' at column 147"),
    ],
)
def test_a_wrong_line_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_queries([LINE.replace(old, new)]))
    assert str(caught.value).startswith(message)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no query sets in {DATA}; set MEANDER_DATA to the folder above isqp")
@pytest.mark.parametrize(
    ("name", "queries", "distinct"),
    [
        ("generated_queries-0Conflict-TopologyChanges4k", 4000, 50),
        ("generated_queries-0Conflicts-4k-QueryChanges", 4096, 32),
        ("generated_queries-50Conflict-4k-QueryChanges", 4096, 32),
        ("generated_queries-50Conflict-8k-Varying_BS_TC_Q+", 8192, 128),
        ("generated_queries-50Conflict-TopologyChanges4k", 4000, 50),
    ],
)
def test_published_sets(name: str, queries: int, distinct: int) -> None:
    found = load_queries(DATA / f"{name}.txt.gz")
    plans = {id(q.query.plan): q.query.plan for q in found}
    assert (len(found), len(plans)) == (queries, distinct)
    assert len({tuple(signatures(p).values()) for p in plans.values()}) == distinct
    assert all(len(p.operators) == 11 for p in plans.values())
