"""Streams, clocks and small helpers for the tests of connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from meander.model.ids import ChannelId
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.run.channels.base import ChannelSpec
from meander.run.connectors import source_for
from meander.run.connectors.base import SourceConnector, Surroundings
from meander.run.frames import channel_schema
from meander.run.store.commit import Commit
from meander.run.store.store import Store

START_MS = 1_700_000_000_000
TRAIN = "ts timestamp, id bigint, station string, speed double, passengers int"


def stream(
    name: str = "train",
    columns: str = TRAIN,
    *,
    nodes: int = 3,
    rate_tps: float = 20.0,
    options: Mapping[str, str] | None = None,
) -> Stream:
    schema = Schema.of(**dict(c.strip().split(" ", 1) for c in columns.split(", ")))
    return Stream(name, schema, "ts", tuple(f"{name}-{i + 1}" for i in range(nodes)), rate_tps, dict(options or {}))


@dataclass
class Clock:
    """A clock that tests move."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, ms: int) -> int:
        self.now_ms += ms
        return self.now_ms


def around(path: Path) -> Surroundings:
    return Surroundings(path, path / "work")


def opened(stream: Stream, path: Path = Path(), offset: object = None) -> SourceConnector:
    source = source_for(stream, around(path))
    source.open(stream, offset, START_MS)
    return source


def channels_for(*streams: Stream, readers: int = 1) -> dict[tuple[str, str], tuple[ChannelId, ...]]:
    """Channels numbered one by one, `readers` for each producer."""
    pairs = [(s.name, n) for s in streams for n in s.nodes]
    return {p: tuple(ChannelId(i * readers + r + 1) for r in range(readers)) for i, p in enumerate(pairs)}


def add_channels(store: Store, stream: Stream, channels: Mapping[tuple[str, str], tuple[ChannelId, ...]]) -> None:
    known = set(store.exchange.channels())
    schema = channel_schema(stream.schema)
    wanted = [c for (name, _), readers in channels.items() if name == stream.name for c in readers]
    store.commit(Commit(add=tuple(ChannelSpec(c, schema) for c in wanted if c not in known)))


def held(store: Store, channel: ChannelId) -> pa.Table:
    """All tuples that wait in a channel."""
    return store.exchange.read(channel, store.exchange.start(channel), store.exchange.end(channel)).table
