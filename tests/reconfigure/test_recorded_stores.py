"""Hosts and sites go on with stores that were written before there were types of records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.deploy.protocols.sms import SMS
from meander.model.events import NodeRemoved, PlacementChanged
from meander.model.ids import OperatorId
from meander.model.operators import WindowAggregate, WindowJoin
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.reconfigure.messages import Abort
from meander.reconfigure.serialised_fragment import take_up
from meander.run.execution.prepared import PreparedRunner
from meander.run.host import Host, HostOptions
from meander.run.store.records.deployment import FragmentRecord
from meander.run.store.records.reconfigurations import (
    DrainedRecord,
    OverlapRecord,
    PartRecord,
    ReconfigurationRecord,
)
from meander.run.store.store import Store
from tests.reconfigure.moving import MovingPlane
from tests.run.harness import VirtualClock
from tests.run.observe import remembered
from tests.run.step.test_step import QUERIES
from tests.run.store.recorded import unpack


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


def with_state(plane: MovingPlane, kinds: type) -> list[OperatorId]:
    return [o for o, record in plane.catalog.plan.operators.items() if isinstance(record.spec, kinds)]


def until_it_was_recorded(plane: MovingPlane) -> None:
    """What happened until the store `host` was taken: an aggregate overlaps, an edge is gone and what ran there moves.

    The sensor behind that edge is cut off. One fragment has come to its marker.
    """
    rng = np.random.default_rng(11)
    for moment in range(3):
        plane.feed(rng, moment * 500)
        plane.step()
        plane.poll()
    both = [*with_state(plane, WindowAggregate), *with_state(plane, WindowJoin)]
    plane.apply(*(PlacementChanged(0, o, "e0") for o in sorted(both)))
    for _ in range(6):
        plane.step()
        plane.poll()
    special = plane.loop.deployer.special
    special.update(dict.fromkeys(plane.catalog.plan.operators, SMS))
    plane.apply(*(PlacementChanged(0, o, "e1") for o in with_state(plane, WindowAggregate)))
    special.clear()
    plane.poll()
    plane.feed(rng, 1500)
    plane.apply(NodeRemoved(0, "e2"))
    plane.away.add("e2")
    plane.feed(rng, 2000)
    plane.apply(*(PlacementChanged(0, o, "cloud") for o in with_state(plane, WindowJoin)))
    plane.feed(rng, 2500)
    plane.step()


def test_a_host_finishes_what_was_under_way_when_its_store_had_notes(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """The catalog is the one that this program makes of the same events: what the old store says has to fit it."""
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, disorder_ms=300)
    until_it_was_recorded(plane)
    mine = remembered(plane.host.store)
    plane.host.store.close()
    shutil.rmtree(tmp_path / "store")
    unpack("host", tmp_path / "store")
    store = Store.open(tmp_path / "store")
    assert remembered(store) == mine
    assert [len(store.records(t)) for t in (OverlapRecord, ReconfigurationRecord, DrainedRecord)] == [1, 1, 1]
    store.close()
    plane.crash()
    plane.mend(np.random.default_rng(1))
    plane.feed(np.random.default_rng(2), 3000)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()


@pytest.mark.parametrize("name", ["site", "site-drained"])
def test_a_site_takes_up_its_part_of_a_change_and_takes_it_back_when_its_store_had_notes(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, name: str
) -> None:
    unpack(name, tmp_path / "store")
    host = Host(HostOptions(tmp_path, 1), spark, runner, clock=VirtualClock())
    contacts = PeerDirectory(host.store, "east", "key")
    agent = Agent(host)
    agent.remote_channels.connect(contacts.client_for)
    try:
        take_up(host)
        agent.recovery.recover()
        parts = host.store.records(PartRecord)
        assert set(parts) == set(agent.changes)
        assert all(agent.changes[n].is_marked == part.is_marked for n, part in parts.items())
        assert any(part.fetched is not None for part in parts.values())
        assert any(part.added for part in parts.values()) == (name == "site")
        assert set(host.routing.fragments) == set(host.store.records(FragmentRecord))
        assert bool(host.routing.drained) == (name == "site-drained")
        agent.abort(Abort(tuple(parts)))
        assert not host.store.records(PartRecord)
        assert not host.store.records(DrainedRecord)
        assert not host.routing.awaiting
        assert not host.routing.drained
    finally:
        agent.stop()
        contacts.close()
        host.store.close()
