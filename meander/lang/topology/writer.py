"""Writes a topology as YAML, one node, link, stream or sink a line, straight from the columns."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import Topology

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_RESERVED = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n", "all", "inf", "nan", "unlimited"})


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Writes a file next to its place and then puts it there, so that readers never see half of it."""
    partial = None
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"cannot write this file: {(error.strerror or 'unknown reason').lower()}", str(path)) from None
    finally:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def lines_of(
    topology: Topology,
    streams: Iterable[Stream],
    sinks: Iterable[SinkTarget],
    losses: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> Iterator[str]:
    """The lines of a topology file."""
    names = [quoted(topology.name(NodeId(n))) for n in range(topology.nodes.count)]
    yield "nodes:\n"
    yield from _node_lines(topology, names)
    yield from _headed(
        "links:\n", _link_lines(topology, names, {(quoted(a), quoted(b)): loss for (a, b), loss in losses.items()})
    )
    yield from _headed("streams:\n", (_stream_line(topology, stream) for stream in streams))
    yield from _headed("sinks:\n", (_sink_line(sink) for sink in sinks))


def quoted(text: str) -> str:
    """A text as YAML reads it back: plain when that is safe, in double quotes otherwise."""
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return '"' + "".join(_escaped(sign) for sign in text) + '"'


def _escaped(sign: str) -> str:
    if sign in '"\\':
        return f"\\{sign}"
    return sign if sign == " " or (sign.isprintable() and ord(sign) <= 0xFFFF) else f"\\U{ord(sign):08X}"


def _headed(heading: str, lines: Iterator[str]) -> Iterator[str]:
    first = next(lines, None)
    if first is not None:
        yield heading
        yield first
        yield from lines


def _texts(column: NDArray[np.float32]) -> list[str]:
    """The shortest texts that read back as the same numbers."""
    return [text.removesuffix(".0") for text in column.astype(str).tolist()]


def _node_lines(topology: Topology, names: list[str]) -> Iterator[str]:
    n = topology.nodes
    kinds = [kind.name.lower() for kind in sorted(NodeKind)]
    capacity, memory, lon, lat = (_texts(c[: n.count]) for c in (n.capacity_tps, n.memory_mb, n.lon, n.lat))
    power, price = (_texts(c[: n.count]) for c in (n.power_w, n.price_per_h))
    kind, slots, mobile = n.kind.tolist(), n.slots.tolist(), n.mobile.tolist()
    for i in np.flatnonzero(n.alive[: n.count]).tolist():
        line = f"  - {{name: {names[i]}, kind: {kinds[kind[i]]}, slots: {slots[i]}"
        if capacity[i] != "inf":
            line += f", capacity_tps: {capacity[i]}"
        if memory[i] != "inf":
            line += f", memory_mb: {memory[i]}"
        if lon[i] != "nan":
            line += f", lon: {lon[i]}, lat: {lat[i]}"
        if power[i] != "0":
            line += f", power_w: {power[i]}"
        if price[i] != "0":
            line += f", price_per_h: {price[i]}"
        yield line + (", mobile: true}\n" if mobile[i] else "}\n")


def _link_lines(topology: Topology, names: list[str], losses: Mapping[tuple[str, str], float]) -> Iterator[str]:
    a = topology.arcs
    written, both = one_per_link(topology)
    latency, bandwidth = _texts(a.latency_ms[written]), _texts(a.bandwidth_mbps[written])
    ends = zip(a.tail[written].tolist(), a.tip[written].tolist(), latency, bandwidth, both.tolist(), strict=True)
    for tail, tip, latency_ms, bandwidth_mbps, both_ways in ends:
        line = f"  - {{source: {names[tail]}, target: {names[tip]}, latency_ms: {latency_ms}"
        if bandwidth_mbps != "inf":
            line += f", bandwidth_mbps: {bandwidth_mbps}"
        loss = losses.get((names[tail], names[tip]), losses.get((names[tip], names[tail])) if both_ways else None)
        line += "" if loss is None else f", loss_percent: {loss!r}"
        yield line + ("}\n" if both_ways else ", directed: true}\n")


def one_per_link(topology: Topology) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One arc of every link, and whether the link goes both ways: an opposite arc with equal properties is its
    reverse."""
    a, count = topology.arcs, topology.nodes.count
    live = np.flatnonzero(a.alive[: a.count])
    tail, tip = a.tail[live].astype(np.int64), a.tip[live].astype(np.int64)
    forth, back = tail * count + tip, tip * count + tail
    order = np.argsort(forth)
    place = np.searchsorted(forth, back, sorter=order)
    opposite = live[order[np.minimum(place, len(live) - 1)]] if len(live) else live
    both_ways = (
        (a.tail[opposite] == tip)
        & (a.tip[opposite] == tail)
        & (a.latency_ms[opposite] == a.latency_ms[live])
        & (a.bandwidth_mbps[opposite] == a.bandwidth_mbps[live])
    )
    chosen = ~both_ways | (live < opposite)
    return live[chosen], both_ways[chosen]


def _stream_line(topology: Topology, stream: Stream) -> str:
    schema = ", ".join(f"{quoted(field.name)}: {quoted(str(field.type))}" for field in stream.schema)
    return (
        f"  - {{name: {quoted(stream.name)}, schema: {{{schema}}}, event_time: {quoted(stream.event_time)}, "
        f"nodes: {_producers(topology, stream)}, rate_tps: {stream.rate_tps!r}{_options(stream.options)}}}\n"
    )


def _producers(topology: Topology, stream: Stream) -> str:
    """All nodes of a kind by their phrase, others by name."""
    if stream.nodes and stream.nodes[0] in topology:
        kind = int(topology.nodes.kind[topology.id(stream.nodes[0])])
        phrase = f"all {NodeKind(kind).name.lower()}s"
        same = np.flatnonzero(topology.nodes.alive & (topology.nodes.kind == kind))
        names = (topology.name(NodeId(int(n))) for n in same)
        if phrase not in topology and len(same) == len(stream.nodes) and stream.nodes == tuple(names):
            return phrase
    return "[" + ", ".join(quoted(name) for name in stream.nodes) + "]"


def _sink_line(sink: SinkTarget) -> str:
    return f"  - {{name: {quoted(sink.name)}, node: {quoted(sink.node)}{_options(sink.options)}}}\n"


def _options(options: Mapping[str, str]) -> str:
    if not options:
        return ""
    return ", options: {" + ", ".join(f"{quoted(key)}: {quoted(text)}" for key, text in options.items()) + "}"
