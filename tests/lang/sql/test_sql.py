"""The SQL dialect, clause by clause: what plan each form gives."""

from __future__ import annotations

import pytest

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.operators import (
    Conjunction,
    Filter,
    Map,
    Operator,
    Sequence,
    Sink,
    Source,
    Union,
    UserFunction,
    WindowAggregate,
    WindowJoin,
)
from meander.model.plan import Query, drawn
from meander.model.windows import Count, Session, Sliding, Tumbling, Window, Within
from tests.lang.streams import SINKS, STREAMS


def query(text: str) -> Query:
    (found,) = sql(text, STREAMS, SINKS).queries
    return found


def operators(text: str) -> list[Operator]:
    return list(query(text).plan.operators.values())


def kinds(text: str) -> list[type[Operator]]:
    return [type(o) for o in operators(text)]


def columns(text: str) -> tuple[str, ...]:
    last = operators(text)[-1]
    assert isinstance(last, Sink)
    return last.columns


def test_select_star_needs_no_map() -> None:
    assert kinds("SELECT * FROM train INTO alerts") == [Source, Sink]
    assert kinds("SELECT ts, id, station, speed, passengers FROM train INTO alerts") == [Source, Sink]
    assert kinds("SELECT id, ts, station, speed, passengers FROM train INTO alerts") == [Source, Map, Sink]


def test_keywords_in_any_case_comments_and_line_breaks() -> None:
    text = "select id -- the train\nfrom train /* all */ where speed < 3\ninto alerts;"
    assert query(text).plan == query("SELECT id FROM train WHERE speed < 3 INTO alerts").plan


def test_unnamed_columns_get_names_by_position() -> None:
    assert columns("SELECT id, speed * 2, abs(speed), 1 FROM train INTO alerts") == (
        "id",
        "column_2",
        "abs_3",
        "column_4",
    )


def test_stars_of_one_side_keep_their_names() -> None:
    text = "SELECT {} FROM train AS a JOIN weather AS b ON a.station = b.station WITHIN 1 s INTO alerts"
    assert columns(text.format("b.*")) == ("ts", "station", "temperature", "wind")
    assert columns(text.format("*")) == columns(text.format("a.*, b.*"))
    assert columns(text.format("b.wind, a.*"))[0] == "wind"


def test_reserved_words_in_backticks() -> None:
    assert columns("SELECT speed AS `window`, id AS `two words` FROM train INTO alerts") == ("window", "two words")


def test_an_aggregate_then_having_then_the_select_list() -> None:
    found = operators(
        "SELECT road, avg(speed) * 3.6 AS kmh FROM vehicle GROUP BY road WINDOW TUMBLING(ts, 10 s) "
        "HAVING count(*) > 3 INTO dashboard"
    )
    assert [type(o) for o in found] == [Source, WindowAggregate, Filter, Map, Sink]
    aggregate = found[1]
    assert isinstance(aggregate, WindowAggregate)
    assert [str(a) for a in aggregate.aggregates] == ["avg(speed) AS avg_1", "count(*) AS count_2"]


def test_an_exact_aggregate_needs_no_map() -> None:
    items = "window_start, window_end, road, count(*) AS n"
    text = f"SELECT {items} FROM vehicle GROUP BY road WINDOW TUMBLING(1 s) INTO alerts"
    assert kinds(text) == [Source, WindowAggregate, Sink]


def test_the_same_aggregate_is_computed_once() -> None:
    found = operators("SELECT count(*) AS n, count(*) + 1 AS m FROM train WINDOW TUMBLING(1 s) INTO alerts")
    assert isinstance(found[1], WindowAggregate)
    assert len(found[1].aggregates) == 1


def test_a_part_with_a_name_is_one_operator_however_often_it_is_read() -> None:
    text = """
        WITH slow AS (SELECT * FROM train WHERE speed < 5), stations AS (SELECT id, station FROM slow)
        SELECT id FROM slow UNION ALL SELECT s.id FROM stations AS s INTO alerts
    """
    assert [kinds(text).count(kind) for kind in (Source, Filter, Union)] == [1, 1, 1]


def test_a_part_may_have_the_name_of_the_stream_that_it_reads() -> None:
    assert kinds("WITH train AS (SELECT * FROM train WHERE speed < 5) SELECT * FROM train INTO alerts") == [
        Source,
        Filter,
        Sink,
    ]
    inner = "SELECT id FROM (WITH train AS (SELECT id FROM train) SELECT id FROM train) AS a INTO alerts"
    assert query(inner).plan == query("SELECT id FROM train INTO alerts").plan


