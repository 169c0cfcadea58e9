"""Publishing: what readers asked for goes from the logs here to the broker, as far ahead as they may be.

Nothing is remembered on disk: a reader says with every request where its copy ends, so after a start publishing begins
there, and records that the broker has already come a second time without effect. The log stays the truth, and is let go
of when the reader has processed it: a broker that loses records gets them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.locks import lock
from meander.run.channels.flight.puller import AHEAD_RECORDS
from meander.run.channels.flight.ranges import ChannelRange, to_batch
from meander.run.channels.flight.server import PullRequest
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.records import TopicLink
from meander.run.channels.kafka.repeating_thread import RepeatingThread
from meander.run.store.commit import Commit
from meander.run.store.records.record import forget
from meander.run.store.records.transport import ReaderRecord, TopicRecord
from meander.run.store.store import Store

POLL_S, TIDY_S = 1.0, 5.0
MOST_RECORDS = 50_000
"""Of one channel in one range."""
RECORD_BYTES, ROUND_BYTES = 1_000_000, 8_000_000
"""The target size of a record and of a round of records."""


@dataclass(slots=True)
class PublishRequest:
    """A reader's request: the position up to which a channel is published for it, and the one that it has processed."""

    position: int
    done: int


class TopicPublisher:
    """The publisher of all records of one site over a broker."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        link: Callable[[str], TopicLink | None],
        may_pull: Callable[[str, str, ChannelId], bool],
        ahead_records: int = AHEAD_RECORDS,
    ) -> None:
        """`link` gives the way to a reader, or None when it does not share the broker (any more)."""
        self._store, self._broker, self._link, self._may_pull = store, broker, link, may_pull
        self._ahead = ahead_records
        self._lock = lock("publisher")
        self._requests: dict[str, dict[ChannelId, PublishRequest]] = {}
        self._written: dict[str, tuple[str, int]] = {}
        """By reader: the topic, and the offset behind the last record, after the last round."""
        self._tidied, self._seen = 0.0, 0
        self.records = 0
        """The number of channel records that were published, repeated ones included."""
        self.rounds = RepeatingThread("publishing to the broker", self.publish, self._rest)

    def ask(self, reader: str, asked: PullRequest) -> None:
        """A reader wants channels. One that has read all that was written and lacks some of it gets that again."""
        fresh = False
        with self._lock:
            requests, written = self._requests.setdefault(reader, {}), self._written.get(reader)
            has_read = written is not None and asked.reached is not None and _is_behind(written, asked.reached)
            for channel, first in asked.firsts.items():
                request = requests.get(channel)
                if request is None or (has_read and first < request.position):
                    requests[channel], fresh = PublishRequest(first, asked.done[channel]), True
                else:
                    request.done = max(request.done, asked.done[channel])
        if fresh:
            self._store.wake_readers()

    @property
    def readers(self) -> list[str]:
        with self._lock:
            return [reader for reader, requests in self._requests.items() if requests]

    def publish(self) -> bool:
        """One round; says whether anything was sent."""
        self._seen = self._store.changes
        links = self._links()
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidy(set(links))
        if not self._is_under_way(links):
            return False
        ids = self._notice(links)
        records: list[tuple[str, bytes, bytes]] = []
        moved: list[tuple[PublishRequest, int, int]] = []
        for reader, link in links.items():
            for ranges, requests in self._batches(reader):
                self._store.syncer.settle()
                records.append((link.topic, *link.record(ranges)))
                moved += requests
        if not records:
            return False
        topics = {topic for topic, _, _ in records}
        for reader, link in links.items():
            if link.topic in topics and link.topic not in ids:
                self._open(reader, link.topic)
        self._broker.write(records)
        spans = self._broker.spans(topics)
        with self._lock:
            for request, first, stop in moved:
                if request.position == first:  # it may have been asked for again meanwhile
                    request.position = stop
                self.records += stop - first
            for reader, link in links.items():
                if link.topic in spans:
                    self._written[reader] = (spans[link.topic].id, spans[link.topic].end)
        return True

    def _rest(self) -> None:
        self._store.wait(self._seen, POLL_S)

    def _links(self) -> dict[str, TopicLink]:
        """Readers with their links; readers that lost their rights are dropped."""
        found: dict[str, TopicLink] = {}
        with self._lock:
            for reader, requests in list(self._requests.items()):
                link = self._link(reader)
                gone = [c for c in requests if link is None or not self._may_pull(reader, reader, c)]
                for channel in gone:
                    del requests[channel]
                if link is not None and requests:
                    found[reader] = link
        return found

    def _is_under_way(self, links: Mapping[str, TopicLink]) -> bool:
        """Whether there is anything that the readers do not have."""
        exchange = self._store.exchange
        with self._lock:
            for reader in links:
                for channel, request in list(self._requests[reader].items()):
                    try:
                        if request.done < exchange.end(channel):
                            return True
                    except InputError:
                        del self._requests[reader][channel]
        return False

    def _notice(self, links: Mapping[str, TopicLink]) -> dict[str, str]:
        """The topics that are there. One that is another than before has lost what its reader lacks: it comes again."""
        ids = self._broker.ids([link.topic for link in links.values()])
        with self._lock:
            for reader, link in links.items():
                written = self._written.get(reader)
                if written is not None and written[0] != ids.get(link.topic):
                    del self._written[reader]
                    for request in self._requests[reader].values():
                        request.position = request.done
        return ids

    def _open(self, reader: str, topic: str) -> None:
        """Makes a topic that is not there; the store knows of it before the broker does."""
        made = TopicRecord(topic, reader)
        if self._store.record(TopicRecord, topic) != made:
            self._store.commit(Commit(records=(made,)))
        self._broker.make(topic)

    def _tidy(self, readers: set[str]) -> None:
        """Deletes topics of sites that read nothing from here any more."""
        readers = readers | {record.reader for record in self._store.records(ReaderRecord).values()}
        for topic, made in self._store.records(TopicRecord).items():
            if made.reader not in readers:
                self._broker.delete(topic)
                self._store.commit(Commit(records=(forget(TopicRecord, topic),)))
        self._tidied = time.monotonic()

    def _batches(self, reader: str) -> Iterator[tuple[pa.RecordBatch, list[tuple[PublishRequest, int, int]]]]:
        """Yields ranges for a reader, some of every channel, each channel at most once."""
        with self._lock:
            requests = list(self._requests[reader].items())
        waiting: list[ChannelRange] = []
        moved: list[tuple[PublishRequest, int, int]] = []
        size = total = 0
        for channel, request in requests:
            found = self._range(channel, request.position, request.done + self._ahead)
            if found is None:
                continue
            if waiting and size + found.size > RECORD_BYTES:
                yield to_batch(waiting), moved
                waiting, moved, size = [], [], 0
            waiting.append(found)
            moved.append((request, found.start, found.stop))
            size, total = size + found.size, total + found.size
            if total > ROUND_BYTES:
                break
        if waiting:
            yield to_batch(waiting), moved

    def _range(self, channel: ChannelId, first: int, limit: int) -> ChannelRange | None:
        """The records from a number on, not more than a record of the broker should hold."""
        exchange = self._store.exchange
        try:
            end = self._store.released(channel, exchange.end(channel))
            stop = min(end, limit, first + MOST_RECORDS)
            if exchange.is_cut(channel) or first >= stop:
                return None
            found = ChannelRange.of(exchange.read(channel, first, stop), exchange.lineage(channel))
            while found.size > RECORD_BYTES and stop - first > 1:
                stop = first + max(1, (stop - first) * RECORD_BYTES // (2 * found.size))
                found = ChannelRange.of(exchange.read(channel, first, stop), exchange.lineage(channel))
        except InputError:  # it has ended, or was let go of: then the reader has it
            return None
        return found


def _is_behind(written: tuple[str, int], reached: tuple[str, int]) -> bool:
    """Whether everything that was written to a topic has been read."""
    return written[0] == reached[0] and written[1] <= reached[1]
