"""The summary of a topology counts what is there."""

from meander.local.topology_summary import summarise
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology


def test_a_summary_of_two_parts_and_a_lonely_node() -> None:
    nodes = [Node(name, NodeKind.EDGE, 2, mobile=name == "a") for name in "abcdef"]
    links = [Link("a", "b", 2.0), Link("b", "c", 4.0), Link("d", "e", 9.0, directed=True)]
    summary = summarise(Topology.of(nodes, links))
    assert summary.as_json() == {
        "nodes": 6,
        "kinds": {"cloud": 0, "edge": 6, "sensor": 0},
        "mobile": 1,
        "slots": 12,
        "links": 3,
        "one_way_links": 1,
        "components": 3,
        "largest_component": 3,
        "isolated_nodes": 1,
        "degree": {"lowest": 0, "mean": 1.0, "highest": 2},
        "latency_ms": {"lowest": 2.0, "mean": 5.0, "highest": 9.0},
        "diameter_ms_at_least": 6.0,
    }
    assert ("components", "3, the largest with 3 nodes; 1 node alone") in summary.rows()


def test_two_opposite_one_way_links_that_differ_count_as_two() -> None:
    nodes = [Node(name, NodeKind.EDGE, 2) for name in "ab"]
    summary = summarise(Topology.of(nodes, [Link("a", "b", 1.0, directed=True), Link("b", "a", 2.0, directed=True)]))
    assert (summary.links, summary.one_way) == (2, 2)


def test_an_empty_topology_has_a_summary() -> None:
    assert summarise(Topology()).as_json()["nodes"] == 0
