"""Follow or detour: however often a device moves, its data never travels much longer than it would have to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.lang.sql.script import sql
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Source
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import mechanism
from tests.place.test_engine import check_conserved, check_kept_latencies, check_plan, faults

SCHEMA = Schema.of(ts="timestamp", id="bigint", speed="double")
TEXTS = (
    "SELECT * FROM cars WHERE speed < 1 INTO out",
    "SELECT id, speed * 2 AS v FROM cars WHERE speed < 2 INTO out",
    "SELECT id, count(*) AS n FROM cars WHERE speed < 1 GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO near",
    "SELECT a.id FROM cars a JOIN fixed b ON a.id = b.id WINDOW TUMBLING(1 s) INTO out",
)
CHAINS = TEXTS[:3]
ON_PATHS = pytest.mark.parametrize("name", ["top_down", "ilp", "global_optimal"])
"""Mechanisms that place a chain on the cheapest path; joins and shared operators may lie off it from the start."""


class Fog:
    """A car that is linked with one of many fog nodes, which are linked with each other and with a hub.

    car - f0 -- f1 -- f2 -- ... -- f0      (links of `side_ms`)
           \\     |     /
             hub - cloud
    """

    def __init__(self, name: str, count: int, seed: int, detour: float = 1.5, slots: int = 20) -> None:
        rng = np.random.default_rng(seed)
        fogs = [f"f{i}" for i in range(count)]
        nodes = [Node("car", NodeKind.SENSOR, 0, mobile=True), *(Node(f, NodeKind.EDGE, slots) for f in fogs)]
        nodes += [Node("hub", NodeKind.EDGE, 1), Node("cloud", NodeKind.CLOUD, 100)]
        links = [Link(fogs[i], fogs[(i + 1) % count], float(rng.integers(1, 5))) for i in range(count)]
        links += [Link(f, "hub", float(rng.integers(2, 12))) for f in fogs]
        links += [Link("hub", "cloud", float(rng.integers(1, 20))), Link("car", "f0", 1, directed=True)]
        streams = {
            "cars": Stream("cars", SCHEMA, "ts", ("car",), rate_tps=100),
            "fixed": Stream("fixed", SCHEMA, "ts", ("f1",), rate_tps=10),
        }
        sinks = {"out": SinkTarget("out", "cloud"), "near": SinkTarget("near", "hub")}
        self.catalog = Catalog(Topology.of(nodes, links), streams, sinks)
        self.engine = Engine(self.catalog, mechanism(name), detour=detour)
        self.at = 0

    def run(self, *events: ChangeEvent) -> BatchReport:
        report = self.engine.run(events)
        assert faults(self.catalog) == []
        check_conserved(self.catalog)
        check_plan(self.catalog)
        check_kept_latencies(self.engine)
        return report

    def add(self, text: str, name: str) -> BatchReport:
        (found,) = sql(text, self.catalog.streams, self.catalog.sinks, name).queries
        return self.run(QueryAdded(0, found))

    def move(self, to: int, ms: float = 1.0) -> list[ChangeEvent]:
        """The car only sends, so that nobody else's data goes through it."""
        cut = LinkRemoved(0, "car", f"f{self.at}", directed=True)
        self.at = to
        return [cut, LinkAdded(0, Link("car", f"f{to}", ms, directed=True))]

    def routes(self) -> dict[tuple[str, str], tuple[float, float]]:
        """By source and sink: how long data is on its route, and the cheapest path between the two."""
        plan, topology = self.catalog.plan, self.catalog.topology
        placed, routes = self.catalog.placement.nodes, self.catalog.placement.routes
        found: dict[tuple[str, str], tuple[float, float]] = {}
        for operator, record in plan.operators.items():
            if not isinstance(record.spec, Source):
                continue
            stack: list[tuple[OperatorId, float]] = [(operator, 0.0)]
            while stack:
                top, ms = stack.pop()
                for reader in plan[top].readers:
                    route = routes.get((top, reader))
                    stack.append((reader, ms + (route.latency_ms if route else 0.0)))
                if not plan[top].readers:
                    ends = placed[operator], placed[top]
                    key = topology.name(ends[0]), f"{topology.name(ends[1])} {top}"
                    found[key] = max(found.get(key, (0.0, 0.0)), (ms, topology.latency_ms(*ends)))
        return found

    def check_bound(self) -> None:
        detour = self.catalog.detour
        for ends, (ms, fresh_ms) in self.routes().items():
            assert ms <= detour * fresh_ms + 1.0 + 1e-3, ends


DETOURS = st.sampled_from([1.0, 1.5, 3.0])
MOVES = st.lists(st.tuples(st.integers(1, 11), st.sampled_from([0.5, 1.0, 6.0]), st.booleans()), max_size=12)
SEEDS, COUNTS = st.integers(0, 10_000), st.integers(3, 12)


@pytest.mark.parametrize("name", ["bottom_up", "mdcep"])
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, count=COUNTS, texts=st.sets(st.sampled_from(TEXTS), min_size=1), detour=DETOURS, moves=MOVES)
def test_the_bound_holds_over_any_number_of_moves(
    name: str, seed: int, count: int, texts: set[str], detour: float, moves: list[tuple[int, float, bool]]
) -> None:
    travel(Fog(name, count, seed, detour), count, sorted(texts), moves)


