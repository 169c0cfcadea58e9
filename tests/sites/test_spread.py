"""Changes across sites: whatever moves and whoever dies in the middle of it, the output is the oracle's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.model.events import LinkAdded, LinkRemoved, PlacementChanged
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Filter, Map, Union, WindowAggregate, WindowJoin
from meander.model.topology import Link
from meander.run.exchange.flight_client import Asker, RefusedError
from meander.run.exchange.flight_proof import COORDINATOR, HOME, Contact, key_of, proof
from meander.run.prepared import PreparedRunner
from meander.serve.condition import RUNNING, condition_of
from tests.sites.spread_plane import SpreadPlane

QUERY = """
CREATE QUERY means AS SELECT window_start, road, count(*) AS n, sum(id) AS total
FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one;
CREATE QUERY pairs AS SELECT cars.id, cars.road, rain.mm FROM cars JOIN rain ON cars.road = rain.road
WINDOW TUMBLING(1 s) INTO two;
"""
QUERIES = (QueryId("means"), QueryId("pairs"))
SITES = {"west": ("s0", "e0"), "east": ("s1", "e1"), "south": ("s2", "e2")}


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    found = PreparedRunner(spark)
    yield found
    found.close()


def operators(plane: SpreadPlane) -> list[OperatorId]:
    kinds = WindowAggregate | WindowJoin
    return [o for o, record in plane.catalog.plan.operators.items() if isinstance(record.spec, kinds)]


def check(plane: SpreadPlane) -> None:
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


def test_state_moves_between_sites_and_nothing_is_lost_or_double(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    try:
        for moment, node in enumerate(["e0", "e1", "cloud", "e2", "e0"]):
            plane.feed(rng, moment * 500)
            plane.step()
            plane.apply(*(PlacementChanged(0, o, node) for o in operators(plane)))
            plane.feed(rng, moment * 500 + 250)
            plane.until(lambda: not plane.loop.deployer.has_open_changes)
        assert [o.reason for o in plane.outcomes if o.reason] == []
        assert sum(o.state_bytes for o in plane.outcomes) > 0
        assert [condition_of(plane.loop, plane.catalog.plan.serving(q), (), None) for q in QUERIES] == [RUNNING] * 2
        before = plane.roster.epoch
        plane.crash()
        check(plane)
        old = Asker(Contact(plane.roster.where["west"], proof(key_of("west"), COORDINATOR)), COORDINATOR)
        with pytest.raises(RefusedError, match="has taken over"):
            old.order("abort", {**before.as_json(), "number": 1})
    finally:
        plane.close()


def test_what_waits_where_there_is_no_way_is_worked_off_before_its_reader_leaves(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """The reader steps between being told of the change and the markers: cut off everywhere, it must not stop there."""
    rng = np.random.default_rng(2)
    text = "CREATE QUERY fast AS SELECT id, road FROM cars WHERE speed > 5 INTO one;"
    plane = SpreadPlane(tmp_path, spark, runner, text, SITES)
    try:
        plan = plane.catalog.plan.operators
        unions = [o for o, record in plan.items() if isinstance(record.spec, Union)]
        filters = [o for o, record in plan.items() if isinstance(record.spec, Filter | Map)]
        plane.apply(*(PlacementChanged(0, o, "e0") for o in unions))
        plane.until(lambda: not plane.loop.deployer.has_open_changes)
        plane.apply(*(LinkRemoved(0, f"s{i}", f"e{i}") for i in range(3)))
        plane.until(lambda: sum(c.is_cut for c in plane.loop.deployer.deployment.channels.values()) == 2)
        for moment in range(3):
            plane.feed(rng, moment * 500)
            plane.step()
        back = [LinkAdded(0, Link(f"s{i}", "e1", 1)) for i in range(3)]
        plane.apply(*back, *(PlacementChanged(0, o, "cloud") for o in (*unions, *filters)))
        check(plane)
    finally:
        plane.close()


def test_what_waits_for_a_reader_without_a_way_goes_along_when_its_sender_moves(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """The log is at one site and goes to another one, while the channel is cut."""
    rng = np.random.default_rng(3)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY.split(";")[0] + ";", SITES, disorder_ms=300)
    try:
        plan = plane.catalog.plan.operators
        (union,) = [o for o, record in plan.items() if isinstance(record.spec, Union)]
        at_home = [o for o, record in plan.items() if isinstance(record.spec, Union | Map)]
        plane.apply(*(PlacementChanged(0, o, "cloud") for o in at_home))
        plane.apply(*(PlacementChanged(0, o, "e0") for o in operators(plane)))
        plane.until(lambda: not plane.loop.deployer.has_open_changes)
        plane.apply(*(LinkRemoved(0, "e0", other) for other in ("e1", "e2", "cloud")))
        for moment in range(3):
            plane.feed(rng, moment * 500)
            plane.until(lambda: not plane.loop.deployer.has_open_changes)
        plane.apply(LinkAdded(0, Link("e0", "e1", 1)), PlacementChanged(0, union, "e1"))
        check(plane)
    finally:
        plane.close()


@pytest.mark.parametrize("seed", range(5))
def test_any_schedule_of_changes_and_deaths_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    names = [HOME, *SITES]
    try:
        for moment in range(8):
            plane.feed(rng, moment * 500)
            if rng.random() < 0.7:
                plane.apply(*plane.random_events(rng))
            for _ in range(int(rng.integers(1, 12))):
                if rng.random() < 0.5:
                    plane.step(only=str(rng.choice(names)))
                else:
                    plane.poll()
            victim = str(rng.choice(names)) if rng.random() < 0.4 else None
            if victim == HOME:
                plane.crash()
            elif victim is not None and plane.machines[victim].is_up:
                plane.kill(victim)
            for site in SITES:
                if not plane.machines[site].is_up and rng.random() < 0.5:
                    plane.restart(site)
        for site in SITES:
            if not plane.machines[site].is_up:
                plane.restart(site)
        plane.mend(rng)
        check(plane)
    finally:
        plane.close()
