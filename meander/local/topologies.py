"""Generated topologies: tree, star, ring, full mesh, three-layer IoT lab, geometric clusters.

Everything is built as columns and names are computed from indexes, so a million nodes take seconds and no Python object
each. The same parameters and seed give the same topology. Names are `cloud-1`, `edge-1`, `sensor-1` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meander.lang.topology.reader import DEFAULT_SLOTS
from meander.model.errors import InputError
from meander.model.topology.elements import UNLIMITED, NodeKind
from meander.model.topology.graph import Topology, topology_of_columns
from meander.model.topology.names import NumberedNames

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

MOST_LINKS = 20_000_000
KM_PER_DEGREE = 111.32
MS_PER_KM = 0.01


@dataclass(frozen=True, slots=True)
class TopologyShape:
    """The common shape of all generators: slots by kind, the range latencies are drawn from, bandwidth and the seed."""

    slots: Mapping[NodeKind, int] = field(default_factory=lambda: dict(DEFAULT_SLOTS))
    latency_ms: tuple[float, float] = (1.0, 10.0)
    bandwidth_mbps: float = UNLIMITED
    seed: int = 0

    def __post_init__(self) -> None:
        low, high = self.latency_ms
        if not 0 <= low <= high < UNLIMITED:
            raise InputError(f"latencies must rise from a smaller to a larger number, not from {low} to {high} ms")
        if not self.bandwidth_mbps >= 0:
            raise InputError(f"bandwidth must not be negative, but is {self.bandwidth_mbps}")
        for kind, slots in self.slots.items():
            if slots < 0:
                raise InputError(f"slots of kind {kind.name.lower()} must not be negative, but are {slots}")


def tree(nodes: int, fanout: int = 2, shape: TopologyShape | None = None) -> Topology:
    """A complete tree: a cloud at the root, sensors as leaves, edges in between."""
    at_least("nodes", nodes, 2)
    at_least("fanout", fanout, 1)
    inner = (nodes - 2) // fanout + 1
    children = np.arange(1, nodes, dtype=np.int32)
    return build(1, inner - 1, nodes - inner, children, (children - 1) // np.int32(fanout), shape or TopologyShape())


def star(nodes: int, shape: TopologyShape | None = None) -> Topology:
    """A cloud in the middle, sensors around it."""
    at_least("nodes", nodes, 2)
    points = np.arange(1, nodes, dtype=np.int32)
    return build(1, 0, nodes - 1, points, np.zeros_like(points), shape or TopologyShape())


def ring(nodes: int, shape: TopologyShape | None = None) -> Topology:
    """A cloud and edges in a ring."""
    at_least("nodes", nodes, 3)
    all_ = np.arange(nodes, dtype=np.int32)
    return build(1, nodes - 1, 0, all_, np.roll(all_, -1), shape or TopologyShape())


def full(nodes: int, shape: TopologyShape | None = None) -> Topology:
    """A cloud and edges, every pair linked."""
    at_least("nodes", nodes, 2)
    few_links(nodes * (nodes - 1) // 2)
    tails, tips = np.triu_indices(nodes, 1)
    return build(1, nodes - 1, 0, tails.astype(np.int32), tips.astype(np.int32), shape or TopologyShape())


def iot_lab(
    clouds: int,
    edges: int,
    sensors: int,
    *,
    edges_per_sensor: int = 1,
    clouds_per_edge: int | None = None,
    shape: TopologyShape | None = None,
) -> Topology:
    """Three layers. Sensors form equal groups, one per edge; each edge is linked to all clouds.

    With several edges per sensor, it is also linked to the edges that follow its own, as overlapping radio cells
    would have it; with `clouds_per_edge`, an edge is linked to that many clouds that follow each other.
    """
    for what, value in (("clouds", clouds), ("edges", edges), ("sensors", sensors)):
        at_least(what, value, 1)
    between("edges per sensor", edges_per_sensor, 1, edges)
    per_edge = clouds if clouds_per_edge is None else clouds_per_edge
    between("clouds per edge", per_edge, 1, clouds)
    few_links(edges * per_edge + sensors * edges_per_sensor)
    edge_tails, edge_tips = layer(edges, clouds, per_edge)
    sensor_tails, sensor_tips = layer(sensors, edges, edges_per_sensor)
    tails = np.concatenate((edge_tails + np.int32(clouds), sensor_tails + np.int32(clouds + edges)))
    tips = np.concatenate((edge_tips, sensor_tips + np.int32(clouds)))
    return build(clouds, edges, sensors, tails, tips, shape or TopologyShape())


def clusters(nodes: int, groups: int = 10, neighbours: int = 3, shape: TopologyShape | None = None) -> Topology:
    """Sensors scattered around edges, which stand in the middle of their cluster; one cloud linked to all edges.

    A sensor is linked to its nearest neighbours in the plane; parts that are still separate are joined to the nearest
    edge. Latency is the smallest of the shape's range plus 0.01 ms per km.
    """
    at_least("clusters", groups, 1)
    at_least("nodes", nodes, groups + 2)
    at_least("neighbours", neighbours, 1)
    few_links(nodes * neighbours)
    shape = shape or TopologyShape()
    rng = np.random.default_rng(shape.seed)
    centre = np.column_stack((rng.uniform(-5, 25, groups), rng.uniform(40, 58, groups)))
    sensors = nodes - groups - 1
    scattered = centre[rng.integers(groups, size=sensors)] + rng.normal(0, 0.3, (sensors, 2))
    lonlat = np.concatenate((centre.mean(axis=0, keepdims=True), centre, scattered))
    plane = lonlat * KM_PER_DEGREE * [np.cos(np.radians(49)), 1]
    tails, tips = nearest(plane, groups + 1, neighbours)
    tails, tips = joined(plane, groups, tails, tips)
    km = np.linalg.norm(plane[tails] - plane[tips], axis=1)
    latency_ms = np.round(shape.latency_ms[0] + MS_PER_KM * km, 3).astype(np.float32)
    place = np.round(lonlat, 5).astype(np.float32)
    return build(1, groups, sensors, tails, tips, shape, latency_ms, place[:, 0], place[:, 1])


def nearest(plane: NDArray[np.float64], first_sensor: int, neighbours: int) -> tuple[Ints, Ints]:
    """The links of each sensor to its nearest nodes, each pair once; the cloud has no place in the plane."""
    from scipy.spatial import cKDTree

    near = cKDTree(plane[1:]).query(plane[first_sensor:], k=min(neighbours + 1, len(plane) - 1))[1]
    found = np.asarray(near)[:, 1:] + 1
    own = np.repeat(np.arange(first_sensor, len(plane)), found.shape[1])
    other = found.ravel()
    different = own != other
    low, high = np.minimum(own, other)[different], np.maximum(own, other)[different]
    pairs = np.unique(low.astype(np.int64) * len(plane) + high)
    return (pairs // len(plane)).astype(np.int32), (pairs % len(plane)).astype(np.int32)


def joined(plane: NDArray[np.float64], groups: int, tails: Ints, tips: Ints) -> tuple[Ints, Ints]:
    """Adds a link from every edge to the cloud, and one from each group of sensors that no edge reaches."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    edges = np.arange(1, groups + 1, dtype=np.int32)
    tails, tips = np.concatenate((edges, tails)), np.concatenate((np.zeros_like(edges), tips))
    count = len(plane)
    links = coo_array((np.ones(len(tails), dtype=np.int8), (tails, tips)), shape=(count, count))
    label = connected_components(links, directed=False)[1]
    apart = np.flatnonzero(label != label[0])
    distance, edge = map(np.asarray, cKDTree(plane[edges]).query(plane[apart]))
    order = np.lexsort((distance, label[apart]))
    first = np.unique(label[apart][order], return_index=True)[1]
    chosen = order[first]
    return (
        np.concatenate((tails, apart[chosen].astype(np.int32))),
        np.concatenate((tips, edges[edge[chosen]])),
    )


