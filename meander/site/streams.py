"""The streams that a site takes in and the sinks that it delivers to, as the coordinator has told it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from meander.model.locks import lock
from meander.model.plain import from_plain
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors import source_for
from meander.run.connectors.base import Surroundings
from meander.run.host import Host
from meander.run.store.commit import Commit
from meander.run.store.records.decisions import StreamsAndSinksRecord
from meander.site.sink_bindings import SiteSinkBindings


class SiteStreams:
    """Those of one site, remembered across restarts."""

    def __init__(
        self, host: Host, nodes: Collection[str], around: Surroundings, sink_bindings: SiteSinkBindings
    ) -> None:
        self._host, self._nodes, self._around, self._sink_bindings = host, set(nodes), around, sink_bindings
        self._lock = lock("site ingest")
        self._streams: dict[str, Stream] = {}
        self._fed: dict[str, Stream] | None = None
        """The streams that are taken in, as they were when that began."""
        self._sinks: dict[str, SinkTarget] = {}
        host.troubles.append(self._stale)

    def restore(self) -> None:
        """Goes on with what was told before the site ended."""
        if (told := self._host.store.record(StreamsAndSinksRecord)) is not None:
            self._learn(told)

    def take(self, told: Mapping[str, Any]) -> None:
        """Streams and sinks, told by the coordinator."""
        saved = StreamsAndSinksRecord(told["streams"], told["sinks"])
        with self._lock:
            if self._host.store.record(StreamsAndSinksRecord) != saved:
                self._host.store.commit(Commit(records=(saved,)))
        self._learn(saved)

    def _learn(self, told: StreamsAndSinksRecord) -> None:
        """Begins to take in the streams that nodes of this site produce."""
        with self._lock:
            self._sinks = {name: from_plain(sink) for name, sink in told.sinks.items()}
            streams: dict[str, Stream] = {name: from_plain(stream) for name, stream in told.streams.items()}
            self._streams = {name: s for name, s in streams.items() if self._nodes & set(s.nodes)}
            if self._host.feeding.ingest is None:
                self._fed = self._streams
                sources = {name: source_for(s, self._around) for name, s in self._streams.items()}
                self._host.feeding.begin(self._streams.values(), self._around, sources)
        self.deliver()

    def deliver(self) -> None:
        """Begins and ends the delivery of results."""
        with self._lock:
            self._sink_bindings.tick(self._sinks)

    def _stale(self) -> list[str]:
        """Streams that are not taken in as they are now."""
        fed = self._fed
        changed = [] if fed is None else [name for name, stream in self._streams.items() if fed.get(name) != stream]
        return [f"stream {name} is new or has changed; start this site again to take it in" for name in changed]
