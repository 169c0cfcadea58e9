"""Remote channels: those of a host whose logs are at other hosts, pulled or over a broker, and logs that go on here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from meander.model.ids import ChannelId
from meander.reconfigure.agent.effect import starts
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.codec import encode
from meander.reconfigure.messages import Positions
from meander.run.channels.base import ChannelSpec
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.host import Host
from meander.run.store.commit import Commit
from meander.run.store.records.record import Change
from meander.run.store.records.transport import CopyRecord


class RemoteChannels:
    """Those of one host; nothing comes before it is connected."""

    def __init__(self, host: Host, changes: Mapping[int, InFlightChange], mover: StateMover) -> None:
        self.host, self._changes, self._mover = host, changes, mover
        self.pulling: Pulling | None = None
        self.kafka: KafkaExchange | None = None

    def connect(self, client: Callable[[str], FlightClient], kafka: KafkaExchange | None = None) -> None:
        """Lets channels and state come from other hosts; `kafka` is for what goes over a broker."""
        self._mover.client, self.kafka = client, kafka
        self.pulling = Pulling(self.host.store, client, broker=kafka)
        self.pulling.wanted_whole = self._taken_over
        if kafka is not None:
            self.host.troubles.append(kafka.problems)

    def refresh(self) -> None:
        """Looks again which channels come from elsewhere."""
        if self.pulling is not None:
            self.pulling.refresh()

    def stop(self) -> None:
        if self.pulling is not None:
            self.pulling.stop()
        if self.kafka is not None:
            self.kafka.stop()

    def begin_logs(self, changes: Sequence[InFlightChange], positions: Mapping[int, Positions]) -> None:
        """Begins logs that are taken over, in one commit that also remembers where everything has stopped."""
        store = self.host.store
        known = set(store.exchange.channels())
        begins: dict[ChannelId, tuple[int, int]] = {}
        add: list[ChannelSpec] = []
        records: list[Change] = []
        for change in changes:
            part, told = change.part, positions[change.number]
            specs = {s.channel: s for s in change.installation.channels}
            fresh = [c for c in part.taken_over if c.id not in known]
            change.added = [c.id for c in fresh]
            add += [specs[c.id] for c in fresh]
            begins |= {c.id: told.logs[c.id][:2] for c in fresh}
            records += [CopyRecord(c.id, part.routes.logs[c.id]) for c in fresh]
            records.append(replace(change.record, fetched=encode(told)))
        if changes:
            store.commit(Commit(add=tuple(add), passed=starts(begins), records=tuple(records)))
        for change in changes:
            change.fetched = positions[change.number]

    def _taken_over(self) -> set[ChannelId]:
        """Logs that come here before whoever appends to them does."""
        fetching = [change for change in list(self._changes.values()) if change.fetched is not None]
        return {c.id for change in fetching for c in change.part.taken_over}
