"""The streams that a site takes in and the sinks that it delivers to, as the coordinator has told it.

A replica that goes on for a site at another machine does the same with those that are reached from there; what is not
waits for the site, and is named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from meander.model.locks import lock
from meander.model.plain_json import from_plain
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors import sink_elsewhere, source_elsewhere, source_for
from meander.run.connectors.base import ConnectorError, Polled, SourceConnector, Surroundings
from meander.run.host import Host
from meander.run.outside.sink_bindings import SiteSinkBindings
from meander.run.store.commit import Commit
from meander.run.store.records.decisions import StreamsAndSinksRecord
from meander.run.store.records.deployment import SinkBindingRecord


class UnreachableSource:
    """Implements `SourceConnector` for a stream that only another machine reaches: it is paused, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """Leaves the position as it is."""

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        raise ConnectorError(self._reason)

    def committed(self) -> None:
        """Nothing was given."""

    def close(self) -> None:
        """Nothing is open."""


class SiteStreams:
    """Those of one site, remembered across restarts."""

    def __init__(
        self,
        host: Host,
        nodes: Collection[str],
        around: Surroundings,
        sink_bindings: SiteSinkBindings,
        *,
        elsewhere: bool = False,
    ) -> None:
        """`elsewhere` says that this is not the machine of the site."""
        self._host, self._nodes, self._around, self._sink_bindings = host, set(nodes), around, sink_bindings
        self._elsewhere = elsewhere
        self._lock = lock("site ingest")
        self._streams: dict[str, Stream] = {}
        self._fed: dict[str, Stream] | None = None
        """The streams that are taken in, as they were when that began."""
        self._sinks: dict[str, SinkTarget] = {}
        self._streams_not_reached: dict[str, str] = {}
        self._sinks_not_reached: dict[str, str] = {}
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
            if self._elsewhere:
                self._leave_out()
            if self._host.feeding.ingest is None:
                self._fed = self._streams
                sources = {name: self._source(s) for name, s in self._streams.items()}
                self._host.feeding.begin(self._streams.values(), self._around, sources)
        self.deliver()

    def _leave_out(self) -> None:
        """Finds out what is not reached from here, with the reasons."""
        streams = {name: reason for name, s in self._streams.items() if (reason := source_elsewhere(s))}
        sinks = {name: reason for name, s in self._sinks.items() if (reason := sink_elsewhere(s))}
        self._sinks = {name: s for name, s in self._sinks.items() if name not in sinks}
        self._streams_not_reached, self._sinks_not_reached = streams, sinks

    def _source(self, stream: Stream) -> SourceConnector:
        reason = self._streams_not_reached.get(stream.name)
        return source_for(stream, self._around) if reason is None else UnreachableSource(reason)

    def not_reached(self) -> dict[str, dict[str, str]]:
        """The streams and sinks of what runs here that only the machine of the site reaches, with the reasons."""
        read = {stream for stream, _ in self._host.feeding.channels}
        written = {record.sink for record in self._host.store.records(SinkBindingRecord).values()}
        return {
            "streams": {name: why for name, why in self._streams_not_reached.items() if name in read},
            "sinks": {name: why for name, why in self._sinks_not_reached.items() if name in written},
        }

    def nodes_reached(self) -> set[str]:
        """The nodes of what runs here whose streams are taken in, or whose sinks are delivered to."""
        with self._lock:
            written = {record.sink for record in self._host.store.records(SinkBindingRecord).values()}
            reached = self._streams.keys() - self._streams_not_reached.keys()
            sources = {node for stream, node in self._host.feeding.channels if stream in reached}
            return sources | {sink.node for name, sink in self._sinks.items() if name in written}

    def deliver(self) -> None:
        """Begins and ends the delivery of results."""
        with self._lock:
            self._sink_bindings.tick(self._sinks)

    def _stale(self) -> list[str]:
        """Streams that are not taken in as they are now."""
        fed = self._fed
        changed = [] if fed is None else [name for name, stream in self._streams.items() if fed.get(name) != stream]
        return [f"stream {name} is new or has changed; start this site again to take it in" for name in changed]
