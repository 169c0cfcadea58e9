"""Join problems from files: a latency matrix or a topology gives the places of nodes, a table the pairs that join.

Without a table of joins the published instance is drawn: the first node (or `sink`) is the sink, 60% of the nodes (in a
topology: its sensors) are sources that are paired in order, rates and capacities are random.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meander.lang.importers.rtt_matrix import import_rtt_matrix
from meander.lang.topology.reader import load
from meander.local.join_draws import SOURCES, capacities, rates
from meander.model.errors import InputError, unknown
from meander.model.ids import NodeId
from meander.model.text_files import read_text
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import Topology
from meander.place.costspace.build import build
from meander.place.costspace.large import embed_many
from meander.place.costspace.mds import MOST_NODES, embed
from meander.place.costspace.space import CostSpace
from meander.place.nova.problem import NO_MATRIX, Columns, JoinProblem, checked
from meander.place.nova.problem_repair import repaired

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

COLUMNS = ("left", "right", "left_tps", "right_tps", "sink")


@dataclass(frozen=True, slots=True)
class JoinWorld:
    """Nodes with names, coordinates and, where known, all latencies between them."""

    names: tuple[str, ...]
    space: CostSpace
    matrix_ms: Floats
    capacity_tps: Floats | None
    """The capacities in the topology; None where it has none."""
    sources: Ints
    """The nodes that can be sources, unless they are named."""
    notes: tuple[str, ...] = ()
    topology: Topology | None = None
    """The origin of latencies, if they come from paths."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted joins, and the parameters of drawing them without a table."""

    joins: Path | None = None
    sink: str | None = None
    level: int = 10
    seed: int = 0
    unlimited: bool = False
    least_free_tps: float = 0.0
    bandwidth_tps: float = float("inf")
    measured: bool = True
    repair: bool = False


def read_latency(path: Path, repair: bool = False) -> JoinWorld:
    """A matrix of round-trip times (.npz or .csv), which count as they stand; coordinates are found or given."""
    imported = import_rtt_matrix(path, repair)
    topology = imported.contents.topology
    nodes, arcs = topology.nodes.count, topology.arcs
    matrix = np.zeros((nodes, nodes))
    matrix[arcs.tail[: arcs.count], arcs.tip[: arcs.count]] = 2.0 * arcs.latency_ms[: arcs.count]
    names = tuple(topology.name(NodeId(n)) for n in range(nodes))
    count = int(SOURCES * nodes) // 2 * 2
    return JoinWorld(names, _space(path, matrix), matrix, None, np.arange(1, count + 1), imported.notes[:-2])


def _space(path: Path, matrix: Floats) -> CostSpace:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            if "coords2d" in arrays.files:
                points = np.array(arrays["coords2d"], dtype=np.float64)
                return CostSpace(points, np.zeros(len(points)), np.ones(len(points)))
    if len(matrix) <= MOST_NODES:
        return embed(matrix, 2)
    return embed_many(len(matrix), lambda a, b: matrix[a, b])


def read_topology(path: Path) -> JoinWorld:
    """A topology file. Latency is that of the cheapest path; sensors are the sources."""
    topology = load(path).topology
    nodes = topology.nodes.count
    names = tuple(topology.name(NodeId(n)) for n in range(nodes))
    sensors = np.flatnonzero(topology.nodes.kind[:nodes] == NodeKind.SENSOR)
    capacity = topology.nodes.capacity_tps[:nodes].astype(np.float64)
    matrix = _paths(topology) if nodes <= MOST_NODES else NO_MATRIX
    return JoinWorld(names, build(topology), matrix, capacity, sensors[: len(sensors) // 2 * 2], (), topology)


def _paths(topology: Topology) -> Floats:
    rows = np.array([topology.adjacency.latencies_from(NodeId(n)) for n in range(topology.nodes.count)])
    return np.asarray(np.where(np.isfinite(rows), (rows + rows.T) / 2, np.nan), dtype=np.float64)


def problem_from(world: JoinWorld, wanted: Wanted) -> tuple[JoinProblem, list[str]]:
    """The problem, and the list of repairs."""
    rng = np.random.default_rng(wanted.seed)
    nodes = len(world.names)
    sink = 0 if wanted.sink is None else _node(world, wanted.sink)
    if wanted.joins is None:
        sources = world.sources[world.sources != sink].astype(np.int32)
        sources = sources[: len(sources) // 2 * 2]
        if not len(sources):
            raise InputError("there are no two sources to join; name them in a table with --joins")
        tps, rows = rates(len(sources), rng), np.arange(len(sources), dtype=np.int32)
        left, right, sinks = rows[::2].copy(), rows[1::2].copy(), np.full(len(rows) // 2, sink, dtype=np.int32)
    else:
        sources, tps, left, right, sinks = _table(world, wanted.joins, sink)
    capacity = world.capacity_tps
    if wanted.unlimited:
        capacity = np.full(nodes, np.inf)
    elif capacity is None or not np.isfinite(capacity).any():
        capacity = capacities(nodes, int(SOURCES * nodes) // 2 * 2, wanted.level, rng)
    columns = Columns(
        world.space.coordinates[:nodes], world.space.heights[:nodes], capacity, sources, tps, left, right, sinks,
        world.matrix_ms if wanted.measured else NO_MATRIX, wanted.least_free_tps, wanted.bandwidth_tps, world.names,
    )  # fmt: skip
    return repaired(columns) if wanted.repair else (checked(columns), [])


def _table(world: JoinWorld, path: Path, sink: int) -> tuple[Ints32, Floats, Ints32, Ints32, Ints32]:
    """Joins from a CSV with the columns left, right, left_tps, right_tps and, if there are several, sink."""
    reader = csv.DictReader(read_text(path).splitlines())
    missing = [c for c in COLUMNS[:4] if c not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"the table lacks {', '.join(missing)}; it needs {', '.join(COLUMNS[:4])}", str(path))
    known: dict[str, int] = {}
    tps: list[float] = []
    ends: list[tuple[int, int, int]] = []
    for line, row in enumerate(reader, 2):
        where = f"{path}, line {line}"
        pair = []
        for side in ("left", "right"):
            name = (row[side] or "").strip()
            if name not in known:
                _node(world, name, where)
                known[name] = len(tps)
                tps.append(_number(row[f"{side}_tps"], where))
            pair.append(known[name])
        goal = (row.get("sink") or "").strip()
        ends.append((pair[0], pair[1], _node(world, goal, where) if goal else sink))
    both = np.array(ends, dtype=np.int32).reshape(len(ends), 3)
    nodes = np.array([_node(world, name) for name in known], dtype=np.int32)
    return nodes, np.array(tps), both[:, 0].copy(), both[:, 1].copy(), both[:, 2].copy()


def _node(world: JoinWorld, name: str, where: str | None = None) -> int:
    try:
        return world.names.index(name)
    except ValueError:
        error = unknown("node", name, world.names)
        raise (error.at(where) if where else error) from None


def _number(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise InputError(f"a rate must be a number of tuples per second, not {text!r}", where) from None
