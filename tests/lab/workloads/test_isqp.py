"""Workloads: the shapes they promise, the same with the same seed, and real overlap where it is promised."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lab.workloads.isqp import (
    FIRST_TRAIN,
    Sites,
    mixed,
    moves,
    numbered_catalog,
    overlapping,
    published_shape,
    railway,
    tails,
    three_layers,
    train_queries,
)
from lab.workloads.nes_queries import NesQuery, load_queries
from meander.model.events import LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.operators import Source
from meander.model.plan import Query
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

SET = Path(os.environ.get("MEANDER_DATA", Path(__file__).parents[4] / "shared" / "data")) / "isqp"


def sinks(queries: list[NesQuery]) -> list[int]:
    """How many distinct queries deliver to each node, most first."""
    distinct = {id(q.query.plan): q.sink_node for q in queries}
    return sorted(Counter(distinct.values()).values(), reverse=True)


def origins(queries: list[NesQuery]) -> list[int]:
    """How many distinct queries read from each first node, most first."""
    distinct = {id(q.query.plan): q.query.plan for q in queries}
    first = [
        next(o.stream for o in plan.operators.values() if isinstance(o, Source)).split("-")[0]
        for plan in distinct.values()
    ]
    return sorted(Counter(first).values(), reverse=True)


@pytest.mark.parametrize("conflict", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_the_distinct_queries_conflicts(conflict: float) -> None:
    queries = published_shape(96, distinct=32, conflict=conflict)
    together = round(32 * conflict)
    assert sinks(queries)[0] == max(together, 1)
    assert origins(queries)[0] == max(together, 1)


@pytest.mark.skipif(not SET.is_dir(), reason=f"no query sets in {SET}; set MEANDER_DATA to the folder above isqp")
def test_generated_sets_look_like_the_published_ones() -> None:
    published = load_queries(SET / "generated_queries-50Conflict-4k-QueryChanges.txt.gz")
    generated = published_shape(4096, distinct=32, conflict=0.5)
    assert (sinks(generated), origins(generated)) == (sinks(published), origins(published))
    assert [len(q.query.plan.operators) for q in generated] == [len(q.query.plan.operators) for q in published]
    for share, name in ((0.0, "0Conflict"), (0.5, "50Conflict")):
        trains = load_queries(SET / f"generated_queries-{name}-TopologyChanges4k.txt.gz")
        assert sinks(train_queries(4000, conflict=share)) == sinks(trains)


def test_topologies() -> None:
    assert len(three_layers()) == 768
    assert len(three_layers().adjacency) == 2 * (64 * 64 + 640)
    assert len(railway()) == 120
    assert len(railway().adjacency) == 2 * (100 + 100)


def test_every_train_is_linked_to_one_station_after_any_number_of_moves() -> None:
    topology = railway()
    count = 0
    for away, back in moves(250, seed=3):
        assert isinstance(away, LinkRemoved)
        assert isinstance(back, LinkAdded)
        assert away.source == back.link.source
        topology.remove_link(away.source, away.target)
        topology.add_link(back.link)
        count += 1
    assert count == 250
    assert all(len(topology.neighbours(topology.id(str(FIRST_TRAIN + i)))) == 1 for i in range(100))
    assert list(moves(50, seed=3)) == list(moves(50, seed=3)) != list(moves(50, seed=4))


def added(queries: list[Query], shape: Sites) -> list[int]:
    """Operators that each query adds."""
    engine = Engine(shape.catalog(), mechanism("bottom_up"))
    found = []
    for query in queries:
        before = len(engine.catalog.plan.operators)
        engine.run([QueryAdded(0, query)])
        found.append(len(engine.catalog.plan.operators) - before)
    return found


def test_overlapping_queries_share_parts_and_seldom_all() -> None:
    shape = Sites(sites=4)
    queries = overlapping(300, shape)
    own = [len(q.plan.operators) for q in queries[150:]]
    new = added(queries, shape)[150:]
    partly = sum(1 < n < size for n, size in zip(new, own, strict=True))
    assert partly > len(own) / 2
    assert sum(new) < sum(own) / 2
    assert overlapping(5, shape) == overlapping(5, shape)
    assert overlapping(5, shape, first=5) != overlapping(5, shape)


def test_tails_add_three_operators_once_their_sensor_is_read() -> None:
    shape = Sites(sites=2, sensors=3)
    new = added(tails(80, shape), shape)
    assert set(new) <= {3, 6}
    assert new[40:] == [3] * 40


def test_mixed_changes_have_their_share_of_removals() -> None:
    shape = Sites()
    running = [q.id for q in tails(100, shape)]
    for share in (0.0, 0.5, 1.0):
        changes = mixed(tails(100, shape, first=100), running, 100, share)
        kinds = Counter(type(event) for (event,) in changes)
        assert kinds[QueryAdded] + kinds[QueryRemoved] == 100
        assert abs(kinds[QueryRemoved] - 100 * share) < 20
        names = set(running)
        for (event,) in changes:
            if isinstance(event, QueryRemoved):
                names.remove(event.query)
            else:
                assert isinstance(event, QueryAdded)
                names.add(event.query.id)


def test_numbered_catalogs_know_where_streams_and_sinks_are() -> None:
    queries = published_shape(4, distinct=4, conflict=0.0)
    catalog = numbered_catalog(three_layers(), queries)
    assert {s.nodes[0] for n, s in catalog.streams.items()} == {n.split("-")[0][7:] for n in catalog.streams}
    assert {s.node for s in catalog.sinks.values()} == {str(q.sink_node) for q in queries}
