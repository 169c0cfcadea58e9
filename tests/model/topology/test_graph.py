"""Random changes to a topology, checked against a plain dictionary of arcs and scipy's Dijkstra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from meander.model.errors import InputError
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology, topology_of_columns

NAMES = [f"n{i}" for i in range(8)]


class ChangingTopology(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topology = Topology()
        self.alive: set[str] = set()
        self.arcs: dict[tuple[str, str], float] = {}

    @rule(name=st.sampled_from(NAMES))
    def add_node(self, name: str) -> None:
        if name in self.alive:
            with pytest.raises(InputError, match="exists already"):
                self.topology.add_node(Node(name, NodeKind.EDGE, 4))
        else:
            self.topology.add_node(Node(name, NodeKind.EDGE, 4))
            self.alive.add(name)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.alive)))
        neighbours = self.topology.remove_node(self.topology.id(name))
        expected = {a if b == name else b for a, b in self.arcs if name in (a, b)}
        assert {self.topology.name(n) for n in neighbours} == expected
        self.alive.discard(name)
        self.arcs = {pair: w for pair, w in self.arcs.items() if name not in pair}

    @precondition(lambda self: len(self.alive) > 1)
    @rule(data=st.data(), latency=st.integers(0, 9), directed=st.booleans())
    def add_link(self, data: st.DataObject, latency: int, directed: bool) -> None:
        a, b = data.draw(st.lists(st.sampled_from(sorted(self.alive)), min_size=2, max_size=2, unique=True))
        pairs = [(a, b)] if directed else [(a, b), (b, a)]
        link = Link(a, b, latency_ms=latency, directed=directed)
        if any(pair in self.arcs for pair in pairs):
            with pytest.raises(InputError, match="exists already"):
                self.topology.add_link(link)
        else:
            self.topology.add_link(link)
            self.arcs.update(dict.fromkeys(pairs, float(latency)))

    @precondition(lambda self: self.arcs)
    @rule(data=st.data(), directed=st.booleans())
    def remove_link(self, data: st.DataObject, directed: bool) -> None:
        a, b = data.draw(st.sampled_from(sorted(self.arcs)))
        self.topology.remove_link(a, b, directed=directed)
        self.arcs.pop((a, b))
        if not directed:
            self.arcs.pop((b, a), None)

    @invariant()
    def arcs_are_the_same(self) -> None:
        topology = self.topology
        found = {(topology.name(n), topology.name(m)) for n in topology.ids() for m in topology.neighbours(n)}
        assert found == set(self.arcs)
        assert len(topology.adjacency) == len(self.arcs)
        assert {topology.name(n) for n in topology.ids()} == self.alive

    @invariant()
    def every_path_is_cheapest(self) -> None:
        """Asking for all pairs after every change also fills the cache that the next change must keep right."""
        names = sorted(self.alive)
        index = {name: i for i, name in enumerate(names)}
        if not names:
            return
        rows = [index[a] for a, _ in self.arcs]
        columns = [index[b] for _, b in self.arcs]
        # scipy reads an explicit zero as no edge, so weights are shifted off zero by less than they differ.
        weights = [w + 1e-4 for w in self.arcs.values()]
        matrix = csr_matrix((weights, (rows, columns)), shape=(len(names), len(names)))
        expected = np.asarray(dijkstra(matrix))
        topology = self.topology
        for a in names:
            row = topology.adjacency.latencies_from(topology.id(a))
            for b in names:
                path = topology.path(topology.id(a), topology.id(b))
                best = expected[index[a], index[b]]
                assert (path is None) == np.isinf(best)
                assert topology.reachable(topology.id(a), topology.id(b)) == (path is not None)
                if path is None:
                    assert np.isinf(row[topology.id(b)])
                    continue
                assert abs(path.latency_ms - best) < 0.01
                assert abs(row[topology.id(b)] - best) < 0.01
                hops = list(zip(path.nodes, path.nodes[1:], strict=False))
                assert abs(sum(self.arcs[topology.name(x), topology.name(y)] for x, y in hops) - path.latency_ms) < 0.01
                assert (path.nodes[0], path.nodes[-1]) == (topology.id(a), topology.id(b))


TestChangingTopology = ChangingTopology.TestCase
TestChangingTopology.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(st.integers(1, 30), st.integers(0, 80), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_columns_and_descriptions_build_the_same_topology(nodes: int, links: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = sorted({tuple(sorted(p)) for p in rng.integers(0, nodes, (links, 2)).tolist() if p[0] != p[1]})
    tails = np.array([a for a, _ in pairs], dtype=np.int32)
    tips = np.array([b for _, b in pairs], dtype=np.int32)
    latency = rng.integers(1, 50, len(pairs)).astype(np.float32)
    names = [f"n{i}" for i in range(nodes)]
    kinds = rng.integers(0, 3, nodes).astype(np.uint8)
    bulk = topology_of_columns(names, kinds, np.full(nodes, 3, np.int32), tails, tips, latency)
    single = Topology.of(
        (Node(n, NodeKind(int(k)), 3) for n, k in zip(names, kinds, strict=True)),
        (Link(names[a], names[b], float(w)) for (a, b), w in zip(pairs, latency, strict=True)),
    )
    assert list(bulk.links()) == list(single.links()) or set(bulk.links()) == set(single.links())
    assert [bulk.node(n) for n in bulk.ids()] == [single.node(n) for n in single.ids()]
    for node in bulk.ids():
        assert sorted(bulk.neighbours(node)) == sorted(single.neighbours(node))
        np.testing.assert_allclose(bulk.adjacency.latencies_from(node), single.adjacency.latencies_from(node))


def test_a_search_with_a_bandwidth_need_avoids_full_links() -> None:
    topology = Topology.of(
        [Node(n, NodeKind.EDGE, 1) for n in "abc"],
        [Link("a", "c", 1.0, 10), Link("a", "b", 5.0, 100), Link("b", "c", 5.0, 100)],
    )
    a, b, c = (topology.id(n) for n in "abc")
    used = np.zeros(len(topology.arcs.alive))
    used[topology.adjacency.between(a, c)] = 1.0
    near, around, none = (topology.adjacency.search(a, c, need, used) for need in (9.0, 9.5, 101.0))
    assert near is not None
    assert near.nodes == (a, c)
    assert around is not None
    assert around.nodes == (a, b, c)
    assert none is None
    given_back = topology.adjacency.search(a, c, 9.5, used, {topology.adjacency.between(a, c) or 0: -1.0})
    assert given_back is not None
    assert given_back.nodes == (a, c)


def test_unknown_names_list_the_alternatives() -> None:
    topology = Topology.of([Node("train-1", NodeKind.SENSOR, 1), Node("cloud", NodeKind.CLOUD, 1)], [])
    with pytest.raises(InputError, match=r"no node 'trian-1'; known nodes: train-1, cloud"):
        topology.id("trian-1")
    with pytest.raises(InputError, match=r"no link 'train-1' to 'cloud'; 'train-1' is linked to: nothing"):
        topology.remove_link("train-1", "cloud")
