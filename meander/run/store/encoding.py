"""Encoding: a commit as it lies in the journal, and back.

Integers that come per channel or per partition are one array, tables are one section each, the rest is a short JSON
header. Encoding happens before any lock is taken. A digest over the content tells a repeated commit from a different
one.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from meander.model.errors import InputError
from meander.run.channels.base import ChannelAppend, Int64s
from meander.run.memoised import memoised
from meander.run.store.commit import Commit, StateAppend, StateMerge
from meander.run.store.framing import Section, section
from meander.run.store.incarnations import next_number
from meander.run.store.payloads import Sealed, one_batch
from meander.run.store.records.former_notes import changes_of
from meander.run.store.records.record import Change, Forgotten
from meander.run.store.records.table import last_of_each, read_forgotten, read_record

MOST_SCHEMAS = 1_000
"""Texts of schemas whose meaning is remembered."""


class Content(TypedDict, total=False):
    """The content of a commit except its arrays and tables. Counts give the numbers of each part."""

    versions: int | list[list[int]]
    """How many; the pairs themselves in journals of before they were among the numbers."""
    add: list[list[Any]]
    rewire: list[list[Any]]
    forks: list[list[int]]
    remove: list[list[int]]
    realign: list[list[Any]]
    """Channel, cut, begin, and the numbers and bases of the lineage."""
    renumber: list[list[int]]
    renew: list[list[int]]
    """Channel and number of the incarnation."""
    consumed: int
    passed: list[int]
    drops: list[list[int]]
    state: list[list[int]]
    merges: list[list[int]]
    appends: list[list[Any]]
    retire: list[int]
    renames: list[list[int]]
    copies: list[list[int]]
    forget: list[int]
    counters: list[list[Any]]
    acknowledged: dict[str, int]
    records: list[list[Any]]
    """Kind, version and values of each."""
    forgotten: list[list[Any]]
    """Kind and key of each."""
    notes: dict[str, Any]
    """The notes of journals from before there were types of records."""


class Envelope(TypedDict):
    """The fields that are known only when the record is written."""

    writer: str
    batch: int
    digest: int
    now: int
    schemas: list[int]
    """Schema number of each table."""
    added: list[int]
    """Schema number of each added channel."""
    new: list[list[Any]]
    """Schemas that no earlier record has: number and serialised form."""
    incarnation: NotRequired[int]
    """In the first record after the store was opened: the number of the incarnation that began with it."""


class Numbers:
    """Reads the record's integers in the order in which they were written."""

    def __init__(self, values: Int64s) -> None:
        self._values = values
        self._at = 0

    def take(self, count: int) -> list[int]:
        self._at += count
        taken: list[int] = self._values[self._at - count : self._at].tolist()
        return taken


@dataclass(frozen=True, slots=True)
class Prepared:
    """An encoded commit."""

    commit: Commit
    content: Content
    encoded: bytes
    numbers: Int64s
    numbers_section: Section
    tables: tuple[Sealed, ...]
    digest: int
    records: tuple[Change, ...]
    """The changes of records in the commit, each record once."""

    @property
    def sections(self) -> list[Section]:
        return [self.numbers_section, *(t.section for t in self.tables)]

    def header(self, envelope: Envelope) -> bytes:
        return b"[" + _json(envelope) + b"," + self.encoded + b"]"


def prepare(commit: Commit) -> Prepared:
    """Checks what can be checked without looking at the channels, and encodes."""
    content: Content = {}
    columns: list[Int64s] = []
    tables: list[Sealed] = []
    changes = last_of_each(commit.records)
    _structure(commit, content)
    _records(changes, content)
    if commit.versions:
        content["versions"] = len(commit.versions)
        columns += [_from(commit.versions.keys()), _from(commit.versions.values())]
    if commit.consumed:
        content["consumed"] = len(commit.consumed)
        columns += [_from(commit.consumed.keys()), _from(commit.consumed.values())]
    if commit.passed:
        content["passed"] = [p.channels.size for p in commit.passed]
        for p in commit.passed:
            columns += _alike("passed tuples", p.channels, p.lengths, p.watermarks)
            if p.lengths.size and p.lengths.min() < 0:
                raise InputError("passed tuples: a length is negative")
    if commit.state_drops:
        content["drops"] = [[d.fragments.size, int(d.below)] for d in commit.state_drops]
        for d in commit.state_drops:
            columns += _alike("state drop", d.fragments, d.operators, d.buckets)
    if commit.state_appends:
        content["state"] = [_state(s, columns, tables) for s in commit.state_appends]
    if commit.state_merges:
        content["merges"] = [_merge(m, columns, tables) for m in commit.state_merges]
    if commit.appends:
        content["appends"] = [_append(a, columns, tables) for a in commit.appends]
    numbers = np.concatenate(columns) if columns else np.empty(0, np.int64)
    try:
        encoded = _json(content)
    except (TypeError, ValueError) as problem:
        raise InputError(
            f"a record is not plain JSON ({problem}); use numbers, text, lists and dictionaries"
        ) from problem
    numbers_section = section(numbers)
    digest = zlib.crc32(numbers_section.checksum.to_bytes(8, "little"), zlib.crc32(encoded))
    for table in tables:
        digest = zlib.crc32(table.section.checksum.to_bytes(8, "little"), digest)
    return Prepared(commit, content, encoded, numbers, numbers_section, tuple(tables), digest, changes)


