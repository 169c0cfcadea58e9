"""Nearest nodes while nodes move, scaling of small matrices, the error report, and spaces of topologies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.costspace import mds
from meander.place.costspace.build import build, linked_nodes, pick_landmarks, place_node
from meander.place.costspace.space import CostSpace
from tests.place.costspace.error import check, report
from tests.place.costspace.test_vivaldi import plane


def random_space(count: int, seed: int) -> CostSpace:
    rng = np.random.default_rng(seed)
    return CostSpace(rng.uniform(0, 100, (count, 2)), rng.exponential(10, count), np.ones(count))


@given(st.integers(1, 900), st.integers(0, 99), st.lists(st.integers(0, 1100), max_size=80))
def test_nodes_come_nearest_first_whatever_moved(count: int, seed: int, moves: list[int]) -> None:
    space = random_space(count, seed)
    rng = np.random.default_rng(seed)
    list(space.near(np.zeros(2)))
    for i, node in enumerate(moves):
        if i % 5 == 4:
            space.forget(NodeId(node))
        else:
            space.put(NodeId(node), rng.uniform(0, 100, 2), float(rng.exponential(10)), 1.0)
    point = rng.uniform(0, 100, 2)
    found = np.concatenate(list(space.near(point)))
    known = np.flatnonzero(~np.isnan(space.coordinates[:, 0]))
    assert sorted(found.tolist()) == known.tolist()
    away = np.linalg.norm(space.coordinates - point, axis=1) + space.heights
    np.testing.assert_array_equal(away[found], np.sort(away[known]))


def test_the_first_chunk_does_not_look_at_all_nodes() -> None:
    space = random_space(10_000, 0)
    assert len(next(space.near(np.array([50.0, 50.0])))) < 200


def test_a_node_is_no_distance_from_itself() -> None:
    space = random_space(3, 0)
    assert space.latency_ms(NodeId(1), NodeId(1)) == 0
    assert space.latency_ms(NodeId(0), NodeId(1)) > space.heights[0] + space.heights[1]


def test_scaling_finds_a_plane_exactly() -> None:
    matrix = plane(80)
    found = report(mds.embed(matrix), matrix)
    assert found.p90_relative < 1e-3


def test_scaling_fills_in_what_was_not_measured() -> None:
    matrix = plane(60)
    rng = np.random.default_rng(0)
    holes = np.where(rng.random(matrix.shape) < 0.3, np.nan, matrix)
    assert report(mds.embed(holes), matrix).median_relative < 0.03


def test_scaling_lowers_relative_error_below_the_classical_start() -> None:
    rng = np.random.default_rng(0)
    matrix = mds.symmetric(plane(60) * rng.uniform(0.7, 1.3, (60, 60)))
    start = CostSpace(mds.classical(matrix, 2), np.zeros(60), np.ones(60))
    assert report(mds.embed(matrix), matrix).median_relative < report(start, matrix).median_relative


def test_scaling_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="square matrix"):
        mds.embed(np.zeros((3, 2)))
    with pytest.raises(InputError, match="at most 2,000 nodes, not 2,001; use Vivaldi"):
        mds.embed(np.zeros((2001, 2001)))


def test_two_nodes_are_as_far_apart_as_measured() -> None:
    space = mds.embed(np.array([[0.0, 8.0], [8.0, 0.0]]))
    assert space.latency_ms(NodeId(0), NodeId(1)) == pytest.approx(8.0)


def test_violated_triangles_are_reported() -> None:
    matrix = np.array([[0, 1, 10], [1, 0, 1], [10, 1, 0]], dtype=float)
    found = report(mds.embed(matrix), matrix)
    assert found.violations == pytest.approx(1 / 3, abs=0.02)
    assert found.violation_ms == 8
    assert "triangle inequality violated by 3" in str(found)


def test_an_error_report_counts_what_was_measured() -> None:
    space = CostSpace(np.array([[0.0], [10.0], [20.0]]), np.zeros(3), np.ones(3))
    matrix = np.array([[0, 10, 25], [10, 0, np.nan], [25, np.nan, 0]])
    found = report(space, matrix)
    assert found.pairs == 4
    assert found.median_relative == pytest.approx(0.1)
    with pytest.raises(InputError, match="does not fit"):
        report(space, np.zeros((4, 4)))


def grid(side: int) -> Topology:
    """A mesh of nodes, each linked to the next in both directions, and a sensor hanging on each."""
    name = [f"n{x}-{y}" for x in range(side) for y in range(side)]
    links = [Link(f"n{x}-{y}", f"n{x + 1}-{y}", 10) for x in range(side - 1) for y in range(side)]
    links += [Link(f"n{x}-{y}", f"n{x}-{y + 1}", 10) for x in range(side) for y in range(side - 1)]
    nodes = [Node(n, NodeKind.EDGE, 4) for n in name] + [Node(f"s{n}", NodeKind.SENSOR, 1) for n in name]
    return Topology.of(nodes, [*links, *(Link(n, f"s{n}", 20) for n in name)])


def test_the_space_of_a_topology_estimates_its_paths() -> None:
    topology = grid(8)
    space = build(topology)
    found = check(space, topology)
    assert found.median_relative < 0.15
    sensors = topology.nodes.kind[: topology.nodes.count] == NodeKind.SENSOR
    assert np.median(space.heights[: len(sensors)][sensors]) > 10


def test_a_node_that_joins_a_topology_is_placed_near_its_link() -> None:
    topology = grid(6)
    space = build(topology)
    before = space.coordinates.copy()
    new = topology.add_node(Node("new", NodeKind.EDGE, 1))
    topology.add_link(Link("new", "n5-5", 1))
    landmarks, _ = pick_landmarks(topology, 12, 0)
    place_node(space, topology, new, landmarks)
    np.testing.assert_array_equal(space.coordinates[: len(before)], before)
    error = [abs(space.latency_ms(new, n) - topology.latency_ms(new, n)) for n in topology.ids() if n != new]
    assert np.median(error) < 15


def test_dead_nodes_and_separate_parts_do_not_spoil_the_space() -> None:
    topology = grid(4)
    for i in range(3):
        topology.add_node(Node(f"far{i}", NodeKind.EDGE, 1))
    topology.add_link(Link("far0", "far1", 7))
    topology.remove_node(topology.id("n3-3"))
    space = build(topology, landmarks=8)
    assert space.knows(NodeId(0))
    assert not space.knows(NodeId(15))
    assert not space.knows(topology.id("far2"))
    assert space.latency_ms(topology.id("far0"), topology.id("far1")) == pytest.approx(7, rel=0.3)


def test_linked_nodes_are_the_first_few_arcs() -> None:
    topology = grid(3)
    near, latency = linked_nodes(topology, 3)
    middle = topology.id("n1-1")
    assert {topology.name(NodeId(int(n))) for n in near[middle]} <= {"n0-1", "n2-1", "n1-0", "n1-2", "sn1-1"}
    assert np.isnan(latency[topology.id("sn0-0")]).tolist() == [False, True, True]


def test_an_empty_topology_has_an_empty_space() -> None:
    assert build(Topology()).coordinates.shape == (0, 2)
