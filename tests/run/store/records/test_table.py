"""Every record comes back as it was written, and what is not known or not right is refused with a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.deploy.fragments import Channel, DeploymentChange, Fragment
from meander.model.ids import FragmentId
from meander.run.store import snapshot
from meander.run.store.commit import Commit
from meander.run.store.records import table
from meander.run.store.records.deployment import FragmentRecord, NumbersRecord, SlotRecord
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.reconfigurations import DrainedRecord
from meander.run.store.records.record import (
    Change,
    Record,
    RecordError,
    UnknownRecordError,
    as_noted,
    forget,
    forget_all,
)
from meander.run.store.records.record import key_codec as codec_of_keys
from meander.run.store.records.table import TYPES, Records, last_of_each, read_forgotten, read_record
from meander.run.store.store import Store

KINDS = [
    "fragment",
    "channel",
    "remote fragment",
    "remote channel",
    "serialised fragment",
    "numbers",
    "slot",
    "slot count",
    "sink binding",
    "gone node",
    "reconfiguration",
    "drained",
    "overlap",
    "part",
    "decided",
    "copy",
    "reader",
    "topic",
    "topic offset",
    "peers",
    "replication",
    "replica",
    "keepers",
    "ingest",
    "ingest nodes",
    "delivery",
    "floor",
    "lost state",
    "quarantine",
    "transition",
    "streams and sinks",
]
F, G = FragmentId(3), FragmentId(4)
WHOLE = st.integers(-(2**62), 2**62)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | WHOLE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type."""
    if isinstance(annotation, NewType):
        return values(annotation.__supertype__)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        Any: PLAIN,
        int: WHOLE,
        str: st.text(max_size=8),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    if annotation in simple:
        return simple[annotation]
    if annotation is DeploymentChange:
        return st.builds(_change, *(st.lists(values(t), max_size=3) for t in (Fragment, Fragment, Channel, Channel)))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return st.one_of([values(a) for a in arguments])
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    assert isinstance(annotation, type)
    assert is_dataclass(annotation)
    hints = get_type_hints(annotation)
    found: st.SearchStrategy[Any] = st.builds(annotation, **{f.name: values(hints[f.name]) for f in fields(annotation)})
    return found


def _change(before: list[Fragment], after: list[Fragment], old: list[Channel], new: list[Channel]) -> DeploymentChange:
    fragments = [{f.id: f for f in side} for side in (before, after)]
    channels = [{(c.upstream, c.receiver): c for c in side} for side in (old, new)]
    return DeploymentChange(*fragments, *channels)  # type: ignore[arg-type]


def test_these_are_all_kinds() -> None:
    assert [type_.kind for type_ in TYPES] == KINDS


def test_the_page_about_stores_has_a_row_for_every_kind() -> None:
    page = (Path(__file__).parents[4] / "docs" / "concepts" / "store.md").read_text()
    assert re.findall(r"^\| `([a-z ]+)` \|", page, re.MULTILINE) == KINDS


@pytest.mark.parametrize("type_", TYPES, ids=lambda t: t.kind)
def test_a_type_is_frozen_and_slotted_and_has_an_upgrade_for_every_version_before(type_: type[Record[Any]]) -> None:
    assert type_.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(type_)
    assert len(type_.upgrades) == type_.version
    assert type_.__doc__
    assert not type_.__doc__.startswith(type_.__name__), "it has no docstring of its own"


@pytest.mark.parametrize("type_", TYPES, ids=lambda t: t.kind)
def test_records_and_their_keys_come_back_as_they_were(type_: type[Record[Any]]) -> None:
    @given(values(type_))
    def comes_back(record: Record[Any]) -> None:
        row = json.loads(json.dumps([record.kind, record.version, *record.to_plain()]))
        assert read_record(*row) == record
        forgotten = type_.forgotten(record.key)
        assert read_forgotten(*json.loads(json.dumps([forgotten.kind, forgotten.to_plain()]))) == forgotten
        assert codec_of_keys(type_).decode(json.loads(json.dumps(forgotten.to_plain()))) == record.key

    comes_back()


@given(st.lists(st.one_of([values(t) for t in TYPES]), max_size=8))
def test_a_store_has_after_a_snapshot_what_it_had(records: list[Record[Any]]) -> None:
    mine = Records()
    mine.apply(records)
    again = Records()
    again.apply(read_record(*row) for row in json.loads(json.dumps(mine.to_plain())))
    assert again.by_kind == mine.by_kind


def test_of_changes_to_one_record_only_the_last_is_written() -> None:
    changes: list[Change] = forget_all(SlotRecord, [F, G])
    changes += [SlotRecord(F, 1), FloorRecord(F, 5), forget(FloorRecord, F)]
    assert last_of_each(changes) == (SlotRecord(F, 1), forget(SlotRecord, G), forget(FloorRecord, F))


