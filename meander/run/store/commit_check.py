"""The check of a commit against what is known: all that could be wrong with it is found before anything changes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from meander.deploy.freezing import Fork
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelAppend
from meander.run.store.commit import CommitConflictError, StateMerge
from meander.run.store.encoding import Envelope, Prepared, schema_text
from meander.run.store.payloads import Schemas, Sealed, fitted, plain_schema
from meander.run.store.views import LastBatch, Views


def repeated(views: Views, prepared: Prepared) -> LastBatch | None:
    """The batch that this commit repeats, if it does; a different content under the same id is refused."""
    commit = prepared.commit
    last = views.writers.get(commit.writer) if commit.writer else None
    if last is None or commit.batch_id > last.batch_id:
        return None
    if commit.batch_id == last.batch_id and prepared.digest != last.digest:
        raise CommitConflictError(
            f"batch {commit.batch_id} of {commit.writer} is committed with a different content; "
            "ask last_batch() before a batch is computed again"
        )
    return last


class CommitCheck:
    """One commit. Guarded by the store's lock."""

    def __init__(self, views: Views, prepared: Prepared) -> None:
        self._views, self._prepared, self._commit = views, prepared, prepared.commit
        self._numbering = _Numbering(views.schemas)
        self._added: dict[int, int] = {}
        """The schemas of channels that the commit adds."""

    def envelope(self) -> Envelope:
        """The envelope of the commit, with numbers for its schemas; refuses what does not fit."""
        prepared, commit, numbering = self._prepared, self._commit, self._numbering
        for fragment, version in commit.versions.items():
            if version < self._views.versions.get(fragment, version):
                raise CommitConflictError(
                    f"fragment {fragment} runs as version {self._views.versions[fragment]}; version {version} has ended"
                )
        self._check_structure()
        self._check_positions()
        self._check_renames()
        tables = iter(prepared.tables)
        numbers = self._check_state([next(tables) for _ in commit.state_appends])
        numbers += [self._check_merge(merge, next(tables)) for merge in commit.state_merges]
        for append, entry in zip(commit.appends, prepared.content.get("appends", []), strict=True):
            number = self._check_append(append, next(tables) if entry[0] else None)
            if number is not None:
                numbers.append(number)
        return Envelope(
            writer=commit.writer,
            batch=commit.batch_id,
            digest=prepared.digest,
            now=0,
            schemas=numbers,
            added=[self._added[spec.channel] for spec in commit.add],
            new=[[number, schema_text(schema)] for number, schema in numbering.new.items()],
        )

    def _check_structure(self) -> None:
        commit, added = self._commit, self._added
        for spec in commit.add:
            if spec.channel in self._views.channels.by_id or spec.channel in added:
                raise InputError(f"channel {spec.channel} exists already; choose another id or remove it first")
            added[spec.channel] = self._numbering.of(plain_schema(spec.schema, f"channel {spec.channel}"))
        for rewire in commit.rewire:
            self._known(rewire.channel)
            if rewire.delay_ms is not None and rewire.delay_ms < 0:
                raise InputError(f"channel {rewire.channel}: delay_ms is {rewire.delay_ms}; it must not be negative")
        for fork in commit.forks:
            self._check_fork(fork)
        appended = {c for a in commit.appends for c in a.channels[a.lengths > 0].tolist()} if commit.remove else set()
        for forgetful in (*commit.forget, *commit.renew):
            self._known(forgetful)
        self._check_realigned()
        for removal in commit.remove:
            self._known(removal.channel)
            channel = self._views.channels.by_id.get(removal.channel)
            if channel is None or removal.discard:
                continue
            waiting = channel.tuples_from(commit.consumed.get(removal.channel, channel.head))
            if waiting or removal.channel in appended:
                raise InputError(
                    f"channel {removal.channel} still holds {waiting or 'new'} tuples; "
                    "consume them first, or remove it with discard"
                )

    def _check_realigned(self) -> None:
        for realigned in self._commit.realign:
            copy = self._views.channels[realigned.channel]
            if not copy.head <= realigned.cut <= copy.tail or realigned.begin < realigned.cut:
                raise CommitConflictError(
                    f"channel {copy.channel} holds positions {copy.head} to {copy.tail}; it cannot be cut at "
                    f"{realigned.cut} and go on at {realigned.begin}"
                )
        for renumbered in self._commit.renumber:
            log = self._views.channels[renumbered.channel]
            starts = {entry.first for entry in log.overlapping(log.head, log.tail)} | {log.head, log.tail}
            if renumbered.first not in starts or not log.head <= renumbered.first <= renumbered.to:
                raise CommitConflictError(
                    f"channel {log.channel} holds positions {log.head} to {log.tail}; its records cannot be numbered "
                    f"from {renumbered.to} on where {renumbered.first} is"
                )

    def _check_fork(self, fork: Fork) -> None:
        self._known(fork.channel)
        source, target = self._views.channels[fork.of], self._views.channels.by_id.get(fork.channel)
        if source.schema != (self._added[fork.channel] if target is None else target.schema):
            raise InputError(
                f"channels {fork.channel} and {fork.of} differ in schema; one cannot hold what the other does"
            )

    def _known(self, channel: ChannelId) -> None:
        if channel not in self._added:
            self._views.channels[channel]

    def _check_positions(self) -> None:
        commit, by_id = self._commit, self._views.channels.by_id
        for channel, position in commit.consumed.items():
            if channel in self._added and position == 0:
                continue
            view = by_id.get(channel) or self._views.channels[channel]
            if not view.head <= position <= view.tail:
                raise CommitConflictError(
                    f"channel {channel} holds positions {view.head} to {view.tail}; it cannot be consumed to {position}"
                )
        for passed in commit.passed:
            for channel in passed.channels.tolist():
                found = by_id.get(channel)
                if found is None:
                    self._known(channel)
                elif commit.consumed.get(ChannelId(channel), found.head) != found.tail:
                    raise CommitConflictError(
                        f"channel {channel} is not empty, so tuples cannot overtake what waits in it; consume it first"
                    )

    def _check_renames(self) -> None:
        commit = self._commit
        taken = {(r.fragment, r.operator) for r in commit.state_renames}
        limits = {
            (f, o): b
            for d in commit.state_drops
            if d.below
            for f, o, b in zip(d.fragments.tolist(), d.operators.tolist(), d.buckets.tolist(), strict=True)
        }
        for r in commit.state_renames:
            place = (r.to_fragment, r.to_operator)
            found = None if place in taken else self._views.state.find(*place)
            if found is not None and found.between(limits.get(place), None):
                raise CommitConflictError(
                    f"fragment {r.to_fragment}, operator {r.to_operator} has state already; "
                    f"that of fragment {r.fragment} cannot take its place"
                )

    def _check_state(self, tables: Sequence[Sealed]) -> list[int]:
        commit, numbering = self._commit, self._numbering
        numbers: list[int] = []
        seen: dict[tuple[int, int], int] = {}
        for append, table in zip(commit.state_appends, tables, strict=True):
            number = numbering.of(plain_schema(table.batch.schema, "append to state"))
            for fragment, operator in zip(append.fragments.tolist(), append.operators.tolist(), strict=True):
                found = self._views.state.find(fragment, operator)
                expected = seen.setdefault((fragment, operator), number if found is None else found.schema)
                if expected != number:
                    wanted = self._views.schemas.by_number.get(expected) or numbering.new[expected]
                    fitted(table.batch, wanted, f"state of fragment {fragment}, operator {operator}")
            numbers.append(number)
        return numbers

    def _check_merge(self, merge: StateMerge, table: Sealed) -> int:
        keys = (merge.fragments, merge.operators, merge.buckets, merge.firsts, merge.pieces)
        number: int | None = None
        for fragment, operator, bucket, first, pieces in zip(*(k.tolist() for k in keys), strict=True):
            if not self._views.state.starts_with(fragment, operator, bucket, first, pieces):
                raise CommitConflictError(
                    f"state of fragment {fragment}, operator {operator}, bucket {bucket} changed while it was merged; "
                    "merge it again"
                )
            found = self._views.state.find(fragment, operator)
            assert found is not None
            if number not in (None, found.schema):
                raise InputError("merged state: its partitions have different schemas; merge them separately")
            number = found.schema
        if number is None:
            raise InputError("merged state: no partition is named")
        fitted(table.batch, self._views.schemas.by_number[number], "merged state")
        return number

    def _check_append(self, append: ChannelAppend, table: Sealed | None) -> int | None:
        channels, by_id = append.channels.tolist(), self._views.channels.by_id
        first: int | None = None
        for channel in channels:
            found = by_id.get(channel)
            number = found.schema if found is not None else self._added.get(channel)
            if number is None:
                self._views.channels[channel]  # raises: it is not known
            if first is None:
                first = number
            elif number != first and table is not None:
                raise InputError(
                    f"channels {channels[0]} and {channel} have different schemas; append a table for each"
                )
        if table is None or first is None:
            return None
        fitted(table.batch, self._schema(first), f"channel {channels[0]}")
        return first

    def _schema(self, number: int) -> pa.Schema:
        return self._views.schemas.by_number.get(number) or self._numbering.new[number]


class _Numbering:
    """Finds or gives out schema numbers; new ones become known only when the record is applied."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.new: dict[int, pa.Schema] = {}

    def of(self, schema: pa.Schema) -> int:
        number = self._schemas.number_of(schema)
        if number is not None:
            return number
        for given, other in self.new.items():
            if other.equals(schema):
                return given
        number = self._schemas.next_number + len(self.new)
        self.new[number] = schema
        return number
