"""The fluent API: its own forms, and errors that name the method and the place in its text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meander.lang import count, session, sliding, sql, tumbling
from meander.model.errors import InputError
from meander.model.plan import QueryPlan
from meander.model.windows import Tumbling
from tests.lang.streams import ENVIRONMENT, SINKS, STREAMS

TRAIN, WEATHER, VEHICLE = (ENVIRONMENT.stream(name) for name in ("train", "weather", "vehicle"))


def plan(text: str) -> QueryPlan:
    (query,) = sql(text, STREAMS, SINKS).queries
    return query.plan


def test_items_may_be_listed_in_one_text() -> None:
    assert TRAIN.select("id, speed AS s") == TRAIN.select("id", "speed AS s")


def test_streams_are_called_by_their_names_until_they_get_an_alias() -> None:
    joined = TRAIN.join(WEATHER, on="train.station = weather.station", within="1 s").select("train.id").into("alerts")
    same = "SELECT train.id FROM train JOIN weather ON train.station = weather.station WITHIN 1 s INTO alerts"
    assert joined.plan == plan(same)


def test_a_projection_keeps_the_name_of_its_stream() -> None:
    narrow = WEATHER.select("station", "wind")
    joined = TRAIN.join(narrow, on="train.station = weather.station", within="1 s")
    assert joined.schema.names[-2:] == ("station_2", "wind")


def test_windows_of_the_model_are_taken_as_they_are() -> None:
    one = VEHICLE.window(Tumbling(10_000)).select("count(*) AS n")
    assert one == VEHICLE.window(tumbling("10 s", on="ts")).select("count(*) AS n")


def test_a_function_may_be_given_itself() -> None:
    returns = {"id": "bigint"}
    assert TRAIN.apply(plan, returns) == TRAIN.apply("tests.lang.test_fluent:plan", returns)


def test_streams_are_values() -> None:
    slow = TRAIN.where("speed < 5")
    assert slow.where("id > 1") != slow
    assert slow == TRAIN.where("speed < 5")


def test_demands_add_up() -> None:
    output = TRAIN.into("alerts", "archive").demand("latency < 1 s, hops <= 3").demand("load < 0.5 WEIGHT 3")
    assert [str(d) for d in output.query("q").demands] == ["latency < 1000 ms", "hops <= 3", "load < 0.5 WEIGHT 3"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ENVIRONMENT.stream("trian"), "stream('trian'): no stream 'trian'; known streams: train, "),
        (lambda: TRAIN.where("sped < 3"), "where('sped < 3'), column 1: no column 'sped'; known columns: speed, "),
        (lambda: TRAIN.where("id = 1 AND speed"), "where('id = 1 AND speed'), column 1: AND takes a boolean"),
        (lambda: TRAIN.select("id", "id"), "select('id'), column 1: column 'id' appears twice"),
        (lambda: TRAIN.select(), "select(): needs at least one column"),
        (lambda: TRAIN.select("id WHERE"), "select('id WHERE'), column 4: expected nothing more, but found 'WHERE'"),
        (lambda: TRAIN.into(), "into(): a query needs at least one sink"),
        (lambda: TRAIN.into("alert"), "into(): no sink 'alert'; known sinks: alerts, archive, dashboard"),
        (lambda: TRAIN.join(WEATHER, on="train.ts = weather.ts"), 'join(): needs either within="10 s" or window='),
        (
            lambda: TRAIN.join(WEATHER, on="speed < wind", within="1 s"),
            "join('speed < wind'), column 1: a join needs an equality",
        ),
        (
            lambda: TRAIN.and_(WEATHER, window=session("1 s")),
            "and_(): takes tumbling or sliding windows, not SESSION(1 s)",
        ),
        (lambda: TRAIN.then(TRAIN, within="1 s"), "then(): two inputs are called 'train'; give one of them another"),
        (lambda: TRAIN.union(WEATHER), "union(): union input 2 has columns"),
        (
            lambda: TRAIN.apply("enrich", {"id": "int"}),
            "apply(): user function 'enrich' must be written module:function",
        ),
        (lambda: tumbling("10 parsecs"), "tumbling(): unknown duration unit 'parsecs'"),
        (lambda: sliding("1 s", "2 s"), "sliding(): a sliding window's slide (2 s) must not exceed its size (1 s)"),
        (lambda: count(0), "count(): a window's size must be positive, not 0"),
        (
            lambda: TRAIN.window(tumbling("1 s", on="id")),
            "window('id'), column 1: 'id' is not the event time of this input; write 'ts'",
        ),
        (
            lambda: TRAIN.window(tumbling("1 s")).group_by("id").select("speed"),
            "select('speed'), column 1: column 'speed' is neither in GROUP BY nor inside an aggregate",
        ),
        (lambda: TRAIN.window(tumbling("1 s")).group_by("*"), "group_by('*'), column 1: * cannot be used here"),
        (lambda: TRAIN.into("alerts").demand("speed < 3"), "demand('speed < 3'), column 1: no metric 'speed'"),
    ],
)
def test_errors_name_the_method(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert str(caught.value).startswith(message)
