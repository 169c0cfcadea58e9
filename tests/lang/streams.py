"""The streams and sinks of the ring example, without its topology file."""

from __future__ import annotations

from meander.lang import Environment
from meander.model.schema import Schema
from meander.model.streams import Stream

STREAMS = {
    stream.name: stream
    for stream in (
        Stream(
            "train",
            Schema.of(ts="timestamp", id="bigint", station="string", speed="double", passengers="int"),
            "ts",
        ),
        Stream("weather", Schema.of(ts="timestamp", station="string", temperature="double", wind="double"), "ts"),
        Stream(
            "vehicle",
            Schema.of(ts="timestamp", id="bigint", road="string", x="double", speed="double", lane="int"),
            "ts",
        ),
    )
}
SINKS = ("alerts", "archive", "dashboard")
ENVIRONMENT = Environment(STREAMS, SINKS)
