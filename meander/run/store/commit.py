"""Commits: everything one step changes, applied as a whole or not at all.

A commit is plain data. Its parts take effect in this order: channels added or rewired, forked, realigned or
renumbered, positions consumed, tuples passed through, state dropped, state appended, channels appended to, counters
and records, state renamed, fragments retired, channels removed, state copied, what was consumed forgotten. So dropping
and appending the same partition replaces it, a fragment can hand its state over and end, and a channel can be emptied
and removed in one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from meander.deploy.freezing import Fork
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec, Int64s, int64s
from meander.run.store.incarnations import Lineage
from meander.run.store.records.record import Change, Record, RecordType

K = TypeVar("K")

Writer = NewType("Writer", str)
"""The owner of the batch ids of a commit. A batch id of a writer takes effect once."""

NOBODY = Writer("")
"""For changes that need no protection against being repeated."""


def slot_writer(slot: int) -> Writer:
    return Writer(f"slot {slot}")


def transfer_writer(fragment: FragmentId, transfer: str) -> Writer:
    """For state that arrives from elsewhere; its chunks are the batches. Forgotten when the fragment is retired."""
    return Writer(f"fragment {fragment} transfer {transfer}")


class CommitConflictError(Exception):
    """A commit contradicts what is committed already. Nothing of it took effect."""


REFUSED = (InputError, CommitConflictError, pa.ArrowException)
"""The errors of a commit that does not fit: nothing of it took effect."""


@dataclass(frozen=True, slots=True)
class RemoveChannel:
    """Closes a channel; `discard` allows tuples to wait in it still."""

    channel: ChannelId
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Rewire:
    """Another receiver for a channel and all that waits in it; the rest stays as it is where it is None."""

    channel: ChannelId
    receiver: FragmentId | None
    delay_ms: int | None = None
    is_cut: bool | None = None
    """Whether there is no way at the moment: what is appended waits, nothing can be read."""
    sender: FragmentId | None = None
    keeps: bool | None = None
    """Whether the channel keeps what its receiver has consumed, until it is told to forget."""


@dataclass(frozen=True, slots=True)
class Realign:
    """A copy follows its log, which has lost its end or begins later than the copy ends."""

    channel: ChannelId
    lineage: Lineage
    """The incarnations of the log, as far as the copy follows them."""
    cut: int
    """From here on the log has other records under the copy's numbers: the copy lets go of its own."""
    begin: int
    """The number of the next record."""


@dataclass(frozen=True, slots=True)
class Renumber:
    """A log whose copy has processed records that the log has lost: those it has written since get numbers behind."""

    channel: ChannelId
    first: int
    """The position that its first record since has."""
    to: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Tuples that were appended to and consumed from empty channels within the step: they are counted, never stored."""

    channels: Int64s
    lengths: Int64s
    watermarks: Int64s

    @staticmethod
    def of(channels: ArrayLike, lengths: ArrayLike, watermarks: ArrayLike | None = None) -> Passed:
        sizes = int64s(lengths)
        marks = np.full(sizes.size, NO_WATERMARK, np.int64) if watermarks is None else int64s(watermarks)
        return Passed(int64s(channels), sizes, marks)


@dataclass(frozen=True, slots=True)
class StateAppend:
    """Rows of one table for state partitions: entry i appends `lengths[i]` rows from `offsets[i]` on."""

    table: pa.Table | pa.RecordBatch
    fragments: Int64s
    operators: Int64s
    buckets: Int64s
    offsets: Int64s
    lengths: Int64s

    @staticmethod
    def sliced(
        table: pa.Table | pa.RecordBatch,
        operators: ArrayLike,
        fragments: ArrayLike,
        buckets: ArrayLike,
        lengths: ArrayLike,
    ) -> StateAppend:
        """A table sorted by partition already. `operators` may be one number for all entries."""
        sizes, keys = int64s(lengths), int64s(fragments)
        places = np.ascontiguousarray(np.broadcast_to(np.asarray(operators, np.int64), keys.shape))
        return StateAppend(table, keys, places, int64s(buckets), np.cumsum(sizes) - sizes, sizes)


@dataclass(frozen=True, slots=True)
class StateDrop:
    """Partitions to drop: exactly those named, or with `below` all buckets of the operator before the named one."""

    fragments: Int64s
    operators: Int64s
    buckets: Int64s
    below: bool = False

    @staticmethod
    def of(operators: ArrayLike, fragments: ArrayLike, buckets: ArrayLike, *, below: bool = False) -> StateDrop:
        keys = int64s(fragments)
        places = np.ascontiguousarray(np.broadcast_to(np.asarray(operators, np.int64), keys.shape))
        limits = np.ascontiguousarray(np.broadcast_to(np.asarray(buckets, np.int64), keys.shape))
        return StateDrop(keys, places, limits, below)


@dataclass(frozen=True, slots=True)
class StateRename:
    """All state of one operator gets another fragment and number. Renames of one commit happen at the same moment."""

    fragment: FragmentId
    operator: int
    to_fragment: FragmentId
    to_operator: int


@dataclass(frozen=True, slots=True)
class StateCopy:
    """All state of a fragment as it is, under another fragment's number too; nothing is written twice."""

    fragment: FragmentId
    to_fragment: FragmentId


