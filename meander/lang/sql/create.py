"""CREATE STREAM and CREATE SINK: where data enters and leaves, for scripts that need no topology file."""

from __future__ import annotations

from meander.lang.reader import Reader
from meander.model.errors import InputError
from meander.model.schema import Kind, Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.units import RATE_UNITS_HZ, quantity

DEFAULT_RATE_TPS = 100.0


def read_stream(reader: Reader) -> Stream:
    """`name (column type, ...) [EVENT TIME column] [ON NODES (a, b)] [RATE 100] [WITH (key = 'value')]`"""
    start, name = reader.offset, reader.name("the stream's name")
    schema = reader.schema()
    event_time: str | None = None
    nodes: tuple[str, ...] = ()
    rate = DEFAULT_RATE_TPS
    options: dict[str, str] = {}
    while True:
        offset = reader.offset
        if reader.take("EVENT"):
            reader.expect("TIME")
            offset, event_time = reader.offset, reader.name("the event-time column")
            with reader.text.at(offset):
                schema.type_of(event_time)
        elif reader.take("ON"):
            if not reader.take("NODE"):
                reader.expect("NODES")
            nodes = tuple(reader.in_parentheses(lambda: reader.name("a node")))
        elif reader.take("RATE"):
            with reader.text.at(offset):
                rate = _rate(reader)
        elif reader.take("WITH"):
            options = read_options(reader)
        else:
            break
    with reader.text.at(start):
        return Stream(name, schema, event_time or _only_timestamp(name, schema), nodes, rate, options)


def read_sink(reader: Reader) -> SinkTarget:
    """`name [ON NODE node] [WITH (key = 'value')]`; without a node, the topology says where the sink is."""
    name = reader.name("the sink's name")
    node = ""
    if reader.take("ON"):
        reader.expect("NODE")
        node = reader.name("a node")
    return SinkTarget(name, node, read_options(reader) if reader.take("WITH") else {})


def _rate(reader: Reader) -> float:
    value = reader.quantity("a number of tuples a second such as 100")
    if reader.take("/"):
        value += "/" + reader.name("a unit of time such as s")
    return quantity(value, RATE_UNITS_HZ, "rate", "/s")


def read_options(reader: Reader) -> dict[str, str]:
    """`(key = 'value', ...)`"""

    def one() -> tuple[str, str]:
        key = reader.name("an option's name")
        while reader.take("."):
            key += "." + reader.name("the rest of the option's name")
        reader.expect("=")
        return key, reader.string("the option's value in quotes")

    return dict(reader.in_parentheses(one))


def _only_timestamp(name: str, schema: Schema) -> str:
    times = [f.name for f in schema if f.type.kind is Kind.TIMESTAMP]
    if len(times) != 1:
        found = "no timestamp column" if not times else f"several timestamp columns ({', '.join(times)})"
        raise InputError(f"stream {name!r} has {found}; say which column is its time with EVENT TIME column")
    return times[0]
