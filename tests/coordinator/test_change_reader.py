"""Changes from outside: whatever comes in is either a list of events or an error in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.coordinator.change_reader import MOST_EVENTS, ChangeReader, Changes
from meander.model.errors import InputError
from meander.model.events import LinkAdded, NodeRemoved, QueryAdded
from meander.model.streams import SinkTarget

READER = ChangeReader({}, {"out": SinkTarget("out", "cloud")})


def test_events_without_a_time_happen_with_the_one_before() -> None:
    found = READER.read([{"event": "node_removed", "node": "a", "at_ms": 5}, {"event": "node_removed", "node": "b"}])
    assert found.events == (NodeRemoved(5, "a"), NodeRemoved(5, "b"))
    assert [v["at_ms"] for v in found.values] == [5, 5]
    link = READER.read([{"event": "link_added", "source": "a", "target": "b"}]).events[0]
    assert isinstance(link, LinkAdded)


def test_events_and_what_is_kept_of_them_read_back_as_the_same() -> None:
    first = READER.read([NodeRemoved(3, "a"), {"event": "capacity_changed", "node": "a", "slots": 2}])
    assert READER.read(first.values) == first


def test_too_many_events_are_refused() -> None:
    with pytest.raises(InputError, match="too many"):
        READER.read([{"event": "node_removed", "node": "a"}] * (MOST_EVENTS + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "at_ms",
        "event",
        "name",
        "kind",
        "node",
        "source",
        "target",
        "slots",
        "query",
        "sql",
        "demands",
        "rate_tps",
        "file",
    ]
)
KINDS = st.sampled_from(
    ["node_added", "node_removed", "link_added", "capacity_changed", "demand_changed", "query_added"]
)
EVENTS = st.dictionaries(KEYS, JSON, max_size=6).flatmap(
    lambda d: st.one_of(st.just(d), KINDS.map(lambda kind: {**d, "event": kind}))
)


@given(st.lists(EVENTS, max_size=3))
def test_whatever_comes_is_understood_or_refused(values: list[dict[str, Any]]) -> None:
    try:
        found = READER.read(values)
    except InputError:
        return
    assert isinstance(found, Changes)
    assert not any(isinstance(e, QueryAdded) for e in found.events), "there is no stream to query"
    assert json.loads(json.dumps(found.values, allow_nan=False)) == list(found.values)
