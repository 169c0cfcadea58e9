"""Equal queries give equal plans, whichever language they are written in."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from meander.lang import sql
from meander.model.signature import signatures
from tests.lang.descriptions import Written, queries
from tests.lang.streams import SINKS, STREAMS


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(queries())
def test_sql_and_fluent_give_equal_plans(written: Written) -> None:
    (query,) = sql(written.sql, STREAMS, SINKS).queries
    assert query.plan == written.output.plan
    assert query.demands == written.output.demands
    assert signatures(query.plan) == signatures(written.output.plan)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(queries())
def test_numbering_is_settled(written: Written) -> None:
    plan = written.output.plan
    assert plan.numbered() == plan
    assert list(plan.operators) == list(range(1, len(plan.operators) + 1))
