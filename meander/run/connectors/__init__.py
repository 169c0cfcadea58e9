"""Connectors: where tuples come from and where results go, one file each. The tables below name them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors import (
    console,
    files,
    jsonl,
    memory,
    parquet,
    random,
    replay,
    sensors,
    spark_sink,
    spark_source,
    trains,
    vehicles,
)
from meander.run.connectors import http_sink as http_callback
from meander.run.connectors import http_source as http_push
from meander.run.connectors.base import SinkBinding, SinkConnector, SinkKind, SourceConnector, SourceKind, Surroundings
from meander.run.connectors.options import DEFAULT_SINK, DEFAULT_SOURCE, SINK_OPTIONS, STREAM_OPTIONS, ConnectorOptions

SOURCES: Mapping[str, SourceKind] = {
    "random": random.KIND,
    "trains": trains.KIND,
    "vehicles": vehicles.KIND,
    "sensors": sensors.KIND,
    "replay": replay.KIND,
    "files": files.KIND,
    "http": http_push.KIND,
    "spark": spark_source.KIND,
}

SINKS: Mapping[str, SinkKind] = {
    "jsonl": jsonl.KIND,
    "parquet": parquet.KIND,
    "memory": memory.KIND,
    "console": console.KIND,
    "http": http_callback.KIND,
    "spark": spark_sink.KIND,
}


def source_for(stream: Stream, surroundings: Surroundings) -> SourceConnector:
    """The source of a stream, not yet open. Raises InputError for a connector or an option that does not exist."""
    name = stream.options.get("connector", DEFAULT_SOURCE)
    if name not in SOURCES:
        raise InputError(f"stream {stream.name!r}: {unknown('connector', name, SOURCES).message}")
    kind, options = SOURCES[name], ConnectorOptions(stream.options, f"stream {stream.name!r}")
    if not kind.open_options:
        options.check((*STREAM_OPTIONS, *kind.options))
    kind.elsewhere(options)  # raises for options that make no sense
    return kind.make(stream, surroundings)


def sink_for(binding: SinkBinding, surroundings: Surroundings) -> SinkConnector:
    """The sink of a sink binding, not yet open. Raises InputError for a connector or an option that does not exist."""
    target = binding.target
    name = target.options.get("connector", DEFAULT_SINK)
    if name not in SINKS:
        raise InputError(f"sink {target.name!r}: {unknown('connector', name, SINKS).message}")
    kind, options = SINKS[name], ConnectorOptions(target.options, f"sink {target.name!r}")
    if not kind.open_options:
        options.check((*SINK_OPTIONS, *kind.options))
    kind.elsewhere(options)  # raises for options that make no sense
    return kind.make(binding, surroundings)


def source_elsewhere(stream: Stream) -> str | None:
    """The reason why no other machine goes on reading a stream where one that is gone ended; None if one does."""
    kind = SOURCES[stream.options.get("connector", DEFAULT_SOURCE)]
    return kind.elsewhere(ConnectorOptions(stream.options, f"stream {stream.name!r}"))


def sink_elsewhere(target: SinkTarget) -> str | None:
    """The reason why no other machine goes on writing to a sink; None if one does."""
    kind = SINKS[target.options.get("connector", DEFAULT_SINK)]
    return kind.elsewhere(ConnectorOptions(target.options, f"sink {target.name!r}"))


def check_connectors(streams: Iterable[Stream], sinks: Iterable[SinkTarget], surroundings: Surroundings) -> None:
    """Raises for options of which no source or sink can be made; nothing is opened. Spark takes far longer to start."""
    for stream in streams:
        source_for(stream, surroundings)
    for sink in sinks:
        sink_for(SinkBinding("query", sink, ChannelId(0)), surroundings)
