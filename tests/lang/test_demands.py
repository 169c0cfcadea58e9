"""The text of demands: conditions, branches, and that what is shown reads back as the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.lang import sql
from meander.lang.demands import parse_demands
from meander.lang.event_file import dump_events, read_events
from meander.lang.fluent import Environment
from meander.model.conditions import Fact
from meander.model.demands import Demand, contradiction
from meander.model.errors import InputError
from meander.model.events import DemandChanged
from meander.model.ids import QueryId
from tests.lang.streams import SINKS, STREAMS
from tests.model.demand_strategies import DEMANDS

RUSH = "WHEN hour BETWEEN 7 AND 9 THEN latency < 50 ms OTHERWISE overhead < 1 MB"


def test_when_then_otherwise() -> None:
    assert [str(d) for d in parse_demands(RUSH)] == [
        "latency < 50 ms WHEN hour BETWEEN 7 AND 9",
        "overhead < 1 MB UNLESS hour BETWEEN 7 AND 9",
    ]


def test_the_first_branch_that_holds_counts() -> None:
    branches = "WHEN hour < 6 THEN hops <= 9 WHEN churn > 2 THEN hops <= 3 AND load < 50 % OTHERWISE hops <= 5"
    demands = parse_demands(f"{branches}, frequency > 1/s")

    def active(hour: float, churn: float) -> list[str]:
        return [d.core for d in demands if d.applies({Fact.HOUR: hour, Fact.CHURN: churn})]

    assert active(3, 0) == active(3, 9) == ["hops <= 9", "frequency > 1 /s"]
    assert active(8, 9) == ["hops <= 3", "load < 0.5", "frequency > 1 /s"]
    assert active(8, 0) == ["hops <= 5", "frequency > 1 /s"]


def test_both_languages_agree() -> None:
    text = f"{RUSH}, hops <= 3 WEIGHT 2 UNLESS mobility > 1 /min"
    (query,) = sql(f"SELECT * FROM train INTO alerts DEMAND {text}", STREAMS, SINKS).queries
    assert query.demands == Environment(STREAMS).stream("train").into("alerts").demand(text).demands
    assert len(query.demands) == 3


def test_fluent_demands_of_several_calls_must_agree() -> None:
    output = Environment(STREAMS).stream("train").into("alerts").demand("latency < 50 ms")
    with pytest.raises(InputError, match=r"demand\('latency > 1 s'\), column 1: latency > 1000 ms contradicts"):
        output.demand("latency > 1 s")


@given(demands=st.lists(DEMANDS, max_size=3).filter(lambda found: contradiction(found) is None))
def test_what_is_shown_reads_back(demands: list[Demand]) -> None:
    assert parse_demands(", ".join(map(str, demands))) == tuple(demands)
    event = DemandChanged(5, QueryId("q"), tuple(demands))
    assert read_events("".join(dump_events([event]))) == [event]


def test_an_event_with_contradictory_demands_is_refused() -> None:
    demand = '{"metric": "hops", "comparison": "%s", "bound": 2}'
    line = f'{{"at_ms": 1, "event": "demand_changed", "query": "q", "demands": [{demand % "<"}, {demand % ">"}]}}'
    with pytest.raises(InputError, match="events, line 1: hops > 2 contradicts hops < 2"):
        read_events(line)
