"""Views: everything that is known from the journal, and how a record changes it.

`check` looks at a commit without changing anything; after it has passed, `apply` cannot fail. The same `apply` runs
for a new record and for one that is replayed, so that what is seen after a restart is what was seen before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from meander.deploy.freezing import Fork
from meander.deploy.markers import Marker
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK
from meander.run.store.channel_log import ChannelLog, Channels
from meander.run.store.commit import Commit, CommitConflictError
from meander.run.store.encoding import Content, Envelope, Numbers, Prepared, changes_in, schema_from, schema_text
from meander.run.store.framing import Place
from meander.run.store.incarnations import Incarnation, newest, renewed
from meander.run.store.partitions import PartitionKey, Partitions, Piece, packed
from meander.run.store.payloads import NO_PAYLOAD, Payload, Payloads, Schemas, Sealed, fitted, plain_schema
from meander.run.store.records.deployment import SlotRecord
from meander.run.store.records.record import Change, forget
from meander.run.store.records.table import Records
from meander.run.store.records.transport import CopyRecord

UNKNOWN_PROGRAM = "0.1.0, or one before it"
"""The program that wrote stores without a name in them."""


class LastBatch(NamedTuple):
    """The newest batch of a writer, what it contained, and the record that holds it."""

    batch_id: int
    digest: int
    number: int


class Views:
    """Channels, state, and the small facts. Guarded by the store's lock."""

    def __init__(self, schemas: Schemas, payloads: Payloads) -> None:
        self.schemas, self.payloads = schemas, payloads
        self.channels = Channels()
        self.state = Partitions()
        self.writers: dict[str, LastBatch] = {}
        self.versions: dict[int, int] = {}
        self.counters: dict[tuple[int, str], int] = {}
        self.acknowledged: dict[str, int] = {}
        self.records = Records()
        self.program = UNKNOWN_PROGRAM
        """Which version of the program wrote the newest segment."""
        self.incarnation = 0
        """The number that all logs got when the store was opened last."""

    # Checking

    def repeated(self, prepared: Prepared) -> LastBatch | None:
        """The batch that this commit repeats, if it does; a different content under the same id is refused."""
        commit = prepared.commit
        last = self.writers.get(commit.writer) if commit.writer else None
        if last is None or commit.batch_id > last.batch_id:
            return None
        if commit.batch_id == last.batch_id and prepared.digest != last.digest:
            raise CommitConflictError(
                f"batch {commit.batch_id} of {commit.writer} is committed with a different content; "
                "ask last_batch() before a batch is computed again"
            )
        return last

    def check(self, prepared: Prepared) -> Envelope:
        """Refuses what does not fit; numbers the schemas."""
        commit = prepared.commit
        for fragment, version in commit.versions.items():
            if version < self.versions.get(fragment, version):
                raise CommitConflictError(
                    f"fragment {fragment} runs as version {self.versions[fragment]}; version {version} has ended"
                )
        numbering = _Numbering(self.schemas)
        added = self._check_structure(commit, numbering)
        self._check_positions(commit, added)
        self._check_renames(commit)
        tables = iter(prepared.tables)
        numbers = self._check_state(commit, [next(tables) for _ in commit.state_appends], numbering)
        numbers += [self._check_merge(commit, index, next(tables)) for index in range(len(commit.state_merges))]
        for index, entry in enumerate(prepared.content.get("appends", [])):
            number = self._check_append(commit, index, next(tables) if entry[0] else None, added)
            if number is not None:
                numbers.append(number)
        return Envelope(
            writer=commit.writer,
            batch=commit.batch_id,
            digest=prepared.digest,
            now=0,
            schemas=numbers,
            added=[added[spec.channel] for spec in commit.add],
            new=[[number, schema_text(schema)] for number, schema in numbering.new.items()],
        )

    def _check_structure(self, commit: Commit, numbering: _Numbering) -> dict[int, int]:
        added: dict[int, int] = {}
        for spec in commit.add:
            if spec.channel in self.channels.by_id or spec.channel in added:
                raise InputError(f"channel {spec.channel} exists already; choose another id or remove it first")
            added[spec.channel] = numbering.of(plain_schema(spec.schema, f"channel {spec.channel}"))
        for rewire in commit.rewire:
            self._known(rewire.channel, added)
            if rewire.delay_ms is not None and rewire.delay_ms < 0:
                raise InputError(f"channel {rewire.channel}: delay_ms is {rewire.delay_ms}; it must not be negative")
        for fork in commit.forks:
            self._check_fork(fork, added)
        appended = {c for a in commit.appends for c in a.channels[a.lengths > 0].tolist()} if commit.remove else set()
        for forgetful in (*commit.forget, *commit.renew):
            self._known(forgetful, added)
        self._check_realigned(commit)
        for removal in commit.remove:
            self._known(removal.channel, added)
            channel = self.channels.by_id.get(removal.channel)
            if channel is None or removal.discard:
                continue
            waiting = channel.tuples_from(commit.consumed.get(removal.channel, channel.head))
            if waiting or removal.channel in appended:
                raise InputError(
                    f"channel {removal.channel} still holds {waiting or 'new'} tuples; "
                    "consume them first, or remove it with discard"
                )
        return added

    def _check_realigned(self, commit: Commit) -> None:
        for realigned in commit.realign:
            copy = self.channels[realigned.channel]
            if not copy.head <= realigned.cut <= copy.tail or realigned.begin < realigned.cut:
                raise CommitConflictError(
                    f"channel {copy.channel} holds positions {copy.head} to {copy.tail}; it cannot be cut at "
                    f"{realigned.cut} and go on at {realigned.begin}"
                )
        for renumbered in commit.renumber:
            log = self.channels[renumbered.channel]
            starts = {entry.first for entry in log.overlapping(log.head, log.tail)} | {log.head, log.tail}
            if renumbered.first not in starts or not log.head <= renumbered.first <= renumbered.to:
                raise CommitConflictError(
                    f"channel {log.channel} holds positions {log.head} to {log.tail}; its records cannot be numbered "
                    f"from {renumbered.to} on where {renumbered.first} is"
                )

    def _check_fork(self, fork: Fork, added: dict[int, int]) -> None:
        self._known(fork.channel, added)
        source, target = self.channels[fork.of], self.channels.by_id.get(fork.channel)
        if source.schema != (added[fork.channel] if target is None else target.schema):
            raise InputError(
                f"channels {fork.channel} and {fork.of} differ in schema; one cannot hold what the other does"
            )

    def _known(self, channel: ChannelId, added: dict[int, int]) -> None:
        if channel not in added:
            self.channels[channel]

    def _check_positions(self, commit: Commit, added: dict[int, int]) -> None:
        by_id = self.channels.by_id
        for channel, position in commit.consumed.items():
            if channel in added and position == 0:
                continue
            view = by_id.get(channel) or self.channels[channel]
            if not view.head <= position <= view.tail:
                raise CommitConflictError(
                    f"channel {channel} holds positions {view.head} to {view.tail}; it cannot be consumed to {position}"
                )
        for passed in commit.passed:
            for channel in passed.channels.tolist():
                found = self.channels.by_id.get(channel)
                if found is None:
                    self._known(channel, added)
                elif commit.consumed.get(ChannelId(channel), found.head) != found.tail:
                    raise CommitConflictError(
                        f"channel {channel} is not empty, so tuples cannot overtake what waits in it; consume it first"
                    )

    def _check_renames(self, commit: Commit) -> None:
        taken = {(r.fragment, r.operator) for r in commit.state_renames}
        limits = {
            (f, o): b
            for d in commit.state_drops
            if d.below
            for f, o, b in zip(d.fragments.tolist(), d.operators.tolist(), d.buckets.tolist(), strict=True)
        }
        for r in commit.state_renames:
            place = (r.to_fragment, r.to_operator)
            found = None if place in taken else self.state.find(*place)
            if found is not None and found.between(limits.get(place), None):
                raise CommitConflictError(
                    f"fragment {r.to_fragment}, operator {r.to_operator} has state already; "
                    f"that of fragment {r.fragment} cannot take its place"
                )

    def _check_state(self, commit: Commit, tables: Sequence[Sealed], numbering: _Numbering) -> list[int]:
        numbers: list[int] = []
        seen: dict[tuple[int, int], int] = {}
        for append, table in zip(commit.state_appends, tables, strict=True):
            number = numbering.of(plain_schema(table.batch.schema, "append to state"))
            for fragment, operator in zip(append.fragments.tolist(), append.operators.tolist(), strict=True):
                found = self.state.find(fragment, operator)
                expected = seen.setdefault((fragment, operator), number if found is None else found.schema)
                if expected != number:
                    wanted = self.schemas.by_number.get(expected) or numbering.new[expected]
                    fitted(table.batch, wanted, f"state of fragment {fragment}, operator {operator}")
            numbers.append(number)
        return numbers

    def _check_merge(self, commit: Commit, index: int, table: Sealed) -> int:
        merge = commit.state_merges[index]
        keys = (merge.fragments, merge.operators, merge.buckets, merge.firsts, merge.pieces)
        number: int | None = None
        for fragment, operator, bucket, first, pieces in zip(*(k.tolist() for k in keys), strict=True):
            if not self.state.starts_with(fragment, operator, bucket, first, pieces):
                raise CommitConflictError(
                    f"state of fragment {fragment}, operator {operator}, bucket {bucket} changed while it was merged; "
                    "merge it again"
                )
            found = self.state.find(fragment, operator)
            assert found is not None
            if number not in (None, found.schema):
                raise InputError("merged state: its partitions have different schemas; merge them separately")
            number = found.schema
        if number is None:
            raise InputError("merged state: no partition is named")
        fitted(table.batch, self.schemas.by_number[number], "merged state")
        return number

    def _check_append(self, commit: Commit, index: int, table: Sealed | None, added: dict[int, int]) -> int | None:
        append = commit.appends[index]
        channels, by_id = append.channels.tolist(), self.channels.by_id
        first: int | None = None
        for channel in channels:
            found = by_id.get(channel)
            number = found.schema if found is not None else added.get(channel)
            if number is None:
                self.channels[channel]  # raises: it is not known
            if first is None:
                first = number
            elif number != first and table is not None:
                raise InputError(
                    f"channels {channels[0]} and {channel} have different schemas; append a table for each"
                )
        if table is None or first is None:
            return None
        fitted(table.batch, self._schema(first, commit, added), f"channel {channels[0]}")
        return first

    def _schema(self, number: int, commit: Commit, added: dict[int, int]) -> pa.Schema:
        known = self.schemas.by_number.get(number)
        if known is not None:
            return known
        return next(plain_schema(s.schema, "channel") for s in commit.add if added[s.channel] == number)

    # Applying

    def apply(
        self,
        number: int,
        envelope: Envelope,
        content: Content,
        numbers: Numbers,
        places: Sequence[Place],
        tables: Sequence[Sealed] = (),
        changes: Sequence[Change] | None = None,
    ) -> None:
        """Takes a commit over. `tables` are the batches of a new one, to be kept in memory, `changes` its records."""
        if (incarnation := envelope.get("incarnation", self.incarnation)) != self.incarnation:
            self.begin(incarnation)  # which was known before it was written down
        for schema, text in envelope["new"]:
            self.schemas.add(schema, schema_from(text))
        waiting = zip(envelope["schemas"], places, strict=True)
        payloads: list[Payload] = []

        def payload(rows: int) -> Payload:
            schema, place = next(waiting)
            payloads.append(Payload(place, schema, rows, verified=not tables))
            self.payloads.add(payloads[-1])
            return payloads[-1]

        self._apply_structure(envelope, content)
        self._apply_progress(content, numbers)
        self._apply_state(number, content, numbers, payload)
        self._apply_appends(envelope["now"], content, numbers, payload)
        self._apply_facts(number, envelope, content, changes_in(content) if changes is None else changes)
        for index, added in enumerate(payloads):
            batch = fitted(tables[index].batch, self.schemas.by_number[added.schema], "payload") if tables else None
            self.payloads.settle(added, batch)

    def _apply_structure(self, envelope: Envelope, content: Content) -> None:
        for (channel, sender, receiver, delay_ms), schema in zip(
            content.get("add", ()), envelope["added"], strict=True
        ):
            self.channels.by_id[channel] = ChannelLog(channel, schema, sender, receiver, delay_ms)
        for channel, receiver, delay_ms, is_cut, sender, keeps in content.get("rewire", ()):
            view = self.channels.by_id[channel]
            view.receiver = receiver
            view.delay_ms = view.delay_ms if delay_ms is None else delay_ms
            if is_cut is not None and bool(is_cut) != view.is_cut:
                view.cut_since_ms = max(1, envelope["now"]) if is_cut else 0
            view.sender = view.sender if sender is None else sender
            if keeps is not None:
                view.kept_from = (view.kept_from if view.keeps else view.head) if keeps else -1
                if not keeps:
                    view.forget(self.payloads)

        for channel, source in content.get("forks", ()):
            self.channels.by_id[channel].become(self.channels.by_id[source], self.payloads)
        self._apply_realigned(content)

    def _apply_realigned(self, content: Content) -> None:
        for channel, cut, begin, lineage in content.get("realign", ()):
            view = self.channels.by_id[channel]
            if cut < view.tail:
                view.cut(cut, self.payloads)
            view.pass_over(begin)
            view.lineage = tuple(Incarnation(*each) for each in lineage)
        for channel, first, to in content.get("renumber", ()):
            self.channels.by_id[channel].renumber(first, to, self.payloads)
        for channel, number in content.get("renew", ()):
            self._renew(self.channels.by_id[channel], max(number, self.incarnation))

    def begin(self, incarnation: int) -> None:
        """All logs that are here go on in a new incarnation; copies of others keep theirs."""
        self.incarnation = incarnation
        copies = self.records.by_kind[CopyRecord.kind]
        for channel, view in self.channels.by_id.items():
            copy = copies.get(channel)
            if not (isinstance(copy, CopyRecord) and copy.route):
                self._renew(view, incarnation)

    def _renew(self, view: ChannelLog, number: int) -> None:
        view.lineage = renewed(view.lineage, max(number, newest(view.lineage) + 1), view.head, view.tail)

    def _apply_progress(self, content: Content, numbers: Numbers) -> None:
        by_id, payloads = self.channels.by_id, self.payloads
        ran = content.get("versions", 0)
        if isinstance(ran, list):  # as journals had it at first
            self.versions.update((fragment, version) for fragment, version in ran)
        elif ran:
            self.versions.update(zip(numbers.take(ran), numbers.take(ran), strict=True))
        if count := content.get("consumed", 0):
            self.channels.consume(numbers.take(count), numbers.take(count), payloads)
        for count in content.get("passed", ()):
            columns = (numbers.take(count), numbers.take(count), numbers.take(count))
            for channel, rows, watermark in zip(*columns, strict=True):
                by_id[channel].pass_through(rows, watermark)

    def _apply_state(self, number: int, content: Content, numbers: Numbers, payload: _NextPayload) -> None:
        state, payloads = self.state, self.payloads
        for count, below in content.get("drops", ()):
            keys = (numbers.take(count), numbers.take(count), numbers.take(count))
            state.drop(zip(*keys, strict=True), payloads, below=bool(below))
        for count, rows in content.get("state", ()):
            held = payload(rows)
            columns5 = [numbers.take(count) for _ in range(5)]
            payloads.use(held.number, sum(length > 0 for length in columns5[4]), sum(columns5[4]))
            for fragment, operator, bucket, offset, length in zip(*columns5, strict=True):
                if length:
                    piece = packed(held.number, offset, length, number)
                    state.append(fragment, operator, bucket, held.schema, piece, length, length * held.row_bytes)
        for count, rows in content.get("merges", ()):
            held = payload(rows)
            columns7 = [numbers.take(count) for _ in range(7)]
            payloads.use(held.number, count, sum(columns7[6]))
            for fragment, operator, bucket, _, pieces, offset, length in zip(*columns7, strict=True):
                key, merged = (
                    PartitionKey(FragmentId(fragment), operator, bucket),
                    Piece(held.number, offset, length, number),
                )
                state.merge(key, pieces, merged, length * held.row_bytes, payloads)

    def _apply_appends(self, now: int, content: Content, numbers: Numbers, payload: _NextPayload) -> None:
        by_id = self.channels.by_id
        for stored, count, rows, markers in content.get("appends", ()):
            held = payload(rows).number if stored else NO_PAYLOAD
            marked = {i: Marker.from_json(m) for i, m in markers}
            columns = [numbers.take(count) for _ in range(4)]
            if stored:
                self.payloads.use(held, sum(length > 0 for length in columns[2]), sum(columns[2]))
            for index, (channel, offset, length, watermark) in enumerate(zip(*columns, strict=True)):
                marker = marked.get(index) if marked else None
                if length:
                    by_id[channel].append(length, held, offset, watermark, marker, now)
                elif watermark != NO_WATERMARK or marker is not None:
                    by_id[channel].append(0, NO_PAYLOAD, 0, watermark, marker, now)

    def _apply_facts(self, number: int, envelope: Envelope, content: Content, changes: Iterable[Change]) -> None:
        for fragment, name, count in content.get("counters", ()):
            self.counters[fragment, name] = self.counters.get((fragment, name), 0) + count
        self.acknowledged.update(content.get("acknowledged", {}))
        self.records.apply(changes)
        if renames := content.get("renames"):
            self.state.rename(renames, self.payloads)
        for fragment in content.get("retire", ()):
            self._retire(fragment)
        for channel, _ in content.get("remove", ()):
            self.channels.remove(channel, self.payloads)
        for fragment, target in content.get("copies", ()):
            self.state.copy(fragment, target, self.payloads)
        for channel in content.get("forget", ()):
            self.channels.by_id[channel].forget(self.payloads)
        if envelope["writer"]:
            self.writers[envelope["writer"]] = LastBatch(envelope["batch"], envelope["digest"], number)

    def _retire(self, fragment: int) -> None:
        self.state.drop_fragment(fragment, self.payloads)
        self.versions.pop(fragment, None)
        self.records.apply([forget(SlotRecord, FragmentId(fragment))])
        for key in [k for k in self.counters if k[0] == fragment]:
            del self.counters[key]
        for writer in [w for w in self.writers if w.startswith(f"fragment {fragment} ")]:
            del self.writers[writer]


class _NextPayload(Protocol):
    def __call__(self, rows: int) -> Payload: ...


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
