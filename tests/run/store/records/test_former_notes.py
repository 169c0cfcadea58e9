"""Stores of notes are read, brought up to date and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meander.deploy.fragments import Channel, DeploymentChange, Fragment
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId, QueryId
from meander.model.topology.path_cache import Path as Route
from meander.run.store.commit import Commit
from meander.run.store.journal import DiskFullError
from meander.run.store.records.decisions import (
    QuarantineRecord,
    StreamsAndSinksRecord,
    TransitionRecord,
    TransitionStep,
)
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    GoneNodeRecord,
    NumbersRecord,
    RemoteChannelRecord,
    RemoteFragmentRecord,
    SerialisedFragmentRecord,
    SinkBindingRecord,
    SlotCountRecord,
    SlotRecord,
)
from meander.run.store.records.former_notes import changes_of
from meander.run.store.records.progress import (
    DeliveryRecord,
    FloorRecord,
    IngestNodesRecord,
    IngestRecord,
    LostStateRecord,
)
from meander.run.store.records.reconfigurations import (
    DecidedRecord,
    DrainedRecord,
    OverlapRecord,
    PartRecord,
    ReconfigurationRecord,
)
from meander.run.store.records.record import Record, RecordError, UnknownRecordError
from meander.run.store.records.table import BY_KIND
from meander.run.store.records.transport import CopyRecord, PeersRecord, ReaderRecord, TopicOffsetRecord, TopicRecord
from meander.run.store.store import Store
from tests.run.observe import check_accounts, remembered
from tests.run.store.recorded import NAMES, unpack


def fragment(number: int, version: int, node: int, operators: list[int], outputs: list[int]) -> Fragment:
    return Fragment(
        FragmentId(number), version, NodeId(node), tuple(map(OperatorId, operators)), tuple(map(OperatorId, outputs))
    )


def channel(number: int, upstream: int, sender: int, receiver: int, *, is_cut: bool = True) -> Channel:
    route = None if is_cut else Route((NodeId(4), NodeId(6)), (12,), 5.0)
    return Channel(
        ChannelId(number), OperatorId(upstream), FragmentId(sender), FragmentId(receiver), route, is_cut=is_cut
    )


OLD, NEW = fragment(3, 2, 4, [7, 8], [8]), fragment(9, 1, 5, [7, 8], [8])
INTO, INSTEAD = channel(5, 8, 3, 9, is_cut=False), channel(6, 8, 9, 3)
CHANGE = DeploymentChange(
    {OLD.id: OLD}, {NEW.id: NEW}, {(OperatorId(8), NEW.id): INTO}, {(OperatorId(8), OLD.id): INSTEAD}
)
O7, O8, O9 = map(OperatorId, (7, 8, 9))
EVERY_KIND: tuple[Record[Any], ...] = (
    NumbersRecord(10, 11, 12),
    SlotCountRecord(2),
    PeersRecord(
        {
            "west": ("grpc://127.0.0.1:7001", "proof", "broker:9092"),
            "east": ("grpc://127.0.0.1:7002", "proof", ""),
        }
    ),
    QuarantineRecord({O7: "failed 7", O8: "beside failed 7"}),
    StreamsAndSinksRecord({}, {"one": {"@": "SinkTarget", "name": "one", "node": "cloud", "options": {}}}),
    FragmentRecord(OLD),
    ChannelRecord(INTO),
    RemoteFragmentRecord("west", fragment(12, 1, 2, [1, 2], [2])),
    RemoteChannelRecord(channel(13, 2, 12, 14)),
    SerialisedFragmentRecord(FragmentId(3), ([7, {"@": "Filter"}, {"@": "Schema"}, [6], [8]],)),
    SlotRecord(FragmentId(3), 1),
    SinkBindingRecord(ChannelId(1_000_000_001), "wet", "one"),
    GoneNodeRecord(NodeId(6), (NodeId(4), NodeId(5))),
    ReconfigurationRecord(11, CHANGE),
    DrainedRecord(11, FragmentId(3), is_frozen=True),
    OverlapRecord(10, CHANGE, {O8: 1500}),
    PartRecord(9, {"number": 9, "site": "west"}, True, {"logs": {"5": [0, 1, 2]}}, (ChannelId(5),)),
    PartRecord(8, {"number": 8, "site": "west"}),
    DecidedRecord(7, ("west", "east"), {"readers": {"5": [3, 1000]}}),
    CopyRecord(ChannelId(5), ("relay", "east")),
    ReaderRecord(ChannelId(6), "west", ("relay",)),
    ReaderRecord(ChannelId(7), "west"),
    TopicRecord("home-west", "west"),
    TopicOffsetRecord("west-home", "u7Hj", 42),
    IngestRecord("cars", {"epoch": 1, "at": 7}, "AAAA", 10, 2, 1, 99),
    IngestNodesRecord("cars", ("s0", "s1")),
    IngestRecord("at all nodes", None, "BBBB", 3),
    DeliveryRecord("wet", 40, {"file": "a"}, (ChannelId(1_000_000_001), 40, 55)),
    DeliveryRecord("fast one", 12),
    FloorRecord(FragmentId(3), 1234),
    LostStateRecord(FragmentId(3)),
    TransitionRecord(
        QueryId("wet"),
        "bottom_up",
        "ilp",
        {O7: NodeId(4), O8: NodeId(5)},
        2,
        frozenset([QueryId("fast")]),
        {O7: "a"},
        {O8: "it is pinned"},
        (O7,),
        TransitionStep((O7, O8), "sms"),
        (TransitionStep((O9,), None),),
        {O9: NodeId(4)},
        has_arrived=False,
        returning=None,
    ),
)
"""What the store of every kind of note remembers; a fragment, its slot and its drain were forgotten again."""


def held(store: Store) -> dict[str, Any]:
    """What a store holds, whatever its columns are called."""
    exchange = store.exchange
    return {
        "records": remembered(store),
        "channels": {c: exchange.spec(c) for c in exchange.channels()},
        "tuples": {c: exchange.read(c, exchange.start(c), exchange.end(c)).table for c in exchange.channels()},
        "state": {k: store.state.read([k.fragment], k.operator, k.bucket).table for k, _ in store.views.state.all()},
        "versions": dict(store.views.versions),
        "writers": dict(store.views.writers),
    }


def opened(name: str, directory: Path) -> Store:
    unpack(name, directory)
    return Store.open(directory)


def test_notes_of_every_kind_are_records(tmp_path: Path) -> None:
    store = opened("every-kind", tmp_path / "store")
    never_notes = {"replication", "replica", "keepers"}
    assert {r.kind for r in EVERY_KIND} == set(BY_KIND) - never_notes
    assert remembered(store) == {(r.kind, r.key): r for r in EVERY_KIND}
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_notes_is_brought_up_to_date_at_opening_and_goes_on(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path / "store")
    shown = held(store)
    assert shown["records"]
    assert bool(shown["tuples"]) == (name != "every-kind")
    check_accounts(store)
    store.commit(Commit(records=(FloorRecord(FragmentId(99), 7),)))
    shown["records"]["floor", 99] = FloorRecord(FragmentId(99), 7)
    store.close()
    (segment,) = [p for p in (tmp_path / "store").glob("*.seg") if b'"records"' in p.read_bytes()]
    assert b'"notes"' not in segment.read_bytes()
    again = Store.open(tmp_path / "store")
    assert held(again) == shown
    assert again.stats().snapshots == 0
    again.close()


def test_a_store_of_notes_opens_although_there_is_no_room_to_bring_it_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as disk:
        disk.setattr(Store, "snapshot", full)
        store = opened("host", tmp_path / "store")
        shown = held(store)
        assert store.stats().snapshot_problem == "no room"
        store.close()
    store = Store.open(tmp_path / "store")
    assert held(store) == shown
    store.close()


def test_a_note_that_is_not_known_is_named() -> None:
    with pytest.raises(UnknownRecordError, match="the note 'weather of 3' is none of those that are known"):
        changes_of({"weather of 3": 1})
    with pytest.raises(UnknownRecordError, match="the note 'fragment x' is none"):
        changes_of({"fragment x": 1})
    with pytest.raises(RecordError, match=r"record 'slot' .* cannot be read"):
        changes_of({"slot of 3": "one"})
