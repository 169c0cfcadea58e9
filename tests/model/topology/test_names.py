"""Names computed from indexes behave like a list of strings, and a topology built on them can still grow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError, unknown
from meander.model.ids import NodeId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import topology_of_columns
from meander.model.topology.names import NodeNames, NumberedNames

GROUPS = st.dictionaries(st.sampled_from(["cloud", "edge", "sensor", "edge-node"]), st.integers(0, 12), max_size=4)


@given(groups=GROUPS)
def test_numbered_names_are_a_sequence_with_an_inverse(groups: dict[str, int]) -> None:
    names = NumberedNames(*groups.items())
    expected = [f"{prefix}-{i + 1}" for prefix, count in groups.items() for i in range(count)]
    assert list(names) == expected
    assert [names.find(name) for name in expected] == list(range(len(expected)))
    assert names[1:4] == expected[1:4]


@pytest.mark.parametrize("name", ["edge", "edge-", "edge-0", "edge-01", "edge-3", "node-1", "edge-x", "edge-²", ""])
def test_names_outside_the_groups_are_not_found(name: str) -> None:
    assert NumberedNames(("edge", 2)).find(name) is None


def test_a_topology_with_computed_names_can_grow() -> None:
    topology = topology_of_columns(
        NumberedNames(("cloud", 1), ("edge", 2)),
        np.array([2, 1, 1], dtype=np.uint8),
        np.array([9, 4, 4], dtype=np.int32),
        np.array([1, 2], dtype=np.int32),
        np.array([0, 0], dtype=np.int32),
        np.array([1, 2], dtype=np.float32),
    )
    added = topology.add_node(Node("edge-3", NodeKind.EDGE, 4))
    topology.add_link(Link("edge-3", "cloud-1", 5.0))
    assert topology.name(added) == "edge-3"
    assert topology.id("edge-3") == added == 3
    assert topology.latency_ms(topology.id("edge-1"), added) == 6.0
    with pytest.raises(InputError, match="'edge-2' exists already"):
        topology.add_node(Node("edge-2", NodeKind.EDGE, 4))


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="node 'a' appears twice"):
        NodeNames(["a", "b", "a"]).find("b")
    with pytest.raises(InputError, match="distinct prefixes"):
        NumberedNames(("a", 1), ("a", 2))


def test_an_unknown_name_among_very_many_is_answered_with_those_that_begin_alike() -> None:
    names = NumberedNames(("edge", 10), ("sensor", 100_000))
    error = unknown("node", "sensor-99999x", names)
    assert "known nodes: sensor-99999," in error.message
    assert "and 100002 more" in error.message
    assert NodeNames(names)[NodeId(9)] == "edge-10"
