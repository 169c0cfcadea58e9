"""The columns by which new tuples find their partners, from what a query asks for."""

from __future__ import annotations

import pytest

from meander.run.fragments.template import Stage, bind
from meander.run.resident.partners import Partners, partners
from tests.run.harness import queries


def stage_of(text: str) -> Stage:
    plan = queries(f"CREATE QUERY q AS {text} INTO one;")[0].plan
    (stage,) = bind(plan.operators, plan.inputs).template.stages
    return stage


CASES = {
    "a join finds the other side by its keys": (
        "SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND a.speed > b.mm WITHIN 1 s",
        (Partners(("sc2",), {1: ("c1",)}), Partners(("sc5",), {0: ("c2",)})),
    ),
    "by all of them": (
        "SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND a.speed = b.mm WITHIN 1 s",
        (Partners(("sc2", "sc3"), {1: ("c1", "c2")}), Partners(("sc5", "sc6"), {0: ("c2", "c3")})),
    ),
    "a sequence by the equality that its condition asks for": (
        "SELECT a.id, b.mm FROM cars AS a, rain AS b MATCH a THEN b WITHIN 1 s WHERE b.road = a.road AND a.id > 1",
        (Partners(("sc2",), {1: ("c1",)}), Partners(("sc5",), {0: ("c2",)})),
    ),
    "a sequence without one reads everything": (
        "SELECT a.id, b.mm FROM cars AS a, rain AS b MATCH a THEN b WITHIN 1 s WHERE b.road = a.road OR a.id > 1",
        (None, None),
    ),
    "a key that is computed on one side cannot be looked for": (
        "SELECT a.id, b.id AS j FROM cars AS a JOIN (SELECT ts, id * 2 AS id FROM cars) AS b ON a.id = b.id WITHIN 1 s",
        (None, Partners(("sc5",), {0: ("c1",)})),
    ),
    "a stream that meets itself is one leaf": (
        "SELECT a.id, b.id AS j FROM cars AS a JOIN cars AS b ON a.id = b.id WITHIN 1 s",
        (Partners(("sc1",), {0: ("c1",)}), Partners(("sc5",), {0: ("c1",)})),
    ),
    "an aggregate reads what its windows hold": (
        "SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s)",
        (None,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_partners_are_found_by_what_they_have_in_common(name: str) -> None:
    text, wanted = CASES[name]
    assert partners(stage_of(text)) == wanted
