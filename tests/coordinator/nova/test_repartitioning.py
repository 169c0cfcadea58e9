"""A join that is cut into parts, and cut anew while everything moves: the output is that of the whole join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    LinkAdded,
    LinkRemoved,
    NodeAdded,
    NodeRemoved,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import QueryId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.run.execution.prepared import PreparedRunner
from tests.coordinator.nova.repartitioned import JOINS, OTHER, PartedPlane, query
from tests.reconfigure.moving import MovingPlane


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


@pytest.mark.parametrize(("seed", "kind"), [(8, "sliding"), (9, "tumbling"), (10, "within")])
def test_any_cuts_changes_and_crashes_give_the_output_of_the_whole_join(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    plane = PartedPlane(tmp_path, spark, runner, JOINS[kind], rng)
    for moment in range(8):
        plane.feed(rng, moment * 500)
        if rng.random() < 0.7:
            plane.recut(rng, plane.random_events(rng) if rng.random() < 0.5 else ())
        plane.step()
        if rng.random() < 0.8:
            plane.poll()
        if rng.random() < 0.2:
            plane.crash()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    assert not plane.wiring.retired
    plane.apply(QueryRemoved(0, QueryId("wet")))
    plane.finish()
    assert not plane.host.store.state.fragments()


def test_nova_keeps_a_running_join_placed_and_its_output_whole(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    plane = MovingPlane(tmp_path, spark, runner, OTHER, disorder_ms=300)
    given = {"cloud": 25.0, "e0": 23.0, "e1": 24.0, "e2": 22.0, "s0": 11.0, "s1": 11.0, "s2": 1.0}
    for name, tps in given.items():
        plane.apply(CapacityChanged(0, name, capacity_tps=tps))
    plane.apply(QueryAdded(0, query(JOINS["tumbling"]), "nova"))
    join = plane.engine.parted.joined(QueryId("wet"))
    plane.wanted.append(join.shape.query)
    while plane.loop.deployer.has_open_changes:
        plane.poll()
        plane.step()
    links = [Link("e1", other, ms) for other, ms in (("e0", 1), ("e2", 1), ("cloud", 5), ("s1", 1))]
    back: list[ChangeEvent] = [
        NodeAdded(0, Node("e1", NodeKind.EDGE, 2, 24.0)),
        *(LinkAdded(0, link) for link in links),
    ]
    changes: list[Sequence[ChangeEvent]] = [
        [RateChanged(0, "cars", 6.0, "s0")],
        [CapacityChanged(0, "e0", capacity_tps=3.0)],
        [NodeRemoved(0, "e1")],
        back,
        [CapacityChanged(0, "e0", capacity_tps=30.0)],
        [LinkRemoved(0, "e0", "cloud"), LinkAdded(0, Link("e0", "cloud", 5, bandwidth_mbps=0.0001))],
    ]
    cuts = [set(join.joins.parts)]
    for moment, events in enumerate(changes):
        plane.feed(rng, moment * 500)
        plane.apply(*events)
        cuts.append(set(join.joins.parts))
        assert not plane.engine.parted.exceeded(QueryId("wet"))
        plane.step()
        plane.poll()
    assert len({frozenset(c) for c in cuts}) > 2
    assert not join.matrix.without_room
    assert cuts[-1] != cuts[-2], "the narrow link must have moved something"
    taken = join.reoptimiser.joins.board.nodes["load"]
    assert np.allclose(taken[: len(join.joins.booking.taken)], join.joins.booking.taken, atol=1e-3)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
