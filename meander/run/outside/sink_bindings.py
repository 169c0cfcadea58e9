"""Results leaving at a site: a sink binding for every sink whose fragment runs here, until the last result is out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.connectors.base import SinkBinding
from meander.run.host import Host
from meander.run.store.commit import Commit, RemoveChannel
from meander.run.store.records.deployment import SinkBindingRecord
from meander.run.store.records.record import forget

_log = logging.getLogger(__name__)


class SiteSinkBindings:
    """Keeps delivery in step with the result channels that the store remembers."""

    def __init__(self, host: Host, changing: AbstractContextManager[Any]) -> None:
        """`changing` is held while a change takes effect, which is not done at once."""
        self._host, self._changing = host, changing
        self._delivering: dict[ChannelId, str] = {}
        self.problems: dict[ChannelId, str] = {}

    def tick(self, sinks: Mapping[str, SinkTarget]) -> None:
        """Begins and ends what is due."""
        host, delivery = self._host, self._host.delivery
        if delivery is None:
            return
        known = set(host.store.exchange.channels())
        for channel, record in host.store.records(SinkBindingRecord).items():
            if channel in self._delivering or channel not in known or record.sink not in sinks:
                continue
            binding = SinkBinding(record.query, sinks[record.sink], channel)
            try:
                delivery.add(binding)
                self._delivering[channel] = binding.name
            except InputError as error:
                if channel not in self.problems:
                    _log.warning("results of %s cannot be delivered: %s", record.query, error)
                self.problems[channel] = str(error)
        with self._changing:
            self._end_unwritten()

    def _end_unwritten(self) -> None:
        store = self._host.store
        written = {w.channel for f in self._host.routing.fragments.values() for out in f.outputs for w in out}
        known = set(store.exchange.channels())
        for channel in store.records(SinkBindingRecord):
            if channel in written or (channel in known and store.exchange.counters(channel).pending_tuples):
                continue
            self._end(channel, channel in known)

    def _end(self, channel: ChannelId, is_there: bool) -> None:
        """Whether its last result is out and no fragment writes to it any more."""
        name = self._delivering.pop(channel, None)
        if name is not None and self._host.delivery is not None:
            self._host.delivery.remove(name)
        remove = (RemoveChannel(channel, discard=True),) if is_there else ()
        self._host.store.commit(Commit(remove=remove, records=(forget(SinkBindingRecord, channel),)))