@dataclass(frozen=True, slots=True)
class StateMerge:
    """Puts slices of a merged table in the place of partitions' oldest appends, `pieces[i]` of them.

    `firsts` are the numbers of the records that the oldest pieces came with: a partition that was dropped or merged
    since is recognised by them, and the commit is refused.
    """

    table: pa.Table | pa.RecordBatch
    fragments: Int64s
    operators: Int64s
    buckets: Int64s
    firsts: Int64s
    pieces: Int64s
    offsets: Int64s
    lengths: Int64s


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that changes together."""

    writer: Writer = NOBODY
    batch_id: int = 0
    versions: Mapping[FragmentId, int] = field(default_factory=dict)
    """The version each fragment ran as. A version below one that has committed is refused."""
    add: tuple[ChannelSpec, ...] = ()
    rewire: tuple[Rewire, ...] = ()
    forks: tuple[Fork, ...] = ()
    """Channels that hold from now on what waits in others; nothing is written twice."""
    remove: tuple[RemoveChannel, ...] = ()
    realign: tuple[Realign, ...] = ()
    renumber: tuple[Renumber, ...] = ()
    renew: tuple[ChannelId, ...] = ()
    """Logs that go on here, in a new incarnation: the one elsewhere may have written more."""
    consumed: Mapping[ChannelId, int] = field(default_factory=dict)
    """Position up to which each channel has been processed; what lies before it is let go."""
    passed: tuple[Passed, ...] = ()
    appends: tuple[ChannelAppend, ...] = ()
    state_drops: tuple[StateDrop, ...] = ()
    state_appends: tuple[StateAppend, ...] = ()
    state_merges: tuple[StateMerge, ...] = ()
    retire: tuple[FragmentId, ...] = ()
    """Fragments that ended: their state, counters, version and binding are dropped."""
    state_renames: tuple[StateRename, ...] = ()
    state_copies: tuple[StateCopy, ...] = ()
    """Made last of all; what was under the new number before gives way."""
    forget: tuple[ChannelId, ...] = ()
    """Channels that need not keep what their receivers have consumed so far."""
    counters: Mapping[tuple[FragmentId, str], int] = field(default_factory=dict)
    """The increments, by fragment and name ('late', 'malformed')."""
    acknowledged: Mapping[str, int] = field(default_factory=dict)
    """Position up to which each sink has taken its results."""
    records: tuple[Change, ...] = ()
    """Records to remember, each in the place of the one with its key, and records to forget, in this order."""
    settles: bool = True
    """Whether its writer waits until it survives what `durability` promises. It is visible before: whoever tells
    somebody outside of it has to wait (`Store.syncer`). Not written down."""

    def changed(self, of: RecordType[K, Record[Any]]) -> set[K]:
        """Keys of the records of one type that are remembered or forgotten."""
        return {change.key for change in self.records if change.kind == of.kind}


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The record that holds a commit; `repeated` if it was there already."""

    number: int
    repeated: bool = False
