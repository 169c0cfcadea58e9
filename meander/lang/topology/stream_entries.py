"""The streams and sinks of a topology file: schemas, event time, and which nodes produce what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from meander.lang.topology.yaml_fields import check_keys, number, shown, texts, word, wrong
from meander.lang.topology.yaml_lines import YamlItem, YamlRow
from meander.model.errors import InputError, unknown
from meander.model.schema import DataType, Field, Kind, Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import NodeKind

DEFAULT_RATE_TPS = 100.0
STREAM_KEYS = frozenset({"name", "schema", "event_time", "nodes", "rate_tps", "options"})
SINK_KEYS = frozenset({"name", "node", "options"})
_ALL = {"all sensors": NodeKind.SENSOR, "all edges": NodeKind.EDGE, "all clouds": NodeKind.CLOUD, "all": None}


def read_streams(entries: list[YamlRow], nodes: Mapping[str, int], kinds: Sequence[NodeKind]) -> dict[str, Stream]:
    """Streams by name; `nodes` and `kinds` are the topology's."""
    streams: dict[str, Stream] = {}
    for row in entries:
        try:
            stream = _stream(row.values, nodes, kinds)
            if stream.name in streams:
                raise InputError(f"stream {stream.name!r} appears twice; give each stream its own name")
        except InputError as error:
            raise error.at(f"line {row.line}") from None
        streams[stream.name] = stream
    return streams


def read_sinks(entries: list[YamlRow], nodes: Mapping[str, int]) -> dict[str, SinkTarget]:
    """Sinks by name."""
    sinks: dict[str, SinkTarget] = {}
    for row in entries:
        try:
            check_keys(row.values, SINK_KEYS, "sink")
            name = _name(row.values, "sink")
            if name in sinks:
                raise InputError(f"sink {name!r} appears twice; give each sink its own name")
            if "node" not in row.values:
                raise InputError(f"sink {name!r} needs a node")
            node = word(row.values["node"], f"sink {name!r}: node")
            if node not in nodes:
                raise wrong(row.values["node"], f"sink {name!r}: {unknown('node', node, nodes).message}")
            sinks[name] = SinkTarget(name, node, _options(row.values, f"sink {name!r}"))
        except InputError as error:
            raise error.at(f"line {row.line}") from None
    return sinks


def _stream(values: Mapping[str, YamlItem | str], nodes: Mapping[str, int], kinds: Sequence[NodeKind]) -> Stream:
    check_keys(values, STREAM_KEYS, "stream")
    name = _name(values, "stream")
    what = f"stream {name!r}"
    if "schema" not in values:
        raise InputError(f"{what} needs a schema such as 'ts timestamp, id bigint'")
    schema = _schema(values["schema"], what)
    event_time = (
        word(values["event_time"], f"{what}: event_time") if "event_time" in values else _only_time(schema, what)
    )
    if event_time not in schema:
        raise wrong(values["event_time"], f"{what}: event_time: {unknown('column', event_time, schema.names).message}")
    rate_tps = number(values["rate_tps"], f"{what}: rate_tps") if "rate_tps" in values else DEFAULT_RATE_TPS
    producers = _producers(values.get("nodes", "all sensors"), nodes, kinds, what)
    return Stream(name, schema, event_time, producers, rate_tps, _options(values, what))


def _name(values: Mapping[str, YamlItem | str], what: str) -> str:
    if "name" not in values:
        raise InputError(f"a {what} needs a name")
    return word(values["name"], f"the name of a {what}")


def _options(values: Mapping[str, YamlItem | str], what: str) -> dict[str, str]:
    return texts(values["options"], f"{what}: options") if "options" in values else {}


def _schema(value: YamlItem | str, what: str) -> Schema:
    try:
        return Schema(tuple(_fields(value)))
    except InputError as error:
        where = error.where or wrong(value, "").where
        raise InputError(f"{what}: {error.message}", where) from None


def _fields(value: YamlItem | str) -> Iterator[Field]:
    if isinstance(value, YamlItem) and isinstance(value.value, dict):
        for column, item in value.value.items():
            try:
                yield Field(column, DataType.parse(word(item, f"the type of {column}")))
            except InputError as error:
                raise wrong(item, error.message) from None
        return
    if isinstance(value, YamlItem) and not isinstance(value.value, str):
        raise wrong(value, f"schema must be a text such as 'ts timestamp, id bigint' or a mapping, not {shown(value)}")
    for part in word(value, "schema").split(","):
        column, _, type_ = part.strip().partition(" ")
        if not column or not type_.strip():
            raise wrong(value, f"column {part.strip()!r} needs a name and a type, as in 'ts timestamp'")
        yield Field(column, DataType.parse(type_))


def _only_time(schema: Schema, what: str) -> str:
    times = [field.name for field in schema if field.type.kind is Kind.TIMESTAMP]
    if len(times) != 1:
        raise InputError(
            f"{what} needs event_time, because it has "
            + (f"several timestamp columns: {', '.join(times)}" if times else "no timestamp column")
        )
    return times[0]


def _producers(
    value: YamlItem | str, nodes: Mapping[str, int], kinds: Sequence[NodeKind], what: str
) -> tuple[str, ...]:
    """The nodes that a list, a glob or a phrase such as `all sensors` stands for, in the order of the file."""
    listed = value.value if isinstance(value, YamlItem) and isinstance(value.value, list) else [value]
    found: dict[str, None] = {}
    for item in listed:
        try:
            found.update(dict.fromkeys(_matching(word(item, "nodes"), nodes, kinds)))
        except InputError as error:
            raise wrong(item, f"{what}: {error.message}") from None
    return tuple(found)


def _matching(text: str, nodes: Mapping[str, int], kinds: Sequence[NodeKind]) -> list[str]:
    if text in nodes:
        return [text]
    if text in _ALL:
        kind = _ALL[text]
        found = [name for name, index in nodes.items() if kind is None or kinds[index] is kind]
        if not found:
            raise InputError(f"there are no nodes for {text!r}; name the nodes that produce it")
        return found
    if any(sign in text for sign in "*?["):
        found = [name for name in nodes if fnmatchcase(name, text)]
        if not found:
            raise unknown("node", text, nodes)
        return found
    if text.startswith("all "):
        raise unknown("group", text, _ALL)
    raise unknown("node", text, nodes)
