"""What goes over the network comes out as it went in; values that this version does not know are not looked at."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from meander.deploy.contexts import Handover
from meander.deploy.fragments import Channel, DeploymentChange, Fragment
from meander.deploy.markers import Marker, MarkerAction
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.messages import (
    MESSAGES,
    Abort,
    Done,
    Effect,
    Fetch,
    ForkAt,
    Mark,
    Message,
    PartStatus,
    PartStatuses,
    Poll,
    Positions,
    Prepare,
    Reroute,
)
from meander.reconfigure.part import FetchRoutes, Part

OLD, NEW, READER = (Fragment(FragmentId(n), 1, NodeId(n), (OperatorId(7),), (OperatorId(7),)) for n in (1, 2, 3))
CHANNEL = Channel(ChannelId(5), OperatorId(7), FragmentId(1), FragmentId(3), None, is_cut=True)
MOVED = Channel(ChannelId(5), OperatorId(7), FragmentId(2), FragmentId(3), None)
KEY = (OperatorId(7), FragmentId(3))
AT = Positions(
    {ChannelId(5): (3, -4)},
    {ChannelId(6): (1, 2, 3)},
    {FragmentId(1): 9},
    frozenset({FragmentId(1)}),
    {OperatorId(7): 1_000},
    {OperatorId(6): 900},
)


def part(number: int, site: str = "west") -> Part:
    return Part(
        number,
        site,
        DeploymentChange({OLD.id: OLD}, {NEW.id: NEW}, {KEY: CHANNEL}, {KEY: MOVED}),
        {OLD.id: "west", NEW.id: "east", READER.id: "home"},
        Marker.of(number, {(OLD.id, 1): MarkerAction.UPDATE_THEN_DRAIN}),
        (Handover(OperatorId(7), OLD.id, NEW.id, NodeId(1), NodeId(2)),),
        schemas={ChannelId(5): pa.schema([("id", pa.int64())])},
        routes=FetchRoutes({ChannelId(5): ("east",)}, {}, {0: ("hub", "west")}),
        serialised={NEW.id: [[7, {"@": "Map"}, [], [6], [8]]]},
        results={ChannelId(1_000_000_007): ("means", "one")},
    )


def sent(message: object) -> object:
    return json.loads(json.dumps(encode(message)))


@pytest.mark.parametrize(
    "message",
    [
        Mark((3, 4)),
        Poll((3,)),
        ForkAt({3: {OperatorId(7): 1_000}}),
        Fetch({3: AT, 4: Positions()}),
        Effect({3: AT}),
        Abort((3,)),
        Reroute(((CHANNEL, ("hub", "east")), (MOVED, ())), (2, 9)),
    ],
)
def test_messages_come_out_as_they_went_in(message: Message) -> None:
    assert decode(MESSAGES[message.ACTION], sent(message)) == message


def test_parts_come_out_as_they_went_in() -> None:
    message = decode(Prepare, sent(Prepare((part(3), part(4)), (3, 4, 5))))
    assert isinstance(message, Prepare)
    assert (message.numbers, message.under_way) == ((3, 4), (3, 4, 5))
    for found, told in zip(message.parts, (part(3), part(4)), strict=True):
        assert vars(found) == vars(told)


def test_answers_come_out_as_they_went_in() -> None:
    done = Done({3: "no"}, frozenset({4, 5}))
    assert decode(Done, sent(done)) == done
    statuses = PartStatuses({3: PartStatus("no", waits_for="state", moved={OperatorId(7): 12}, positions=AT)})
    assert decode(PartStatuses, sent(statuses)) == statuses


def test_fields_of_a_newer_version_are_not_looked_at_and_defaults_are_left_out() -> None:
    assert sent(Done()) == {}
    assert decode(Done, {"refused": {"3": "no"}, "mood": "bad"}) == Done({3: "no"})
