"""Event files read back as they were written, and name the line of what is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.lang.event_file import dump_events, load_events, read_events, write_events
from meander.model.demands import Demand, Metric, contradiction
from meander.model.errors import InputError
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Sink, Source
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.topology.elements import Link, Node, NodeKind

NAME = st.text(min_size=1, max_size=5).filter(lambda name: name.isprintable())
AMOUNT = st.floats(0, allow_nan=False, allow_infinity=False)
LINK = st.builds(Link, st.just("a"), st.just("b"), AMOUNT, AMOUNT, st.booleans())
PLACE = st.none() | AMOUNT
NODE = st.builds(
    Node, NAME, st.sampled_from(NodeKind), st.integers(0, 99), AMOUNT, AMOUNT, PLACE, PLACE, st.booleans()
)  # fmt: skip
DEMAND = st.builds(
    Demand, st.sampled_from(Metric), st.sampled_from(["<", "<=", ">"]), AMOUNT, st.sampled_from([1.0, 2.0])
)
AT = st.integers(0, 2**40)
EVENT: st.SearchStrategy[ChangeEvent] = st.one_of(
    st.builds(NodeAdded, AT, NODE),
    st.builds(NodeRemoved, AT, NAME),
    st.builds(LinkAdded, AT, LINK),
    st.builds(LinkRemoved, AT, NAME, NAME, st.booleans()),
    st.builds(RateChanged, AT, NAME, AMOUNT, st.none() | NAME),
    st.builds(CapacityChanged, AT, NAME, st.none() | st.integers(0, 9), st.none() | AMOUNT),
    st.builds(PlacementChanged, AT, st.integers(0, 9).map(OperatorId), st.none() | NAME),
    st.builds(
        DemandChanged,
        AT,
        NAME.map(QueryId),
        st.lists(DEMAND, max_size=2).map(tuple).filter(lambda d: not contradiction(d)),
    ),
    st.builds(QueryRemoved, AT, NAME.map(QueryId)),
)


def in_order(events: list[ChangeEvent]) -> list[ChangeEvent]:
    return sorted(events, key=lambda event: event.at_ms)


@given(events=st.lists(EVENT, max_size=5).map(in_order))
def test_events_read_back_as_they_were_written(events: list[ChangeEvent]) -> None:
    assert read_events("".join(dump_events(events))) == events


def test_an_event_file_reads_well() -> None:
    events: list[ChangeEvent] = [
        LinkAdded(5, Link("train-1", "station-2", 5.0, directed=True)),
        NodeAdded(7, Node("e", NodeKind.EDGE, 3)),
    ]
    assert list(dump_events(events)) == [
        '{"at_ms": 5, "event": "link_added", "source": "train-1", "target": "station-2", "latency_ms": 5.0, '
        '"directed": true}\n',
        '{"at_ms": 7, "event": "node_added", "name": "e", "kind": "edge", "slots": 3}\n',
    ]


def plan_of(name: QueryId, sql: str) -> Query:
    source, sink = OperatorId(0), OperatorId(1)
    schema = Schema.of(ts="timestamp")
    plan = QueryPlan({source: Source(sql, schema, "ts"), sink: Sink("out", ("ts",))}, {source: (), sink: (source,)})
    return Query(name, plan)


def test_queries_are_written_by_their_sql_and_planned_by_the_reader(tmp_path: Path) -> None:
    name = QueryId("q")
    event = QueryAdded(3, plan_of(name, "SELECT 1"))
    path = tmp_path / "events.jsonl"
    write_events([event], path, {name: "SELECT 1"})
    assert load_events(path, plan_of) == [event]
    (tmp_path / "q.sql").write_text("SELECT 1")
    path.write_text('{"at_ms": 3, "event": "query_added", "query": "q", "file": "q.sql"}\n')
    assert load_events(path, plan_of) == [event]
    with pytest.raises(InputError, match="line 1: queries cannot be added here"):
        load_events(path)
    with pytest.raises(InputError, match="no SQL of query 'q'"):
        list(dump_events([event]))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"at_ms": 1, "event": "node_remo', "events, line 2, column 23: the JSON is cut off here"),
        ("[]", "events, line 2: an object such as"),
        ('{"at_ms": 1}', "line 2: no event 'None'; known events: "),
        ('{"at_ms": 1, "event": "link_aded"}', "line 2: no event 'link_aded'; known events: link_added, "),
        ('{"at_ms": 1, "event": "node_removed"}', "line 2: node_removed needs node"),
        ('{"event": "node_removed", "node": "a"}', "line 2: node_removed needs at_ms"),
        ('{"at_ms": -1, "event": "node_removed", "node": "a"}', "at_ms must not be negative, but is -1"),
        ('{"at_ms": 1.5, "event": "node_removed", "node": "a"}', "at_ms must be a whole number, not 1.5"),
        ('{"at_ms": true, "event": "node_removed", "node": "a"}', "at_ms must be a whole number, not True"),
        ('{"at_ms": 0, "event": "node_removed", "node": "a"}', "at_ms 0 lies before the event above, 1"),
        (
            '{"at_ms": 1, "event": "node_removed", "nod": "a"}',
            "no node_removed key 'nod'; known node_removed keys: node",
        ),
        ('{"at_ms": 1, "event": "node_removed", "node": 5}', "node_removed: node must be a text, not 5"),
        ('{"at_ms": 1, "event": "node_added", "name": "a", "kind": "fog"}', "no kind 'fog'; known kinds: cloud"),
        ('{"at_ms": 1, "event": "link_added", "source": "a", "target": "a"}', "link 'a' to 'a' leads nowhere"),
        ('{"at_ms": 1, "event": "link_added", "source": "a", "target": "b", "latency_ms": NaN}', "must be a number"),
        ('{"at_ms": 1, "event": "query_added", "query": "q"}', "query_added needs either sql or file"),
        ('{"at_ms": 1, "event": "demand_changed", "query": "q", "demands": [1]}', "a demand needs metric, comparison"),
    ],
)
def test_a_wrong_line_is_named(line: str, expected: str) -> None:
    first = '{"at_ms": 1, "event": "node_removed", "node": "z"}\n'
    with pytest.raises(InputError) as caught:
        read_events(first + line + "\n")
    assert expected in str(caught.value)
