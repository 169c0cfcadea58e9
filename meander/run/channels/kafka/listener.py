"""Listening: records that come over the broker go into the copies here, in one commit with the offset they reach.

So after any end of this process it reads on behind its last record. A topic that was made anew is read from its
beginning; earlier records have no effect. Records that were taken are not needed any more, and the broker is told so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.ranges import DamagedError
from meander.run.channels.flight.untrusted import UntrustedError
from meander.run.channels.kafka.broker import Broker, BrokerMessage, OffsetSpan
from meander.run.channels.kafka.records import TopicLink
from meander.run.channels.kafka.repeating_thread import RepeatingThread
from meander.run.store.commit import Commit
from meander.run.store.records.record import forget_all
from meander.run.store.records.transport import TopicOffsetRecord

_log = logging.getLogger(__name__)
POLL_S, LONGEST_POLL_S = 0.1, 0.5
"""The pause when nothing came: at first, and when nothing has come for a while."""
MOST_RECORDS = 16
"""Of one topic in one round."""
TRIM_S = 5.0


class TopicListener:
    """The receiver of all records for one site over a broker."""

    def __init__(self, pulling: Pulling, broker: Broker, link: Callable[[str], TopicLink | None]) -> None:
        """`link` gives the way from a sender, or None when it does not share the broker."""
        self._pulling, self._broker, self._link = pulling, broker, link
        self._reached: dict[str, tuple[str, int]] = {}
        self._trimmed, self._pause_s = 0.0, POLL_S
        self._trim: dict[str, int] = {}
        self.rounds = RepeatingThread("listening to the broker", self.listen, self._rest)

    @property
    def senders(self) -> list[str]:
        return sorted(s for s in self._pulling.senders if self._link(s) is not None)

    def listen(self) -> bool:
        """One round; says whether anything came."""
        links = {link.topic: link for s in self.senders if (link := self._link(s)) is not None}
        if not links:
            return False
        spans = self._broker.spans(links)
        wanted: dict[str, tuple[int, int]] = {}
        for topic, span in spans.items():
            first = self._next(topic, span)
            if first < span.end:
                wanted[topic] = (first, min(span.end, first + MOST_RECORDS))
        if wanted:
            self._pause_s = POLL_S
            for record in self._broker.read(wanted):
                if self.rounds.stopping.is_set():
                    return False
                self._take(links[record.topic], spans[record.topic].id, record)
        if time.monotonic() - self._trimmed > TRIM_S:
            self._tidy(links)
        return bool(wanted)

    def _rest(self) -> None:
        self.rounds.stopping.wait(self._pause_s)
        self._pause_s = min(LONGEST_POLL_S, 1.5 * self._pause_s)

    def reached(self, sender: str) -> tuple[str, int] | None:
        """Up to where all that a site has sent was read."""
        link = self._link(sender)
        return None if link is None else self._reached.get(link.topic)

    def _next(self, topic: str, span: OffsetSpan) -> int:
        """The offset that comes next: where we were, if this is still the same topic and has it still."""
        id, offset = self._reached.get(topic) or self._saved(topic)
        if id != span.id or not span.begin <= offset <= span.end:
            offset = span.begin
        self._reached[topic] = (span.id, offset)
        return offset

    def _saved(self, topic: str) -> tuple[str, int]:
        found = self._pulling.store.record(TopicOffsetRecord, topic)
        return ("", 0) if found is None else (found.id, found.offset)

    def _take(self, link: TopicLink, id: str, record: BrokerMessage) -> None:
        reached = (id, record.offset + 1)
        try:
            ranges = link.ranges(record.key, record.value)
            self._pulling.take(ranges, TopicOffsetRecord(link.topic, *reached), sender=link.sender)
        except (DamagedError, UntrustedError) as error:
            _log.warning("%s", error)
        self._reached[link.topic], self._trim[link.topic] = reached, record.offset + 1

    def _tidy(self, links: dict[str, TopicLink]) -> None:
        """Lets the broker forget records that are here, and forgets topics of senders without channels."""
        self._trimmed = time.monotonic()
        trim, self._trim = {t: at for t, at in self._trim.items() if t in links}, {}
        if trim:
            self._broker.trim(trim)
        store = self._pulling.store
        stale = [topic for topic in store.records(TopicOffsetRecord) if topic not in links]
        if stale:
            store.commit(Commit(records=tuple(forget_all(TopicOffsetRecord, stale))))
        self._reached = {t: at for t, at in self._reached.items() if t in links}