def layer(lower: int, upper: int, each: int) -> tuple[Ints, Ints]:
    """Links every lower node to `each` upper ones: the one of its group and those that follow."""
    own = np.arange(lower, dtype=np.int64)
    first = own * upper // lower
    tips = (first[:, None] + np.arange(each)) % upper
    return np.repeat(own, each).astype(np.int32), tips.ravel().astype(np.int32)


def build(
    clouds: int,
    edges: int,
    sensors: int,
    tails: Ints,
    tips: Ints,
    shape: TopologyShape,
    latency_ms: Floats | None = None,
    lon: Floats | float = float("nan"),
    lat: Floats | float = float("nan"),
) -> Topology:
    """The topology of three layers in this order; latencies are drawn unless given."""
    groups = ((NodeKind.CLOUD, clouds), (NodeKind.EDGE, edges), (NodeKind.SENSOR, sensors))
    counts = [count for _, count in groups]
    if latency_ms is None:
        low, high = np.float32(shape.latency_ms[0]), np.float32(shape.latency_ms[1])
        drawn = np.random.default_rng(shape.seed).random(len(tails), dtype=np.float32)
        latency_ms = np.round(low + drawn * (high - low), 2)
    return topology_of_columns(
        NumberedNames(*((kind.name.lower(), count) for kind, count in groups)),
        np.repeat(np.array([kind for kind, _ in groups], dtype=np.uint8), counts),
        np.repeat(np.array([shape.slots[kind] for kind, _ in groups], dtype=np.int32), counts),
        tails,
        tips,
        latency_ms,
        bandwidth_mbps=shape.bandwidth_mbps,
        lon=lon,
        lat=lat,
    )


def at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"{what} must be at least {least}, but is {value}")


def between(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"{what} must be between {least} and {most}, but is {value}")


def few_links(links: int) -> None:
    if links > MOST_LINKS:
        raise InputError(f"this would be {links:,} links, more than {MOST_LINKS:,}; take fewer nodes or links per node")