def _structure(commit: Commit, content: Content) -> None:
    if commit.add:
        content["add"] = [[a.channel, a.sender, a.receiver, a.delay_ms] for a in commit.add]
    if commit.rewire:
        content["rewire"] = [[r.channel, r.receiver, r.delay_ms, r.is_cut, r.sender, r.keeps] for r in commit.rewire]
    if commit.forks:
        content["forks"] = [[f.channel, f.of] for f in commit.forks]
    if commit.remove:
        content["remove"] = [[r.channel, int(r.discard)] for r in commit.remove]
    if commit.realign:
        content["realign"] = [[r.channel, r.cut, r.begin, [list(i) for i in r.lineage]] for r in commit.realign]
    if commit.renumber:
        content["renumber"] = [[r.channel, r.first, r.to] for r in commit.renumber]
    if commit.renew:
        content["renew"] = [[int(c), next_number(0)] for c in commit.renew]
    if commit.retire:
        content["retire"] = [int(f) for f in commit.retire]
    if commit.state_renames:
        content["renames"] = [[r.fragment, r.operator, r.to_fragment, r.to_operator] for r in commit.state_renames]
    if commit.state_copies:
        content["copies"] = [[c.fragment, c.to_fragment] for c in commit.state_copies]
    if commit.forget:
        content["forget"] = [int(c) for c in commit.forget]
    if commit.counters:
        content["counters"] = [[int(f), name, int(n)] for (f, name), n in commit.counters.items()]
    if commit.acknowledged:
        content["acknowledged"] = {sink: int(n) for sink, n in commit.acknowledged.items()}


def _records(changes: Sequence[Change], content: Content) -> None:
    kept = [[c.kind, c.version, *c.to_plain()] for c in changes if not isinstance(c, Forgotten)]
    if kept:
        content["records"] = kept
    forgotten = [[c.kind, c.to_plain()] for c in changes if isinstance(c, Forgotten)]
    if forgotten:
        content["forgotten"] = forgotten


def changes_in(content: Content) -> list[Change]:
    """The changes of records in a commit that was read."""
    return [
        *(changes_of(content["notes"]) if "notes" in content else ()),
        *(read_record(*row) for row in content.get("records", ())),
        *(read_forgotten(*row) for row in content.get("forgotten", ())),
    ]


def _append(append: ChannelAppend, columns: list[Int64s], tables: list[Sealed]) -> list[Any]:
    what = "append to channels"
    columns += _alike(what, append.channels, append.offsets, append.lengths, append.watermarks)
    rows = 0
    if append.table is not None:
        batch = one_batch(append.table, what)
        rows = batch.num_rows
    _inside(what, append.offsets, append.lengths, rows)
    if any(not 0 <= i < append.channels.size for i in append.markers):
        raise InputError(f"{what}: a marker belongs to an entry that does not exist; entries count from 0")
    stored = rows > 0 and bool(append.lengths.any())
    if stored:
        tables.append(Sealed.of(batch))
    return [int(stored), append.channels.size, rows, [[i, m.to_json()] for i, m in sorted(append.markers.items())]]


def _state(append: StateAppend, columns: list[Int64s], tables: list[Sealed]) -> list[int]:
    what = "append to state"
    columns += _alike(what, append.fragments, append.operators, append.buckets, append.offsets, append.lengths)
    batch = one_batch(append.table, what)
    _inside(what, append.offsets, append.lengths, batch.num_rows)
    tables.append(Sealed.of(batch))
    return [append.fragments.size, batch.num_rows]


def _merge(merge: StateMerge, columns: list[Int64s], tables: list[Sealed]) -> list[int]:
    what = "merged state"
    keys = (merge.fragments, merge.operators, merge.buckets)
    columns += _alike(what, *keys, merge.firsts, merge.pieces, merge.offsets, merge.lengths)
    batch = one_batch(merge.table, what)
    _inside(what, merge.offsets, merge.lengths, batch.num_rows)
    if len(set(zip(*(k.tolist() for k in keys), strict=True))) != merge.fragments.size:
        raise InputError(f"{what}: a partition is named twice; merge it once")
    tables.append(Sealed.of(batch))
    return [merge.fragments.size, batch.num_rows]


def _alike(what: str, *columns: Int64s) -> Sequence[Int64s]:
    if len({c.size for c in columns}) != 1:
        raise InputError(f"{what}: its arrays have {', '.join(str(c.size) for c in columns)} entries; make them equal")
    return columns


def _inside(what: str, offsets: Int64s, lengths: Int64s, rows: int) -> None:
    if offsets.size and (offsets.min() < 0 or lengths.min() < 0 or (offsets + lengths).max() > rows):
        raise InputError(f"{what}: a slice reaches outside the table's {rows} rows")


def _from(values: Iterable[int]) -> Int64s:
    return np.array(list(values), np.int64)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(header: bytes) -> tuple[Envelope, Content]:
    envelope, content = json.loads(header)
    return envelope, content


@memoised
def schema_text(schema: pa.Schema) -> str:
    """A schema inside a JSON header."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


@lru_cache(maxsize=MOST_SCHEMAS)
def schema_from(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
