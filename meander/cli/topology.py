"""`meander topology`: check, show, import and generate topology files."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.lang.event_file import write_events
from meander.lang.importers import IMPORTERS, importer
from meander.lang.topology.reader import DEFAULT_SLOTS, TopologyFile, load, write_yaml
from meander.local import topologies
from meander.local.process_memory import peak_resident_mb
from meander.local.topology_summary import Summary, summarise
from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import UNLIMITED, NodeKind
from meander.model.topology.graph import Topology

File = Annotated[Path, typer.Argument(help="Topology file (YAML).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the topology file here.")]

DEFAULT_SLOTS_TEXT = ",".join(str(DEFAULT_SLOTS[kind]) for kind in NodeKind)
group = typer.Typer(no_args_is_help=True, help="Check, show, import and generate topology files.")


class GeneratedKind(StrEnum):
    """The shapes that can be generated."""

    TREE = "tree"
    STAR = "star"
    RING = "ring"
    FULL = "full"
    IOT_LAB = "iot-lab"
    CLUSTERS = "clusters"


@group.command()
def check(file: File) -> None:
    """Check a topology file, and name mistakes with their lines."""
    contents = load(file)
    summary = summarise(contents.topology, diameter=False)
    streams, sinks = len(contents.streams), len(contents.sinks)
    typer.echo(
        f"{file}: {_count(summary.nodes, 'node')}, {_count(summary.links, 'link')}, {_count(streams, 'stream')}, "
        f"{_count(sinks, 'sink')}; no mistakes found"
    )
    if summary.components > 1:
        typer.echo(f"note: the topology falls into {summary.components:,} parts; no data can pass between them")


@group.command()
def show(file: File, as_json: Json = False) -> None:
    """Describe a topology file: nodes by kind, links, latencies, streams and sinks."""
    contents = load(file)
    _describe(contents, as_json)


@group.command(name="import")
def import_(
    kind: Annotated[str, typer.Argument(help="; ".join(f"{i.kind}: {i.about}" for i in IMPORTERS), show_default=False)],
    path: Annotated[Path, typer.Argument(help="What to import.", show_default=False)],
    output: Output = None,
    events: Annotated[
        Path | None, typer.Option("--events", "-e", help="Write the changes over time here (JSON lines).")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct what can be corrected: gaps, asymmetry, doubled links.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a topology file out of another format. Round-trip times, edge lists and .json may be gzipped."""
    imported = importer(kind).read(path, repair)
    if output is not None:
        write_yaml(imported.contents, output)
    if events is not None:
        write_events(imported.events, events)
    _describe(imported.contents, as_json, {"events": len(imported.events), "notes": list(imported.notes)})
    if not as_json:
        _say_written(output, events)


