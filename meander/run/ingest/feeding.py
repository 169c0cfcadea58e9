"""The feeding of a host: the channels by which each stream's tuples enter, and the ingest that brings them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from meander.model.ids import ChannelId
from meander.model.streams import Stream
from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SourceConnector, Surroundings
from meander.run.frames import END
from meander.run.ingest.ingest import Ingest, IngestMetrics, IngestOptions
from meander.run.store.commit import Commit
from meander.run.store.store import Store

SourceChannels = Mapping[tuple[str, str], tuple[ChannelId, ...]]
"""(stream, node) to the channels that its tuples enter by."""


class Feeding:
    """Channels may come and go before and after it begins."""

    def __init__(self, store: Store, options: IngestOptions) -> None:
        self._store, self._options = store, options
        self.channels: SourceChannels = {}
        self.ingest: Ingest | None = None

    def begin(
        self,
        streams: Iterable[Stream],
        surroundings: Surroundings,
        sources: Mapping[str, SourceConnector] | None = None,
    ) -> None:
        """Begins to take in the streams that installed fragments read."""
        self.ingest = Ingest(
            self._store, streams, self.channels, options=self._options, surroundings=surroundings, sources=sources
        )
        self.ingest.open()
        self.ingest.start()

    def add(self, channels: SourceChannels) -> None:
        """Feeds the channels of sources that came; those that are fed already stay."""
        found = dict(self.channels)
        for key, readers in channels.items():
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), *readers)))
        self._feed_only(found)

    def drop(self, channels: Collection[ChannelId]) -> None:
        """Stops feeding channels of sources that have no readers any more."""
        if channels:
            kept = {key: tuple(c for c in readers if c not in channels) for key, readers in self.channels.items()}
            self._feed_only({key: readers for key, readers in kept.items() if readers})

    def _feed_only(self, channels: SourceChannels) -> None:
        if channels != self.channels:
            self.channels = channels
            if self.ingest is not None:
                self.ingest.rewire(channels)

    def metrics(self) -> IngestMetrics | None:
        return None if self.ingest is None else self.ingest.metrics()

    def stop(self) -> None:
        if self.ingest is not None:
            self.ingest.stop()

    def end_streams(self) -> None:
        """Time goes to its end, so that every window closes; the streams cannot go on afterwards."""
        channels = [c for readers in self.channels.values() for c in readers]
        self._store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
