"""Batches are checked as a whole: one bad event, and nothing of its batch is applied."""

from __future__ import annotations

import pytest

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
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Sink
from meander.model.topology.elements import Link, Node, NodeKind
from tests.place.amenders.test_amendment import Diamond

NEW = Node("new", NodeKind.EDGE, 1)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([QueryRemoved(0, QueryId("p"))], "event 1 of 1: no query 'p'; known queries: q"),
        ([QueryRemoved(0, QueryId("q"))] * 2, "event 2 of 2: no query 'q'"),
        ([DemandChanged(0, QueryId("p"), ())], "no query 'p'"),
        ([NodeAdded(0, Node("left", NodeKind.EDGE, 1))], "node 'left' exists already; remove it first"),
        ([NodeAdded(0, NEW), NodeAdded(0, NEW)], "event 2 of 2: node 'new' exists already"),
        ([NodeRemoved(0, "lift")], "no node 'lift'; known nodes: left, "),
        ([NodeRemoved(0, "left"), NodeRemoved(0, "left")], "event 2 of 2: no node 'left'; known nodes: "),
        ([LinkAdded(0, Link("left", "cloud"))], "link 'left' to 'cloud' exists already"),
        ([LinkAdded(0, Link("left", "new"))], "no node 'new'"),
        ([LinkRemoved(0, "left", "right")], "no link 'left' to 'right'; it was removed already or never added"),
        ([NodeRemoved(0, "left"), NodeAdded(0, Node("left", NodeKind.EDGE, 1)), LinkRemoved(0, "left", "cloud")],
         "event 3 of 3: no link 'left' to 'cloud'"),
        ([CapacityChanged(0, "left", slots=-1)], "node 'left': slots must not be negative, but is -1"),
        ([CapacityChanged(0, "nowhere")], "no node 'nowhere'"),
        ([RateChanged(0, "t", 1.0)], "no stream 't'; known streams: s"),
        ([RateChanged(0, "s", 0.0)], "stream 's': rate must be positive and finite, not 0.0"),
        ([RateChanged(0, "s", 1.0, "left")], "no producer of stream 's' 'left'"),
        ([PlacementChanged(0, OperatorId(77), "left")], "no operator 77 in the global query plan"),
        ([PlacementChanged(0, OperatorId(1), "left")], "operator 1 is a source or sink and cannot be moved"),
    ],
)  # fmt: skip
def test_a_bad_event_is_named_and_nothing_is_applied(events: list[ChangeEvent], message: str) -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    catalog = diamond.catalog
    before = dict(catalog.placement.nodes), catalog.topology.version, list(catalog.plan.queries)
    with pytest.raises(InputError) as caught:
        diamond.engine.run([CapacityChanged(0, "right", slots=3), *events] if len(events) == 1 else events)
    wanted = message.replace("event 1 of 1", "event 2 of 2")
    assert wanted in str(caught.value)
    assert (dict(catalog.placement.nodes), catalog.topology.version, list(catalog.plan.queries)) == before
    assert int(catalog.topology.nodes.slots[catalog.topology.id("right")]) == 10
    diamond.run()


def test_later_events_may_rely_on_earlier_ones() -> None:
    diamond = Diamond()
    diamond.run(
        NodeAdded(0, NEW),
        LinkAdded(0, Link("new", "cloud")),
        LinkRemoved(0, "new", "cloud"),
        LinkAdded(0, Link("cloud", "new")),
        diamond.added(),
        QueryRemoved(0, QueryId("q")),
        diamond.added(),
        NodeRemoved(0, "new"),
    )
    assert "new" not in diamond.catalog.topology
    assert diamond.node_of(Sink) == "cloud"