def test_parts_that_double_again_and_again_are_refused() -> None:
    joins = [f"p{i + 1} AS (SELECT a.* FROM p{i} AS a JOIN p{i} AS b ON a.id = b.id WITHIN 1 s)" for i in range(40)]
    parts = ["p0 AS (SELECT * FROM train)", *joins]
    assert kinds(f"WITH {', '.join(parts)} SELECT id FROM p40 INTO alerts").count(WindowJoin) == 40
    doubled = [p.replace("a.*", "*") for p in parts]
    with pytest.raises(InputError, match="more than 1,000 columns"):
        query(f"WITH {', '.join(doubled)} SELECT id FROM p40 INTO alerts")


def test_distinct_is_a_group_by_of_everything() -> None:
    one = query("SELECT DISTINCT station, floor(speed) AS v FROM train WINDOW TUMBLING(1 s) INTO alerts")
    other = "SELECT station, floor(speed) AS v FROM train WINDOW TUMBLING(1 s) GROUP BY station, v INTO alerts"
    assert one.plan == query(other).plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT DISTINCT id FROM train INTO alerts", "DISTINCT needs a window"),
        ("SELECT DISTINCT id FROM train GROUP BY id WINDOW COUNT(3) INTO alerts", "do not go together"),
        ("WITH a AS (SELECT id FROM train), a AS (SELECT id FROM train) SELECT * FROM a INTO alerts", "two parts"),
        ("WITH a AS SELECT id FROM train SELECT * FROM a INTO alerts", "a SELECT in parentheses"),
        ("WITH a AS (SELECT id FROM b), b AS (SELECT id FROM train) SELECT * FROM a INTO alerts", "no stream 'b'"),
    ],
)
def test_what_with_and_distinct_do_not_take(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        query(text)


def test_group_by_an_alias_or_the_window() -> None:
    one = query(
        "SELECT floor(x / 100) AS cell, count(*) AS n FROM vehicle GROUP BY cell, window_start, window_end "
        "WINDOW TUMBLING(1 s) INTO alerts"
    )
    other = query(
        "SELECT floor(x / 100) AS cell, count(*) AS n FROM vehicle WINDOW TUMBLING(1 s) "
        "GROUP BY floor(x / 100) INTO alerts"
    )
    assert one.plan == other.plan


def test_windows_over_windows_go_by_window_end() -> None:
    found = operators(
        "SELECT max(n) AS most FROM (SELECT window_end, count(*) AS n FROM vehicle WINDOW TUMBLING(1 s)) AS a "
        "WINDOW TUMBLING(window_end, 1 min) INTO alerts"
    )
    assert [o.window for o in found if isinstance(o, WindowAggregate)] == [Tumbling(1000), Tumbling(60_000)]


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("TUMBLING(ts, 10 s)", Tumbling(10_000)),
        ("tumbling(10s)", Tumbling(10_000)),
        ("TUMBLE(1.5 s)", Tumbling(1500)),
        ("SLIDING(ts, 10 s, 500ms)", Sliding(10_000, 500)),
        ("HOP(1 min, 30 s)", Sliding(60_000, 30_000)),
        ("SESSION(1 d)", Session(86_400_000)),
        ("COUNT(100)", Count(100, 100)),
        ("COUNT(100, 10)", Count(100, 10)),
    ],
)
def test_windows(text: str, window: Window) -> None:
    found = operators(f"SELECT count(*) AS n FROM train WINDOW {text} INTO alerts")
    assert isinstance(found[1], WindowAggregate)
    assert found[1].window == window


def test_join_keys_and_condition() -> None:
    found = operators(
        "SELECT * FROM train AS a JOIN weather AS b ON b.station = a.station AND a.speed < b.wind "
        "WINDOW SLIDING(10 s, 5 s) ALLOW LATENESS 2 s WHERE b.wind > 3 INTO alerts"
    )
    join = found[2]
    assert isinstance(join, WindowJoin)
    assert join.keys == (("station", "station"),)
    assert join.condition is not None
    assert join.window == Sliding(10_000, 5000)
    assert join.lateness_ms == 2000
    assert isinstance(found[3], Filter)


