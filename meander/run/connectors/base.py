"""The interface of connectors: a source gives the tuples of a stream, a sink takes the results of a query.

A source is polled, and every batch it gives comes with the position behind it. The position is committed together with
the tuples; after a crash the source is opened at the committed position, so no tuple is missing and none comes twice. A
sink is opened at the acknowledged position and removes all rows beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget, Stream
from meander.run.channels.base import Int64s
from meander.run.connectors.options import ConnectorOption
from meander.run.connectors.reachable import Elsewhere


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The directories of a connector's files."""

    base: Path
    """The base of relative paths in options."""
    work: Path
    """The directory of connectors' own files, beside the store."""
    durable: bool = False
    """Whether what a sink acknowledges must survive a power failure, not only the end of the process."""


class ConnectorError(Exception):
    """A source or a sink cannot go on now; the message says why. Trying again later may help."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A row that is no tuple of the stream: the reason, and its text."""

    reason: str
    row: str


@dataclass(frozen=True, slots=True)
class Polled:
    """A batch of a source."""

    table: pa.Table
    """The stream's columns; rows sorted by producer, in order of arrival within each."""
    producers: Int64s
    """The producer of each row: an index into the stream's nodes."""
    offset: Any
    """The position after this batch, as JSON."""
    malformed: tuple[Malformed, ...] = ()
    more: bool = False
    """Whether more was available than was asked for, so that a producer without rows is not idle."""
    ended: bool = False
    """Whether nothing will ever follow."""


class SourceConnector(Protocol):
    """Gives the tuples of one stream. All calls come from one thread."""

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        """Begins behind a committed offset, or at the beginning. Raises InputError if data and stream do not fit."""

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        """The tuples that have arrived up to now, about `most_rows` at most; None if there are none."""

    def committed(self) -> None:
        """Tells the source that its last batch is durable: it may be acknowledged to its sender."""

    def close(self) -> None:
        """Stops, without losing tuples that were not polled."""


@runtime_checkable
class Scheduled(Protocol):
    """A source that knows when its next tuples come: it is polled then, and not before."""

    def next_ms(self) -> int | None:
        """The time from which a poll gives something; None if it is not known, or nothing follows. Asked while open."""


@runtime_checkable
class Announcing(Protocol):
    """A source that tuples are sent to: it says so when some have come, and is polled then."""

    def announce(self, arrived: Callable[[], None]) -> None:
        """Calls this from now on, from any thread, after tuples have come. May be called before `open`."""


@dataclass(frozen=True, slots=True)
class SinkBinding:
    """The binding of a query's results to one sink: the channel they wait in, and the sink that takes them."""

    query: str
    target: SinkTarget
    channel: ChannelId

    @property
    def name(self) -> str:
        return f"{self.query} > {self.target.name}"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The acknowledged position of a sink: the number of rows, and the note it left with the last of them."""

    rows: int = 0
    note: Any = None


class SinkConnector(Protocol):
    """Takes the results of one sink binding. All calls come from one thread."""

    fixed_ranges: bool
    """Whether a range of rows that was begun must be written again as exactly that range after a crash."""

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Begins behind an acknowledged position and removes all rows beyond it."""

    def write(self, table: pa.Table, first: int) -> Any:
        """Writes rows, of which the first is number `first`; the note it returns comes back in `open`."""

    def close(self) -> None:
        """Lets go of files and connections."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A way to get tuples, for the table of sources."""

    make: Callable[[Stream, Surroundings], SourceConnector]
    options: tuple[ConnectorOption, ...]
    elsewhere: Elsewhere
    """Whether another machine goes on reading where one that is gone has ended."""
    open_options: bool = False
    """Whether options that are not listed go on to the system behind the connector."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A way to hand over results, for the table of sinks."""

    make: Callable[[SinkBinding, Surroundings], SinkConnector]
    options: tuple[ConnectorOption, ...]
    elsewhere: Elsewhere
    """Whether another machine goes on writing where one that is gone has ended."""
    open_options: bool = False