@group.command()
def generate(
    kind: Annotated[GeneratedKind, typer.Option("--kind", "-k", help="The shape of the topology.", show_default=False)],
    nodes: Annotated[int | None, typer.Option(help="Number of nodes (not for iot-lab).")] = None,
    clouds: Annotated[int, typer.Option(help="iot-lab: nodes of the top layer.")] = 64,
    edges: Annotated[int, typer.Option(help="iot-lab: nodes of the middle layer.")] = 64,
    sensors: Annotated[int, typer.Option(help="iot-lab: nodes of the bottom layer, in equal groups per edge.")] = 640,
    edges_per_sensor: Annotated[int, typer.Option(help="iot-lab: edges each sensor is linked to.")] = 1,
    clouds_per_edge: Annotated[
        int | None, typer.Option(help="iot-lab: clouds each edge is linked to.", show_default="all")
    ] = None,
    fanout: Annotated[int, typer.Option(help="tree: children of a node.")] = 2,
    groups: Annotated[int, typer.Option("--clusters", help="clusters: number of clusters.")] = 10,
    neighbours: Annotated[int, typer.Option(help="clusters: nearest nodes each sensor is linked to.")] = 3,
    slots: Annotated[str, typer.Option(help="Slots of a sensor, an edge and a cloud.")] = DEFAULT_SLOTS_TEXT,
    latency_ms: Annotated[str, typer.Option(help="Range that latencies are drawn from, or one number.")] = "1..10",
    bandwidth_mbps: Annotated[
        float, typer.Option(help="Bandwidth of every link.", show_default="unlimited")
    ] = UNLIMITED,
    seed: Annotated[int, typer.Option(help="The same seed gives the same topology.")] = 0,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Generate a topology. Without --output, only describe it, with the time and memory it took."""
    shape = topologies.TopologyShape(_slots(slots), _range(latency_ms), bandwidth_mbps, seed)
    start = time.perf_counter()
    match kind:
        case GeneratedKind.IOT_LAB:
            if nodes is not None:
                raise InputError("iot-lab takes --clouds, --edges and --sensors instead of --nodes")
            topology = topologies.iot_lab(
                clouds, edges, sensors, edges_per_sensor=edges_per_sensor, clouds_per_edge=clouds_per_edge, shape=shape
            )
        case GeneratedKind.TREE:
            topology = topologies.tree(_needed(nodes), fanout, shape)
        case GeneratedKind.STAR:
            topology = topologies.star(_needed(nodes), shape)
        case GeneratedKind.RING:
            topology = topologies.ring(_needed(nodes), shape)
        case GeneratedKind.FULL:
            topology = topologies.full(_needed(nodes), shape)
        case GeneratedKind.CLUSTERS:
            topology = topologies.clusters(_needed(nodes), groups, neighbours, shape)
    built = {"seconds": round(time.perf_counter() - start, 3), "peak_memory_mb": round(peak_resident_mb(), 1)}
    contents = TopologyFile(topology, {}, {})
    if output is not None:
        contents = _with_stream(topology)
        write_yaml(contents, output)
    _describe(contents, as_json, built)
    if not as_json:
        _say_written(output, None)


def _needed(nodes: int | None) -> int:
    if nodes is None:
        raise InputError("say how many nodes: --nodes 100")
    return nodes


def _with_stream(topology: Topology) -> TopologyFile:
    """A stream from all sensors (or edges) and a sink on the first cloud, so that the file can be used at once."""
    n = topology.nodes
    producing = NodeKind.SENSOR if (n.kind[: n.count] == NodeKind.SENSOR).any() else NodeKind.EDGE
    names = tuple(topology.name(NodeId(i)) for i in range(n.count) if n.kind[i] == producing)
    stream = Stream("reading", Schema.of(ts="timestamp", id="bigint", value="double"), "ts", names)
    return TopologyFile(topology, {"reading": stream}, {"results": SinkTarget("results", topology.name(NodeId(0)))})


def _slots(text: str) -> dict[NodeKind, int]:
    parts = text.split(",")
    if len(parts) != len(NodeKind) or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"slots are three whole numbers for sensor, edge and cloud, such as {DEFAULT_SLOTS_TEXT}, not {text!r}"
        )
    return {kind: int(part) for kind, part in zip(NodeKind, parts, strict=True)}


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        return float(low), float(high if dots else low)
    except ValueError:
        raise InputError(f"latencies are a number or a range such as 1..10, not {text!r}") from None


def _describe(contents: TopologyFile, as_json: bool, more: dict[str, Any] | None = None) -> None:
    summary = summarise(contents.topology)
    more = more or {}
    if as_json:
        typer.echo(json.dumps(summary.as_json() | _streams_json(contents) | more, indent=2))
        return
    Console(highlight=False).print(_table(summary, contents, more))


def _streams_json(contents: TopologyFile) -> dict[str, Any]:
    return {
        "streams": [
            {
                "name": stream.name,
                "schema": str(stream.schema),
                "event_time": stream.event_time,
                "nodes": len(stream.nodes),
                "rate_tps": stream.rate_tps,
            }
            for stream in contents.streams.values()
        ],
        "sinks": [{"name": sink.name, "node": sink.node} for sink in contents.sinks.values()],
    }


def _table(summary: Summary, contents: TopologyFile, more: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    for label, text in summary.rows():
        table.add_row(label, text)
    for stream in contents.streams.values():
        where = stream.nodes[0] if len(stream.nodes) == 1 else f"{len(stream.nodes):,} nodes"
        table.add_row("stream", f"{stream.name}({stream.schema}) from {where}, {_rate(stream.rate_tps)}")
    for sink in contents.sinks.values():
        table.add_row("sink", f"{sink.name} on {sink.node}")
    if more.get("events"):
        table.add_row("changes", f"{more['events']:,}")
    for note in more.get("notes", ()):
        table.add_row("note", note)
    if "seconds" in more:
        table.add_row("built in", f"{more['seconds']:g} s, {more['peak_memory_mb']:,.0f} MB at most in this process")
    return table


def _rate(rate_tps: float) -> str:
    return f"{rate_tps:g} {'tuple' if rate_tps == 1 else 'tuples'}/s each"


def _say_written(output: Path | None, events: Path | None) -> None:
    for path in (output, events):
        if path is not None:
            typer.echo(f"wrote {path}")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
