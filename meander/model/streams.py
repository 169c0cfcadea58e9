"""Streams and sinks: where data enters and leaves. A stream has many producers, each pinned to a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meander.model.errors import InputError
from meander.model.schema import Kind, Schema


@dataclass(frozen=True, slots=True)
class Stream:
    """A logical stream. `nodes` produce it, each at `rate_tps` tuples a second; `options` configure its connector."""

    name: str
    schema: Schema
    event_time: str
    nodes: tuple[str, ...] = ()
    rate_tps: float = 100.0
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        type_ = self.schema.type_of(self.event_time)
        if type_.kind not in (Kind.TIMESTAMP, Kind.BIGINT):
            raise InputError(
                f"stream {self.name!r}: event-time column {self.event_time!r} is {type_}; "
                "it must be a timestamp, or a bigint of milliseconds"
            )
        if not self.rate_tps > 0:
            raise InputError(f"stream {self.name!r}: rate must be positive, not {self.rate_tps}")
        doubled = sorted({n for n in self.nodes if self.nodes.count(n) > 1}) if len(self.nodes) < 1000 else []
        if doubled:
            raise InputError(f"stream {self.name!r}: node {doubled[0]!r} is listed twice")


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """A named place for results, pinned to a node; `options` configure its connector."""

    name: str
    node: str
    options: Mapping[str, str] = field(default_factory=dict)