def test_a_stream_joined_with_itself_is_read_once() -> None:
    found = query("SELECT a.id FROM train a JOIN train b ON a.id = b.id WITHIN 1 s INTO alerts")
    assert len(found.plan.sources) == 1
    assert (1, 1) in found.plan.inputs.values()


def test_a_pattern_takes_the_where_as_its_condition() -> None:
    found = operators(
        "SELECT a.id FROM train AS a, weather AS b MATCH a THEN b WITHIN 30 s WHERE a.station = b.station INTO alerts"
    )
    assert isinstance(found[2], Sequence)
    assert found[2].within_ms == 30_000
    assert found[2].condition is not None


def test_patterns_nest_and_share_the_last_bound() -> None:
    listed = "SELECT a.id FROM train AS a, weather AS b, vehicle AS c MATCH"
    grouped = operators(f"{listed} (a AND b WITHIN 5 s) THEN c WITHIN 30 s INTO alerts")
    assert isinstance(grouped[2], Conjunction)
    assert grouped[2].window == Within(5000)
    chained = operators(f"{listed} a THEN b THEN c WITHIN 30 s INTO alerts")
    assert [o.within_ms for o in chained if isinstance(o, Sequence)] == [30_000, 30_000]


def test_unions_of_unions_are_one() -> None:
    text = (
        "SELECT id FROM train UNION ALL (SELECT id FROM vehicle UNION ALL SELECT id + 1 AS id FROM train) INTO alerts"
    )
    found = query(text)
    (union,) = [o for o, operator in found.plan.operators.items() if isinstance(operator, Union)]
    assert len(found.plan.inputs[union]) == 3


def test_user_functions() -> None:
    found = operators(
        "SELECT e.id FROM APPLY('fleet.rules:enrich', train) "
        "RETURNS (ts timestamp, id bigint, tags array<string>) AS e INTO alerts"
    )
    assert isinstance(found[1], UserFunction)
    assert str(found[1].output) == "ts timestamp, id bigint, tags array<string>"


def test_demands() -> None:
    found = query("SELECT * FROM train INTO alerts DEMAND latency < 0.1 s, hops <= 3 WEIGHT 2, load < 50 %")
    assert [str(d) for d in found.demands] == ["latency < 100 ms", "hops <= 3 WEIGHT 2", "load < 0.5"]


def test_a_script_defines_streams_sinks_and_queries() -> None:
    script = sql(
        """
        CREATE STREAM tram (at timestamp, id bigint, planned timestamp) EVENT TIME at
            ON NODES (`edge-1`, edge2) RATE 2/min WITH (format = 'csv', kafka.topic = 'trams');
        CREATE SINK screen ON NODE cloud WITH (path = '/tmp/out');
        CREATE QUERY all_trams AS SELECT * FROM tram INTO screen;
        SELECT id FROM tram INTO screen;
        SELECT id AS i FROM tram INTO screen
        """,
        name="trams",
    )
    stream = script.streams["tram"]
    assert (stream.event_time, stream.nodes) == ("at", ("edge-1", "edge2"))
    assert stream.rate_tps == pytest.approx(1 / 30)
    assert stream.options == {"format": "csv", "kafka.topic": "trams"}
    assert script.sinks["screen"].node == "cloud"
    assert [q.id for q in script.queries] == ["all_trams", "trams_1", "trams_2"]


def test_sinks_are_checked_only_when_some_are_known() -> None:
    assert len(sql("SELECT * FROM train INTO anywhere", STREAMS).queries) == 1
    with pytest.raises(InputError, match="no sink 'anywhere'"):
        sql("CREATE SINK here; SELECT * FROM train INTO anywhere", STREAMS)


def test_the_plan_draws_itself() -> None:
    found = query("SELECT id, speed * 3.6 AS kmh FROM train WHERE speed < 5 INTO alerts")
    assert drawn(found.plan).splitlines() == [
        "4 sink alerts (id, kmh)",
        "└─ 3 map id, speed * 3.6D AS kmh",
        "   └─ 2 filter speed < 5",
        "      └─ 1 source train",
    ]


def test_deep_nesting_is_an_input_error() -> None:
    deep = "(" * 3000 + "speed" + ")" * 3000
    with pytest.raises(InputError, match="nested"):
        sql(f"SELECT * FROM train WHERE {deep} < 3 INTO alerts", STREAMS)