def test_records_are_found_by_type_and_key_and_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert store.record(NumbersRecord) is None
    records: list[Change] = [NumbersRecord(1, 2, 3), *(DrainedRecord(n, f) for n in (10, 9) for f in (G, F))]
    store.commit(Commit(records=(*records, forget(DrainedRecord, (9, F)))))
    for _ in range(2):
        assert store.record(NumbersRecord) == NumbersRecord(1, 2, 3)
        assert store.record(DrainedRecord, (9, F)) is None
        assert list(store.records(DrainedRecord)) == [(9, G), (10, F), (10, G)]
        assert store.records(FloorRecord) == {}
        store.close()
        store = Store.open(tmp_path)
    store.close()


def test_a_record_of_a_fragment_that_is_retired_goes_with_its_slot(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.commit(Commit(records=(SlotRecord(F, 1), SlotRecord(G, 0))))
    store.commit(Commit(retire=(F,)))
    assert store.records(SlotRecord) == {G: SlotRecord(G, 0)}
    store.close()


# ---------------------------------------------------------------- what is refused


@dataclass(frozen=True, slots=True)
class FutureRecord(Record[str]):
    """A record of a kind that comes later."""

    kind: ClassVar[str] = "future"
    name: str

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class LaterSlotRecord(Record[FragmentId]):
    """A record of a version that comes later."""

    kind: ClassVar[str] = "slot"
    version: ClassVar[int] = 2
    upgrades = (as_noted, as_noted)
    fragment: FragmentId
    slot: int

    @property
    def key(self) -> FragmentId:
        return self.fragment


def written_later(directory: Path, record: Record[Any], monkeypatch: pytest.MonkeyPatch, *, packed: bool) -> None:
    """A store of a later program with a record in its snapshot, or behind it."""
    with monkeypatch.context() as later:
        later.setattr(table, "BY_KIND", {**table.BY_KIND, record.kind: type(record)})
        later.setattr(snapshot, "version", lambda _: "7.8.9")
        snapshot.program.cache_clear()
        store = Store.open(directory)
        store.commit(Commit(records=(record,)))
        if packed:
            store.snapshot()
        store.close()
    snapshot.program.cache_clear()


@pytest.mark.parametrize("packed", [False, True])
def test_a_kind_that_is_not_known_is_named_with_the_program_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    written_later(tmp_path, FutureRecord("a"), monkeypatch, packed=packed)
    with pytest.raises(UnknownRecordError) as refused:
        Store.open(tmp_path)
    assert str(refused.value) == (
        f"records of kind 'future' are not known; Meander 7.8.9 wrote {tmp_path}, and this is {snapshot.program()}: "
        "open it with that one or a newer one"
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_version_that_is_not_known_is_named_with_the_program_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    written_later(tmp_path, LaterSlotRecord(F, 1), monkeypatch, packed=packed)
    with pytest.raises(UnknownRecordError, match=r"record 'slot' \[3, 1\] has version 2, and only versions up to 1 .*"):
        Store.open(tmp_path)
    with pytest.raises(UnknownRecordError, match=r"Meander 7\.8\.9 wrote"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["slot", 1, 3], r"record 'slot' \[3\] cannot be read: \[3\] has 1 values, not 2; bring the directory back"),
        (["slot", 1, 3, "1"], "'1' is not int"),
        (["slot", 1, 3, True], "True is not int"),
        (["fragment", 1, [1, 1, 2, [3]]], "has 4 values, not 5"),
        (["fragment", 1, [1, 1, 2, "34", []]], "'34' is not a list"),
        (["decided", 1, 1, ["west"], []], r"\[\] is not an object"),
        (["decided", 0, 1, {"sites": []}], "'told'"),
        (["reconfiguration", 0, 1, [3]], "list indices"),
    ],
)
def test_a_record_that_is_not_what_its_type_says_is_named_with_the_reason(row: list[Any], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        read_record(*row)


def test_a_record_that_damages_a_store_keeps_it_from_opening(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.commit(Commit(records=(FragmentRecord(Fragment(F, 1, "edge", (), ())),)))  # type: ignore[arg-type]
    store.close()
    with pytest.raises(RecordError, match=r"record 'fragment' .* 'edge' is not int; bring the directory back"):
        Store.open(tmp_path)


def test_a_store_of_a_newer_format_is_refused_with_the_program_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "FORMAT", snapshot.FORMAT + 1)
    monkeypatch.setattr(snapshot, "version", lambda name: "7.8.9")
    snapshot.program.cache_clear()
    Store.open(tmp_path).close()
    monkeypatch.undo()
    snapshot.program.cache_clear()
    with pytest.raises(UnknownRecordError, match=r"the store has format 2, .* up to 1; Meander 7\.8\.9 wrote"):
        Store.open(tmp_path)
