"""Connectors: where tuples come from and where results go, one file each. The tables below name them all."""

from __future__ import annotations

from collections.abc import Mapping

from meander.model.errors import InputError, unknown
from meander.model.streams import Stream
from meander.run.connectors import (
    console,
    files,
    jsonl,
    memory,
    parquet,
    random,
    replay,
    sensors,
    trains,
    vehicles,
)
from meander.run.connectors.base import Outlet, SinkConnector, SinkKind, SourceConnector, SourceKind, Surroundings
from meander.run.connectors.options import Option, Options

DEFAULT_SOURCE, DEFAULT_SINK = "random", "jsonl"

SOURCES: Mapping[str, SourceKind] = {
    "random": random.KIND,
    "trains": trains.KIND,
    "vehicles": vehicles.KIND,
    "sensors": sensors.KIND,
    "replay": replay.KIND,
    "files": files.KIND,
}

SINKS: Mapping[str, SinkKind] = {
    "jsonl": jsonl.KIND,
    "parquet": parquet.KIND,
    "memory": memory.KIND,
    "console": console.KIND,
}

STREAM_OPTIONS = (
    Option("connector", "where the tuples come from", DEFAULT_SOURCE),
    Option("disorder", "how much older than the newest tuple of its producer a tuple may be", "0"),
    Option("idle_timeout", "after how long without tuples a producer's watermark goes on with the clock", "never"),
    Option("malformed", "how many malformed rows are put aside before the stream is paused", "no limit"),
)
"""Options that every stream has."""

SINK_OPTIONS = (
    Option("connector", "where the results go", DEFAULT_SINK),
    Option("event_time", "whether each row gets a column `_newest`: event time of its newest input, in ms", "false"),
    Option("retries", "how often a write that failed is tried again before the outlet is paused", "5"),
    Option("backoff", "how long the first of these waits; each one waits twice as long", "200 ms"),
)
"""Options that every sink has."""


def source_for(stream: Stream, surroundings: Surroundings) -> SourceConnector:
    """The source of a stream, not yet open. Raises InputError for a connector or an option that does not exist."""
    name = stream.options.get("connector", DEFAULT_SOURCE)
    if name not in SOURCES:
        raise InputError(f"stream {stream.name!r}: {unknown('connector', name, SOURCES).message}")
    kind = SOURCES[name]
    if not kind.open_options:
        Options(stream.options, f"stream {stream.name!r}").check((*STREAM_OPTIONS, *kind.options))
    return kind.make(stream, surroundings)


def sink_for(outlet: Outlet, surroundings: Surroundings) -> SinkConnector:
    """The sink of an outlet, not yet open. Raises InputError for a connector or an option that does not exist."""
    target = outlet.target
    name = target.options.get("connector", DEFAULT_SINK)
    if name not in SINKS:
        raise InputError(f"sink {target.name!r}: {unknown('connector', name, SINKS).message}")
    kind = SINKS[name]
    if not kind.open_options:
        Options(target.options, f"sink {target.name!r}").check((*SINK_OPTIONS, *kind.options))
    return kind.make(outlet, surroundings)
