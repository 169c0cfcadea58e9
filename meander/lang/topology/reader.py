"""Topology files: nodes, links, streams and sinks as YAML, read with an error that names file, line and alternatives.

The keys and their defaults are documented in docs/reference/topology.md. Nodes and links become columns, so that a
hundred thousand of them load in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from meander.lang.topology.stream_entries import read_sinks, read_streams
from meander.lang.topology.writer import lines_of, write_whole
from meander.lang.topology.yaml_fields import check_keys, number, rows, truth, whole, word, wrong
from meander.lang.topology.yaml_lines import Document, YamlItem, YamlRow, parse
from meander.model.errors import InputError, unknown
from meander.model.resilience import ReplicationMode, Resilience, check_detour
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import UNLIMITED, NodeKind
from meander.model.topology.graph import Topology, topology_of_columns
from meander.model.units import duration_ms, size_bytes

DEFAULT_SLOTS: Mapping[NodeKind, int] = MappingProxyType({NodeKind.SENSOR: 4, NodeKind.EDGE: 16, NodeKind.CLOUD: 256})
DEFAULT_LATENCY_MS = 1.0
REPLICATION_KEYS = frozenset({"replication", "replication_lag", "replication_bytes", "replica_budget", "takeover"})
TOP_KEYS = frozenset({"nodes", "links", "streams", "sinks", "replicas", "disconnected", "detour"}) | REPLICATION_KEYS
HOLD = "hold"
MOST_COST = 1e9
"""Watts, or the price of an hour, at most."""
NODE_KEYS = frozenset(
    {"name", "kind", "slots", "capacity_tps", "memory", "memory_mb", "lon", "lat", "mobile", "power_w", "price_per_h"}
)
LINK_KEYS = frozenset({"source", "target", "latency_ms", "bandwidth_mbps", "loss_percent", "directed"})
_KINDS = {kind.name.lower(): kind for kind in NodeKind}


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """The content of a topology file: the graph, its streams and its sinks."""

    topology: Topology
    streams: dict[str, Stream]
    sinks: dict[str, SinkTarget]
    resilience: Resilience = field(default_factory=Resilience)
    losses: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Packets that links lose, in percent, of those that say so; only a test bed asks for them."""