@ON_PATHS
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, count=COUNTS, text=st.sampled_from(CHAINS), detour=DETOURS, moves=MOVES)
def test_the_bound_holds_for_chains_with_other_mechanisms(
    name: str, seed: int, count: int, text: str, detour: float, moves: list[tuple[int, float, bool]]
) -> None:
    """Links of the car are all alike: where one is faster than the other, the least traffic x latency may go over the
    fast one to a filter whose route onward is longer."""
    travel(Fog(name, count, seed, detour), count, [text], [(by, 1.0, overlapping) for by, _, overlapping in moves])


def travel(fog: Fog, count: int, texts: list[str], moves: list[tuple[int, float, bool]]) -> None:
    """Moves in one batch, or the new link before the old one goes; the bound holds after each."""
    for number, text in enumerate(texts):
        assert fog.add(text, f"q{number}").unplaced == {}
    fog.check_bound()
    for by, ms, overlapping in moves:
        to = (fog.at + by) % count
        if to == fog.at:
            continue
        cut, link = fog.move(to, ms)
        for batch in ((link,), (cut,)) if overlapping else ((cut, link),):
            report = fog.run(*batch)
            assert report.unplaced == {}
            fog.check_bound()


def test_detours_do_not_compound_in_ten_moves() -> None:
    """Links between fog nodes of 1, 2, 4 ... ms: each step is only twice as long as the one before."""
    nodes = [Node("car", NodeKind.SENSOR, 0), Node("cloud", NodeKind.CLOUD, 0)]
    nodes += [Node(f"f{i}", NodeKind.EDGE, 4) for i in range(11)]
    links = [Link(f"f{i}", f"f{i + 1}", 2.0**i) for i in range(10)]
    links += [Link(f"f{i}", "cloud", 5) for i in range(11)] + [Link("car", "f0", 1)]
    streams = {"cars": Stream("cars", SCHEMA, "ts", ("car",), rate_tps=100)}
    catalog = Catalog(Topology.of(nodes, links), streams, {"out": SinkTarget("out", "cloud")})
    engine = Engine(catalog, mechanism("bottom_up"))
    (query,) = sql(TEXTS[0], streams, catalog.sinks, "q").queries
    engine.run([QueryAdded(0, query)])
    moved = 0
    for i in range(10):
        report = engine.run([LinkRemoved(0, "car", f"f{i}"), LinkAdded(0, Link("car", f"f{i + 1}", 1))])
        moved += len(report.moves)
        assert sum(route.latency_ms for route in catalog.placement.routes.values()) <= 1.5 * 6 + 1
    assert 3 <= moved <= 10


def test_an_operator_that_gains_nothing_stays() -> None:
    """Every fog node but one is full: a fresh placement would go to the same node, or further."""
    fog = Fog("bottom_up", 4, 3, detour=1.0)
    topology = fog.catalog.topology
    for name in ("f1", "f2", "f3", "hub", "cloud"):
        topology.set_capacity(topology.id(name), slots=0)
    fog.add(TEXTS[0], "q")
    operator = next(o for o, r in fog.catalog.plan.operators.items() if isinstance(r.spec, Filter))
    for to in (2, 1, 3, 2, 0):
        report = fog.run(*fog.move(to))
        assert report.moves == []
        assert topology.name(fog.catalog.placement.nodes[operator]) == "f0"


def test_no_operator_moves_to_and_fro() -> None:
    """A car that changes between two fog nodes makes its operators move at most once per route, and then not at all."""
    fog = Fog("bottom_up", 6, 11)
    for number, text in enumerate(TEXTS):
        fog.add(text, f"q{number}")
    for _ in range(3):
        for to in (3, 0):
            report = fog.run(*fog.move(to))
            assert not fog.run().difference, "nothing happened, so nothing changes"
            for move in report.moves:
                assert move.source is not None
                assert move.target is not None
                assert "times a fresh placement (limit 1.5)" in move.cause


def test_a_larger_detour_keeps_operators_where_they_are() -> None:
    moves = {}
    for detour in (1.0, 1.5, 1000.0):
        fog = Fog("bottom_up", 8, 5, detour)
        for number, text in enumerate(TEXTS):
            fog.add(text, f"q{number}")
        moves[detour] = sum(len(fog.run(*fog.move(to)).moves) for to in (3, 6, 1, 4, 7, 2))
    assert moves[1.0] > 0
    assert moves[1000.0] == 0


def test_a_detour_below_one_is_refused() -> None:
    catalog = Catalog(Topology.of([Node("a", NodeKind.EDGE, 1)], []))
    with pytest.raises(InputError, match=r"detour must be at least 1, the length of a way without one, not 0\.5"):
        Engine(catalog, mechanism("bottom_up"), detour=0.5)


def test_a_broken_edge_is_routed_although_only_others_on_its_way_move() -> None:
    """The first operator was left behind; the link that breaks is between the second one, which stays, and the sink."""
    fog = Fog("bottom_up", 6, 2, detour=1000.0, slots=1)
    fog.add(TEXTS[1], "q")
    (first, second) = [o for o, r in fog.catalog.plan.operators.items() if r.slots]
    fog.run(*fog.move(3))
    where = fog.catalog.placement.nodes
    name = fog.catalog.topology.name
    assert [name(where[first]), name(where[second])] == ["f0", "hub"]
    fog.catalog.detour = 1.0
    report = fog.run(LinkRemoved(0, "hub", "cloud"), LinkAdded(0, Link("hub", "cloud", 2)))
    assert [m.operator for m in report.moves] == [first]
    assert report.rerouted == [(second, next(iter(fog.catalog.plan[second].readers)))]
    fog.check_bound()
