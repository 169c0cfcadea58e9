"""Random problems: small topologies with tight nodes, and deltas with several inputs, readers and sinks."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from meander.model.ids import NodeId, OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.costspace.build import build
from meander.place.costspace.vivaldi import Vivaldi
from meander.place.free_capacity import CapacityLedger, Room
from meander.place.problem import Flow, Need, Problem


@dataclass(frozen=True)
class Sizes:
    nodes: int = 7
    operators: int = 4
    slots: int = 3
    tps: float = float("inf")
    connected: bool = False


@st.composite
def topologies(draw: st.DrawFn, sizes: Sizes) -> Topology:
    """Some nodes with few slots, linked at random; dead ones and separate parts occur unless `connected`."""
    count = draw(st.integers(2, sizes.nodes))
    names = [f"n{i}" for i in range(count)]
    kinds = [draw(st.sampled_from(NodeKind)) for _ in names]
    topology = Topology.of(
        [Node(n, k, draw(st.integers(0, sizes.slots)), sizes.tps) for n, k in zip(names, kinds, strict=True)], []
    )
    pairs = [(a, b) for a in range(count) for b in range(a)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * count))
    if sizes.connected:
        chosen = list(dict.fromkeys([*((i, draw(st.integers(0, i - 1))) for i in range(1, count)), *chosen]))
    for a, b in chosen:
        directed = not sizes.connected and draw(st.booleans())
        topology.add_link(Link(names[a], names[b], draw(st.integers(0, 12)), directed=directed))
    if not sizes.connected and draw(st.booleans()):
        topology.remove_node(topology.id(draw(st.sampled_from(names))))
    return topology


@st.composite
def problems(draw: st.DrawFn, sizes: Sizes | None = None) -> Problem:
    """A delta: pinned starts, free operators in dataflow order that read from earlier ones, pinned ends."""
    sizes = sizes or Sizes()
    topology = draw(topologies(sizes))
    node = st.integers(0, topology.nodes.count - 1).map(NodeId)
    starts = [OperatorId(i) for i in range(draw(st.integers(1, 3)))]
    free = [OperatorId(10 + i) for i in range(draw(st.integers(0, sizes.operators)))]
    ends = [OperatorId(100 + i) for i in range(draw(st.integers(0 if not sizes.connected else 1, 3)))]
    pairs: dict[tuple[OperatorId, OperatorId], None] = {}
    for i, operator in enumerate(free):
        for upstream in draw(st.lists(st.sampled_from([*starts, *free[:i]]), min_size=1, max_size=3, unique=True)):
            pairs[upstream, operator] = None
    for end in ends:
        for upstream in draw(st.lists(st.sampled_from([*starts, *free]), min_size=1, max_size=2, unique=True)):
            pairs[upstream, end] = None
    mbps = {o: draw(st.integers(0, 16)) / 4 for o in (*starts, *free)}
    flows = tuple(Flow(u, r, 10.0, mbps[u]) for u, r in pairs)
    needs = {o: Need(draw(st.integers(0, 2)), draw(st.integers(0, 8)) / 2) for o in free}
    pinned = {o: draw(node) for o in (*starts, *ends)}
    return problem_of(topology, needs, pinned, flows, draw(st.integers(0, 99)))


def problem_of(
    topology: Topology,
    needs: dict[OperatorId, Need],
    pinned: dict[OperatorId, NodeId],
    flows: tuple[Flow, ...],
    seed: int = 0,
) -> Problem:
    """A problem with a fresh ledger and a cost space."""
    space = build(topology, Vivaldi(rounds=50), landmarks=4)
    return Problem(needs, pinned, flows, topology, Room(CapacityLedger(topology)), seed, space)


def again(problem: Problem) -> Problem:
    """The same problem before anything was taken."""
    return Problem(
        problem.free,
        problem.pinned,
        problem.flows,
        problem.topology,
        Room(problem.room.ledger),
        problem.seed,
        problem.space,
        problem.former,
    )


def line(slots: list[int], tps: float = float("inf"), ms: float = 10.0) -> Topology:
    """a - b - c - ... with these slots."""
    names = [chr(ord("a") + i) for i in range(len(slots))]
    nodes = [Node(n, NodeKind.EDGE, s, tps) for n, s in zip(names, slots, strict=True)]
    return Topology.of(nodes, [Link(x, y, ms) for x, y in pairwise(names)])


def chain(topology: Topology, start: str, end: str, mbps: list[float], slots: int = 1, tps: float = 0.0) -> Problem:
    """A pinned start, free operators in a row, a pinned end; one traffic figure per flow."""
    free = [OperatorId(10 + i) for i in range(len(mbps) - 1)]
    row = [OperatorId(0), *free, OperatorId(100)]
    flows = tuple(Flow(u, r, 10.0, m) for u, r, m in zip(row, row[1:], mbps, strict=False))
    pinned = {OperatorId(0): topology.id(start), OperatorId(100): topology.id(end)}
    return problem_of(topology, {o: Need(slots, tps) for o in free}, pinned, flows)


def names(topology: Topology, nodes: Mapping[OperatorId, NodeId]) -> str:
    """Where operators run, in dataflow order."""
    return "".join(topology.name(nodes[o]) for o in sorted(nodes))


def used(problem: Problem, nodes: dict[OperatorId, NodeId]) -> dict[NodeId, tuple[int, float]]:
    """What a placement takes, added up from scratch."""
    total: dict[NodeId, tuple[int, float]] = {}
    for operator, node in nodes.items():
        slots, tps = total.get(node, (0, 0.0))
        total[node] = slots + problem.free[operator].slots, tps + problem.free[operator].load_tps
    return total


def points(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Points in a square of 100 ms."""
    return rng.uniform(0, 100, (count, 2))