def load(path: Path) -> TopologyFile:
    """Reads a topology file."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read this file: {(error.strerror or 'unknown reason').lower()}", str(path)) from None
    except UnicodeDecodeError:
        raise InputError("this file is not text in UTF-8", str(path)) from None
    return read(text, str(path))


def read(text: str, file: str = "topology") -> TopologyFile:
    """Reads the text of a topology file; `file` is what errors call it."""
    try:
        return _contents(parse(text))
    except InputError as error:
        raise error.inside(file) from None


def write_yaml(contents: TopologyFile, path: Path) -> None:
    """Writes a topology file; the path holds either all of it or its former content."""
    write_whole(path, lines(contents))


def lines(contents: TopologyFile) -> Iterator[str]:
    settings, usual = contents.resilience, Resilience()
    if settings.replicas != usual.replicas:
        yield f"replicas: {settings.replicas}\n"
    if settings.replication != usual.replication or settings.replicas != usual.replicas:
        yield f"replication: {settings.replication.value}\n"
    if settings.replication_lag_ms != usual.replication_lag_ms:
        yield f"replication_lag: {settings.replication_lag_ms} ms\n"
    if settings.replication_lag_bytes != usual.replication_lag_bytes:
        yield f"replication_bytes: {settings.replication_lag_bytes} B\n"
    if settings.replica_bytes != usual.replica_bytes:
        yield f"replica_budget: {settings.replica_bytes} B\n"
    if settings.takeover_ms != usual.takeover_ms:
        yield f"takeover: {settings.takeover_ms} ms\n"
    if settings.idle_timeout_ms is not None:
        yield f"disconnected: {settings.idle_timeout_ms} ms\n"
    if settings.detour != usual.detour:
        yield f"detour: {settings.detour:g}\n"
    yield from lines_of(contents.topology, contents.streams.values(), contents.sinks.values(), contents.losses)


def _contents(document: Document) -> TopologyFile:
    check_keys(document.keys, TOP_KEYS, "topology")
    node_rows = _section(document, "node")
    if not node_rows:
        raise InputError("the file has no nodes; list at least one under nodes")
    nodes = _nodes(node_rows)
    links = _section(document, "link")
    topology = _topology(nodes, links)
    streams = read_streams(_section(document, "stream"), nodes.index, nodes.kind)
    sinks = read_sinks(_section(document, "sink"), nodes.index)
    return TopologyFile(topology, streams, sinks, _resilience(document), _losses(links))


def _resilience(document: Document) -> Resilience:
    keys, usual = document.keys, Resilience()
    replicas = whole(keys["replicas"], "replicas") if "replicas" in keys else usual.replicas
    idle_timeout_ms = None
    if "disconnected" in keys and word(keys["disconnected"], "disconnected") != HOLD:
        idle_timeout_ms = _duration(keys["disconnected"], "disconnected", f"{HOLD} or ")
    detour = usual.detour
    if "detour" in keys:
        detour = number(keys["detour"], "detour")
        try:
            check_detour(detour)
        except InputError as error:
            raise wrong(keys["detour"], error.message) from None
    lag_ms, takeover_ms = (
        _duration(keys[key], key) if key in keys else default
        for key, default in (("replication_lag", usual.replication_lag_ms), ("takeover", usual.takeover_ms))
    )
    lag_bytes = _size(document, "replication_bytes", usual.replication_lag_bytes)
    budget_bytes = _size(document, "replica_budget", usual.replica_bytes)
    mode = _replication(document)
    return Resilience(replicas, idle_timeout_ms, detour, mode, lag_ms, lag_bytes, takeover_ms, budget_bytes)


def _size(document: Document, key: str, default: int) -> int:
    if key not in document.keys:
        return default
    try:
        return size_bytes(word(document.keys[key], key))
    except InputError as error:
        raise wrong(document.keys[key], f"{key}: {error.message}") from None


def _replication(document: Document) -> ReplicationMode:
    """The mode; a file that says how many replicas there are wants them."""
    if "replication" not in document.keys:
        return ReplicationMode.ASYNC if "replicas" in document.keys else ReplicationMode.OFF
    item = document.keys["replication"]
    text = word(item, "replication")
    if text not in [mode.value for mode in ReplicationMode]:
        raise wrong(item, unknown("replication", text, [mode.value for mode in ReplicationMode]).message)
    return ReplicationMode(text)


def _duration(item: YamlItem, key: str, other: str = "") -> int:
    try:
        return duration_ms(word(item, key))
    except InputError as error:
        raise wrong(item, f"{key} must be {other}a time such as 30s: {error.message}") from None


def _section(document: Document, what: str) -> list[YamlRow]:
    key = f"{what}s"
    if key in document.rows:
        return document.rows[key]
    return rows(document.keys[key], what) if key in document.keys else []


class _NodeLists:
    """Nodes on their way into columns."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.kind: list[NodeKind] = []
        self.slots: list[int] = []
        self.capacity_tps: list[float] = []
        self.memory_mb: list[float] = []
        self.lon: list[float] = []
        self.lat: list[float] = []
        self.mobile: list[bool] = []
        self.power_w: list[float] = []
        self.price_per_h: list[float] = []


def _nodes(entries: list[YamlRow]) -> _NodeLists:
    nodes = _NodeLists()
    lines: list[int] = []
    for row in entries:
        try:
            name = _node(row.values, nodes)
            if nodes.index.setdefault(name, len(lines)) != len(lines):
                first = lines[nodes.index[name]]
                raise InputError(f"node {name!r} appears twice, first on line {first}; give each node its own name")
        except InputError as error:
            raise error.at(f"line {row.line}") from None
        lines.append(row.line)
    return nodes


def _node(values: Mapping[str, YamlItem | str], nodes: _NodeLists) -> str:
    check_keys(values, NODE_KEYS, "node")
    if "name" not in values:
        raise InputError("a node needs a name")
    name = word(values["name"], "the name of a node")
    what = f"node {name!r}: "
    kind = _kind(values, name)
    nodes.kind.append(kind)
    nodes.slots.append(whole(values["slots"], what + "slots") if "slots" in values else DEFAULT_SLOTS[kind])
    nodes.capacity_tps.append(
        number(values["capacity_tps"], what + "capacity_tps") if "capacity_tps" in values else UNLIMITED
    )
    nodes.memory_mb.append(_memory_mb(values, what))
    if ("lon" in values) != ("lat" in values):
        raise InputError(f"{what}lon and lat belong together; give both or none")
    located = "lon" in values
    nodes.lon.append(number(values["lon"], what + "lon", least=-180, most=180) if located else np.nan)
    nodes.lat.append(number(values["lat"], what + "lat", least=-90, most=90) if located else np.nan)
    nodes.mobile.append(truth(values["mobile"], what + "mobile") if "mobile" in values else False)
    for key, column in (("power_w", nodes.power_w), ("price_per_h", nodes.price_per_h)):
        column.append(number(values[key], what + key, most=MOST_COST) if key in values else 0.0)
    return name


