"""Views: everything that is known from the journal, and how a record changes it.

After a commit has passed its check, `apply` cannot fail. The same `apply` runs for a new record and for one that is
replayed, so that what is seen after a restart is what was seen before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from meander.deploy.markers import Marker
from meander.model.ids import FragmentId
from meander.run.channels.base import NO_WATERMARK
from meander.run.store.channel_log import ChannelLog, Channels
from meander.run.store.encoding import Content, Envelope, Numbers, changes_in, schema_from
from meander.run.store.framing import Place
from meander.run.store.incarnations import Incarnation, newest, next_number, renewed
from meander.run.store.partitions import PartitionKey, Partitions, Piece, packed
from meander.run.store.payloads import NO_PAYLOAD, Payload, Payloads, Schemas, Sealed, fitted
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

    def begin_next(self) -> None:
        """All logs that are here go on in an incarnation later than all before."""
        self.begin(next_number(self.incarnation))

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
