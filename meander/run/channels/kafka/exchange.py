"""Channels over a Kafka broker that two sites share, beside those that are pulled directly.

The log stays with the sender and the copy with the reader, with the same numbers, and the reader goes on telling the
sender its position; only the records go over the broker. The choice follows from the peer directory: two sites that
name the same broker use it, all others pull.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from meander.model.ids import ChannelId
from meander.run.channels.flight.proof import PeerAddress, former_proof, records_secret
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.server import PullRequest
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.listener import TopicListener
from meander.run.channels.kafka.publisher import TopicPublisher
from meander.run.channels.kafka.records import TopicLink


class KafkaExchange:
    """One site's two ends of the channels over its broker."""

    def __init__(
        self,
        broker: Broker,
        me: str,
        key: str,
        address_of: Callable[[str], PeerAddress | None],
        former_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Records are signed with secrets that follow from `key`; `address_of` gives the address of another site."""
        self.broker, self._me, self._key, self._address_of = broker, me, key, address_of
        self._former_key = former_key
        self.publishing: TopicPublisher | None = None
        self.listening: TopicListener | None = None

    def shares(self, site: str) -> bool:
        """Whether a site uses the same broker."""
        address = self._address_of(site)
        return address is not None and address.broker == self.broker.address

    def reached(self, site: str) -> tuple[str, int] | None:
        """Up to where all that a site has sent was read."""
        return None if self.listening is None else self.listening.reached(site)

    def to(self, reader: str) -> TopicLink | None:
        if not self.shares(reader):
            return None
        former = self._former_key()
        secret = records_secret(self._key, reader) if former is None else former_proof(former, reader)
        return TopicLink.between(self._me, reader, secret)

    def arriving(self, sender: str) -> TopicLink | None:
        address = self._address_of(sender)
        if address is None or not self.shares(sender):
            return None
        return TopicLink.between(sender, self._me, address.records or address.proof)

    def start(self, pulling: Pulling, may_pull: Callable[[str, str, ChannelId], bool]) -> None:
        self.publishing = TopicPublisher(pulling.store, self.broker, self.to, may_pull)
        self.listening = TopicListener(pulling, self.broker, self.arriving)
        self.publishing.rounds.start()
        self.listening.rounds.start()

    def publish(self, reader: str, asked: PullRequest) -> bool:
        """Accepts a reader's request; not if it does not share the broker."""
        if self.publishing is None or not self.shares(reader):
            return False
        self.publishing.ask(reader, asked)
        return True

    def problems(self) -> list[str]:
        """The problems at this end."""
        found: list[str] = []
        if self.publishing is not None and (problem := self.publishing.rounds.problem) is not None:
            found.append(f"what goes to {_names(self.publishing.readers)} waits here: {problem}")
        if self.listening is not None and (problem := self.listening.rounds.problem) is not None:
            found.append(f"what comes from {_names(self.listening.senders)} waits there: {problem}")
        return found

    def stop(self) -> None:
        for part in (self.publishing, self.listening):
            if part is not None:
                part.rounds.stop()
        self.broker.close()


def _names(sites: Collection[str]) -> str:
    return ", ".join(sites) or "other sites"
