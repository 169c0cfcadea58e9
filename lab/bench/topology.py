"""Does a topology of a million nodes build in seconds, fit in memory, and change at a price that ignores its size?

Builds run in a process of their own, so that peak memory is theirs alone. Link changes are measured side by side on
three sizes: each repeat cuts random links and puts them back, through the public interface, names included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from lab.bench.report import Figure, Report
from meander.local.process_memory import peak_resident_mb, resident_mb
from meander.local.topologies import TopologyShape, iot_lab
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, NodeKind
from meander.model.topology.graph import Topology

SIZES = (1_000, 100_000, 1_000_000)
MOST_SECONDS = 5.0
MOST_MB = 500.0
MOST_CHANGE_US = 50.0
MOST_RATIO = 1.5
SEED = 7

Progress = Callable[[str], None]


def lab_of(nodes: int) -> Topology:
    """Sensors with two edges each, edges with three clouds each: exactly twice as many links as nodes."""
    clouds = max(nodes // 1000, 10)
    sensors = nodes - 3 * clouds
    return iot_lab(clouds, 2 * clouds, sensors, edges_per_sensor=2, clouds_per_edge=3, shape=TopologyShape(seed=SEED))


def run(quick: bool, progress: Progress) -> Report:
    """Builds, changes and queries; `quick` repeats less, on the same sizes."""
    repeats, changes, paths = (5, 1_000, 50) if quick else (9, 5_000, 200)
    figures = _builds(min(repeats, 3) if quick else repeats, progress)
    labs = {nodes: lab_of(nodes) for nodes in SIZES}
    figures += _changes(labs, repeats, changes, progress)
    figures += _paths(labs, repeats, paths, progress)
    return Report(
        "topology",
        f"three-layer IoT lab with {', '.join(f'{n:,}' for n in SIZES)} nodes and twice as many links, seed {SEED}",
        repeats,
        tuple(figures),
        (
            "kernels are compiled before anything is measured",
            "memory is the peak over what the process held before building, in a fresh process per repeat",
            f"a change is one link cut or put back; each repeat takes the median of {2 * changes:,}",
            "nearby is a sensor and a cloud of its edge; across is a sensor and one on the far side",
            "goals apply to the median of the repeats",
        ),
    )


def build_once(nodes: int) -> tuple[float, float]:
    """Seconds and peak megabytes of building once, in this process."""
    lab_of(SIZES[0])
    before = resident_mb()
    start = time.perf_counter()
    topology = lab_of(nodes)
    seconds = time.perf_counter() - start
    assert len(topology.adjacency) == 4 * nodes
    return seconds, peak_resident_mb() - before


def build_process(nodes: int) -> tuple[float, float]:
    """The same in a process that did nothing before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(build_once, nodes).result()


def _builds(repeats: int, progress: Progress) -> list[Figure]:
    largest = SIZES[-1]
    outcomes = []
    for repeat in range(repeats):
        progress(f"building {largest:,} nodes, {repeat + 1} of {repeats}")
        outcomes.append(build_process(largest))
    return [
        Figure.of(f"build {largest:,} nodes", "s", [seconds for seconds, _ in outcomes], MOST_SECONDS),
        Figure.of(f"memory for {largest:,} nodes", "MB", [mb for _, mb in outcomes], MOST_MB),
    ]


def _changes(labs: dict[int, Topology], repeats: int, changes: int, progress: Progress) -> list[Figure]:
    rng = np.random.default_rng(SEED)
    for lab in labs.values():
        change_links(lab, 10, rng)
    median: dict[int, list[float]] = {nodes: [] for nodes in labs}
    slow: dict[int, list[float]] = {nodes: [] for nodes in labs}
    for repeat in range(repeats):
        progress(f"changing links, {repeat + 1} of {repeats}")
        for nodes, lab in labs.items():
            took = change_links(lab, changes, rng)
            median[nodes].append(float(np.median(took)))
            slow[nodes].append(float(np.quantile(took, 0.99)))
    ratios = [last / first for first, last in zip(median[SIZES[0]], median[SIZES[-1]], strict=True)]
    return [
        *(Figure.of(f"link change, {n:,} nodes", "us", median[n], MOST_CHANGE_US) for n in labs),
        Figure.of("link change, largest to smallest", "x", ratios, MOST_RATIO),
        *(Figure.of(f"slowest 1% of them, {n:,} nodes", "us", slow[n]) for n in labs),
    ]


def change_links(topology: Topology, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Microseconds of each change: cuts random links, one after the other, and puts each back."""
    a = topology.arcs
    arcs = rng.choice(np.flatnonzero(a.alive[: a.count]), size=count, replace=len(a.alive) < 2 * count)
    links = [
        Link(
            topology.name(NodeId(int(a.tail[arc]))),
            topology.name(NodeId(int(a.tip[arc]))),
            float(a.latency_ms[arc]),
            float(a.bandwidth_mbps[arc]),
        )
        for arc in arcs
    ]
    took = np.empty(2 * count)
    for i, link in enumerate(links):
        start = time.perf_counter()
        topology.remove_link(link.source, link.target)
        between = time.perf_counter()
        topology.add_link(link)
        took[i], took[count + i] = between - start, time.perf_counter() - between
    return took * 1e6


def _paths(labs: dict[int, Topology], repeats: int, count: int, progress: Progress) -> list[Figure]:
    rng = np.random.default_rng(SEED)
    figures = []
    for nodes, lab in labs.items():
        progress(f"finding paths among {nodes:,} nodes")
        find_paths(lab, 2, rng)
        outcomes = [find_paths(lab, count, rng) for _ in range(repeats)]
        across = [find_across(lab) for _ in range(repeats)]
        figures += [
            Figure.of(f"new path nearby, {nodes:,} nodes", "us", [new for new, _ in outcomes]),
            Figure.of(f"known path, {nodes:,} nodes", "us", [known for _, known in outcomes]),
            Figure.of(f"new path across all {nodes:,} nodes", "ms", across),
        ]
    return figures


def find_paths(topology: Topology, count: int, rng: np.random.Generator) -> tuple[float, float]:
    """Microseconds per path from a random sensor to a cloud of one of its edges: computed, and asked for again."""
    sensors = np.flatnonzero(topology.nodes.kind[: topology.nodes.count] == NodeKind.SENSOR)
    pairs = []
    for sensor in rng.choice(sensors, count):
        edge = topology.neighbours(NodeId(int(sensor)))[0]
        clouds = [n for n in topology.neighbours(edge) if topology.nodes.kind[n] == NodeKind.CLOUD]
        pairs.append((NodeId(int(sensor)), clouds[int(rng.integers(len(clouds)))]))
    start = time.perf_counter()
    for pair in pairs:
        topology.adjacency.search(*pair)
    new = time.perf_counter() - start
    for pair in pairs:
        topology.path(*pair)
    start = time.perf_counter()
    for pair in pairs:
        topology.path(*pair)
    return new / count * 1e6, (time.perf_counter() - start) / count * 1e6


def find_across(topology: Topology) -> float:
    """Milliseconds for a path between sensors on opposite sides: nearly the whole graph lies between them."""
    first = int(np.flatnonzero(topology.nodes.kind[: topology.nodes.count] == NodeKind.SENSOR)[0])
    start = time.perf_counter()
    found = topology.adjacency.search(NodeId(first), NodeId((first + topology.nodes.count) // 2))
    assert found is not None
    return (time.perf_counter() - start) * 1e3