def _kind(values: Mapping[str, YamlItem | str], name: str) -> NodeKind:
    if "kind" not in values:
        raise InputError(f"node {name!r} needs a kind: {', '.join(_KINDS)}")
    text = word(values["kind"], f"node {name!r}: kind")
    if text not in _KINDS:
        raise wrong(values["kind"], f"node {name!r}: {unknown('kind', text, _KINDS).message}")
    return _KINDS[text]


def _memory_mb(values: Mapping[str, YamlItem | str], what: str) -> float:
    if "memory_mb" in values:
        if "memory" in values:
            raise InputError(f"{what}memory and memory_mb say the same; keep one of them")
        return number(values["memory_mb"], what + "memory_mb")
    if "memory" not in values:
        return UNLIMITED
    text = word(values["memory"], what + "memory")
    try:
        return UNLIMITED if text == "unlimited" else size_bytes(text) / 1e6
    except InputError as error:
        raise wrong(values["memory"], f"{what}{error.message}") from None


def _topology(nodes: _NodeLists, entries: list[YamlRow]) -> Topology:
    count = len(nodes.index)
    tails: list[int] = []
    tips: list[int] = []
    back: list[int] = []
    latency_ms: list[float] = []
    bandwidth_mbps: list[float] = []
    lines: dict[int, int] = {}
    for row in entries:
        try:
            tail, tip, directed = _ends(row.values, nodes.index)
            for arc in (tail * count + tip,) if directed else (tail * count + tip, tip * count + tail):
                first = lines.setdefault(arc, row.line)
                if first != row.line:
                    raise InputError(f"{_called(row.values)} exists already, from line {first}; keep one of them")
            if not directed:
                back.append(len(tails))
            tails.append(tail)
            tips.append(tip)
            latency_ms.append(_of_link(row.values, "latency_ms", DEFAULT_LATENCY_MS))
            bandwidth_mbps.append(_of_link(row.values, "bandwidth_mbps", UNLIMITED))
        except InputError as error:
            raise error.at(f"line {row.line}") from None
    forth = slice(0, len(tails))
    arcs = np.r_[forth, np.array(back, dtype=np.int64)]
    tail_column, tip_column = np.array(tails, dtype=np.int32), np.array(tips, dtype=np.int32)
    with np.errstate(over="ignore"):
        return topology_of_columns(
            list(nodes.index),
            np.array(nodes.kind, dtype=np.uint8),
            np.array(nodes.slots, dtype=np.int32),
            np.concatenate((tail_column, tip_column[back])),
            np.concatenate((tip_column, tail_column[back])),
            np.array(latency_ms, dtype=np.float64).astype(np.float32)[arcs],
            bandwidth_mbps=np.array(bandwidth_mbps, dtype=np.float64).astype(np.float32)[arcs],
            capacity_tps=np.array(nodes.capacity_tps).astype(np.float32),
            memory_mb=np.array(nodes.memory_mb).astype(np.float32),
            lon=np.array(nodes.lon, dtype=np.float32),
            lat=np.array(nodes.lat, dtype=np.float32),
            mobile=np.array(nodes.mobile, dtype=bool),
            power_w=np.array(nodes.power_w).astype(np.float32),
            price_per_h=np.array(nodes.price_per_h).astype(np.float32),
            directed=True,
        )


def _losses(entries: list[YamlRow]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for row in entries:
        if "loss_percent" in row.values:
            source, target = (word(row.values[end], end) for end in ("source", "target"))
            try:
                found[source, target] = _of_link(row.values, "loss_percent", 0.0, most=100.0)
            except InputError as error:
                raise error.at(f"line {row.line}") from None
    return found


def _ends(values: Mapping[str, YamlItem | str], index: Mapping[str, int]) -> tuple[int, int, bool]:
    check_keys(values, LINK_KEYS, "link")
    for end in ("source", "target"):
        if end not in values:
            raise InputError(f"a link needs a {end}")
    source, target = word(values["source"], "the source of a link"), word(values["target"], "the target of a link")
    for end in (source, target):
        if end not in index:
            raise InputError(f"{_called(values)} dangles: {unknown('node', end, index).message}")
    if source == target:
        raise InputError(f"{_called(values)} leads nowhere; its two ends must differ")
    directed = "directed" in values and truth(values["directed"], f"{_called(values)}: directed")
    return index[source], index[target], directed


def _of_link(values: Mapping[str, YamlItem | str], key: str, default: float, most: float = UNLIMITED) -> float:
    if key not in values:
        return default
    try:
        return number(values[key], key, most=most)
    except InputError as error:
        raise InputError(f"{_called(values)}: {error.message}", error.where) from None


def _called(values: Mapping[str, YamlItem | str]) -> str:
    return f"link {word(values['source'], 'source')!r} to {word(values['target'], 'target')!r}"
