"""Generated topologies have the shape they promise, and the same seed gives the same one."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.lang.topology.reader import TopologyFile, read
from meander.local.topologies import TopologyShape, clusters, full, iot_lab, ring, star, tree
from meander.local.topology_summary import summarise
from meander.model.errors import InputError
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from tests.lang.topology.dumped import dump


def neighbours(topology: Topology, name: str) -> list[str]:
    return sorted(topology.name(n) for n in topology.neighbours(topology.id(name)))


@given(clouds=st.integers(1, 6), edges=st.integers(1, 6), sensors=st.integers(1, 30), data=st.data())
def test_an_iot_lab_has_three_layers(clouds: int, edges: int, sensors: int, data: st.DataObject) -> None:
    per_sensor, per_edge = data.draw(st.integers(1, edges)), data.draw(st.integers(1, clouds))
    lab = iot_lab(clouds, edges, sensors, edges_per_sensor=per_sensor, clouds_per_edge=per_edge)
    summary = summarise(lab)
    assert summary.kinds == {"cloud": clouds, "edge": edges, "sensor": sensors}
    assert summary.links == sensors * per_sensor + edges * per_edge
    assert len(lab.adjacency) == 2 * summary.links
    for sensor in range(1, sensors + 1):
        assert len(neighbours(lab, f"sensor-{sensor}")) == per_sensor
    groups = np.bincount([int(neighbours(lab, f"sensor-{s}")[0].split("-")[1]) for s in range(1, sensors + 1)])
    if per_sensor == 1 and sensors % edges == 0:
        assert set(groups[1:]) == {sensors // edges}


def test_the_lab_of_the_placement_experiments() -> None:
    lab = iot_lab(64, 64, 640)
    assert len(lab) == 768
    assert neighbours(lab, "sensor-1") == neighbours(lab, "sensor-10") == ["edge-1"]
    assert neighbours(lab, "sensor-11") == ["edge-2"]
    assert neighbours(lab, "sensor-640") == ["edge-64"]
    assert sum(name.startswith("cloud") for name in neighbours(lab, "edge-7")) == 64


def test_a_tree_has_its_leaves_at_the_bottom() -> None:
    topology = tree(8, 3)
    assert neighbours(topology, "cloud-1") == ["edge-1", "edge-2", "sensor-1"]
    assert neighbours(topology, "edge-1") == ["cloud-1", "sensor-2", "sensor-3", "sensor-4"]
    assert summarise(topology).kinds == {"cloud": 1, "edge": 2, "sensor": 5}


def test_star_ring_and_full_mesh() -> None:
    assert summarise(star(9)).degree == (1, 16 / 9, 8)
    assert summarise(ring(9)).degree == (2, 2.0, 2)
    assert summarise(full(9)).degree == (8, 8.0, 8)


@given(nodes=st.integers(4, 120), groups=st.integers(1, 2), neighbours=st.integers(1, 4), seed=st.integers(0, 99))
def test_clusters_are_connected_and_near_is_fast(nodes: int, groups: int, neighbours: int, seed: int) -> None:
    topology = clusters(nodes, groups, neighbours, TopologyShape(seed=seed))
    summary = summarise(topology)
    assert summary.nodes == nodes
    assert summary.components == 1
    for link in topology.links():
        a, b = topology.id(link.source), topology.id(link.target)
        lon, lat = topology.nodes.lon, topology.nodes.lat
        km = 111.32 * np.hypot((lon[a] - lon[b]) * np.cos(np.radians(49)), lat[a] - lat[b])
        assert link.latency_ms == pytest.approx(1.0 + 0.01 * km, abs=0.002)


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: tree(50, 3, shape),
        lambda shape: full(12, shape),
        lambda shape: iot_lab(2, 3, 20, shape=shape),
        lambda shape: clusters(60, 3, 2, shape),
    ],
)
def test_the_seed_decides(make: Callable[[TopologyShape], Topology]) -> None:
    def text(seed: int) -> str:
        return dump(TopologyFile(make(TopologyShape(seed=seed)), {}, {}))

    assert text(1) == text(1)
    assert text(1) != text(2)
    assert dump(read(text(1))) == text(1)


def test_slots_latency_and_bandwidth_are_as_asked() -> None:
    slots = {NodeKind.SENSOR: 1, NodeKind.EDGE: 2, NodeKind.CLOUD: 3}
    lab = iot_lab(1, 2, 4, shape=TopologyShape(slots, (5.0, 6.0), 100.0))
    assert [lab.node(n).slots for n in lab.ids()] == [3, 2, 2, 1, 1, 1, 1]
    assert all(5.0 <= link.latency_ms <= 6.0 and link.bandwidth_mbps == 100.0 for link in lab.links())


def test_a_generated_topology_can_grow_and_shrink() -> None:
    lab = iot_lab(1, 2, 4)
    lab.add_node(Node("sensor-5", NodeKind.SENSOR, 1))
    lab.add_link(Link("sensor-5", "edge-1"))
    lab.remove_node(lab.id("edge-2"))
    assert neighbours(lab, "edge-1") == ["cloud-1", "sensor-1", "sensor-2", "sensor-5"]
    assert summarise(lab).isolated == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tree(1), "nodes must be at least 2, but is 1"),
        (lambda: tree(5, 0), "fanout must be at least 1, but is 0"),
        (lambda: iot_lab(0, 1, 1), "clouds must be at least 1, but is 0"),
        (lambda: iot_lab(1, 2, 3, edges_per_sensor=3), "edges per sensor must be between 1 and 2, but is 3"),
        (lambda: clusters(5, 9), "nodes must be at least 11, but is 5"),
        (lambda: full(100_000), "more than 20,000,000; take fewer nodes"),
        (lambda: ring(9, TopologyShape(latency_ms=(3, 2))), "latencies must rise"),
        (lambda: ring(9, TopologyShape(bandwidth_mbps=-1)), "bandwidth must not be negative"),
        (lambda: ring(9, TopologyShape(slots={NodeKind.EDGE: -1})), "slots of kind edge must not be negative"),
    ],
)
def test_impossible_shapes_are_refused(make: Callable[[], Topology], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make()
