"""Changes across sites: whatever moves and whoever dies in the middle of it, the output is the oracle's."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.coordinator.condition.condition import RUNNING, query_condition
from meander.coordinator.condition.facts import facts_of
from meander.coordinator.loop import loop
from meander.deploy.protocols.sms import SMS
from meander.membership.protocol import OLDEST_PROTOCOL
from meander.model.events import LinkAdded, LinkRemoved, PlacementChanged
from meander.model.ids import ChannelId, FragmentId, OperatorId, QueryId
from meander.model.operators import Filter, Map, Union, WindowAggregate, WindowJoin
from meander.model.plain_json import to_plain
from meander.model.topology.elements import Link
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.recovery import ChangeRecovery
from meander.reconfigure.driver.progress import Phase, Progress
from meander.reconfigure.messages import Abort, Done, Prepare, Reroute
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.reconfigure.part import Part
from meander.run.channels.base import ChannelSpec
from meander.run.channels.flight.client import FlightClient, PeerRefusedError
from meander.run.channels.flight.proof import COORDINATOR, HOME, PeerAddress, key_of, proof
from meander.run.connectors.base import Surroundings
from meander.run.execution.prepared import PreparedRunner
from meander.run.host import Host, HostOptions
from meander.run.outside.sink_bindings import SiteSinkBindings
from meander.run.store.commit import Commit
from meander.run.store.journal import DiskFullError
from meander.run.store.records.deployment import NumbersRecord, SinkBindingRecord
from meander.run.store.records.reconfigurations import DecidedRecord
from meander.run.store.store import Store
from meander.site.site import Site, SiteOptions
from tests.reconfigure.driver.driver_plane import INNER, TIMEOUT_S, SpreadPlane
from tests.run.full_now import FullNow
from tests.run.harness import STREAMS

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
    older = {"west": OLDEST_PROTOCOL}  # a fleet that is being updated, site by site
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300, sends_ahead=True, older=older)
    try:
        for moment, node in enumerate(["e0", "e1", "cloud", "e2", "e0"]):
            plane.feed(rng, moment * 500)
            plane.step()
            plane.apply(*(PlacementChanged(0, o, node) for o in operators(plane)))
            plane.feed(rng, moment * 500 + 250)
            plane.until(lambda: not plane.loop.deployer.has_open_changes)
        assert [o.reason for o in plane.outcomes if o.reason] == []
        assert sum(o.state_bytes for o in plane.outcomes) > 0
        agents = (plane.loop.driver.agent, *(m.agent for m in plane.machines.values()))
        assert all(agent.mover.precopies.used_bytes > 0 == agent.mover.precopies.wasted_bytes for agent in agents)
        for query in QUERIES:
            serving = tuple(plane.catalog.plan.serving(query))
            assert query_condition(facts_of(plane.loop, serving, (), {})) == RUNNING
        before = plane.roster.epoch
        plane.crash()
        check(plane)
        old = FlightClient(PeerAddress(plane.roster.where["west"], proof(key_of("west"), COORDINATOR)), COORDINATOR)
        with pytest.raises(PeerRefusedError, match="has taken over"):
            old.order("abort", {"protocol": OLDEST_PROTOCOL, **before.as_json(), "number": 1})
        east = FlightClient(PeerAddress(plane.roster.where["east"], proof(key_of("east"), COORDINATOR)), COORDINATOR)
        with pytest.raises(
            PeerRefusedError, match=r"version 4 of the protocol, the coordinator 1; .* update the coord"
        ):
            east.order("abort", {"protocol": 1, **before.as_json(), "number": 1})
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


def test_a_change_is_under_way_at_every_moment_until_it_is_in_effect_everywhere(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that joins meanwhile is told to abort what is not."""
    seen: list[bool] = []
    outcome = Progress.outcome

    def told(progress: Progress, ended: float, reason: str | None = None) -> ReconfigurationOutcome:
        seen.append(progress.number in plane.loop.driver.under_way)
        return outcome(progress, ended, reason)

    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    monkeypatch.setattr(Progress, "outcome", told)
    try:
        plane.apply(*(PlacementChanged(0, o, "e0") for o in operators(plane)))
        plane.until(lambda: not plane.loop.deployer.has_open_changes)
        assert seen
        assert all(seen)
    finally:
        plane.close()


def test_what_sites_hear_of_a_change_is_on_the_coordinators_disk(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `durability = "disk"`, too: a machine that starts again must know what it has begun and decided."""
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES)
    try:
        store, calls = plane.host.store, list[str]()
        monkeypatch.setattr(plane.loop.driver, "before_telling", lambda: calls.append("ledger"))
        taken, unsettled = Agent.take, list[str]()

        def take(agent: Agent, message: Any) -> Any:
            decided = [r.number for r in store.records(DecidedRecord).values()]
            if agent is not plane.loop.driver.agent and (message.ACTION == "prepare" or decided):
                calls.append(message.ACTION)
                unsettled.extend([message.ACTION] if store.syncer.settled <= last_change[0] else [])
            return taken(agent, message)

        last_change, write = [0], store.commit

        def commit(what: Commit) -> Any:
            outcome = write(what)
            if any(isinstance(r, NumbersRecord | DecidedRecord) for r in what.records):
                last_change[0] = store.syncer.written - 1
            return outcome

        monkeypatch.setattr(Agent, "take", take)
        monkeypatch.setattr(store, "commit", commit)
        plane.apply(*(PlacementChanged(0, o, "e1") for o in operators(plane)))
        plane.until(lambda: not plane.loop.deployer.has_open_changes and plane.is_in_effect())
        assert unsettled == []
        assert calls[0] == "ledger"
        assert {"prepare", "effect"} <= set(calls)
    finally:
        plane.close()


def test_an_order_to_prepare_that_comes_after_the_end_of_its_change_is_refused_and_takes_nothing_newer_back(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    found: list[Part] = []
    prepare = Agent.prepare

    def noting(agent: Agent, message: Prepare) -> Done:
        if agent is plane.machines["west"].agent:
            found.extend(message.parts)
        return prepare(agent, message)

    try:
        agent = plane.machines["west"].agent
        monkeypatch.setattr(Agent, "prepare", noting)
        for node in ("e0", "e1"):
            plane.apply(*(PlacementChanged(0, o, node) for o in operators(plane)))
            plane.until(lambda: not plane.loop.deployer.has_open_changes)
        monkeypatch.undo()
        numbers = {part.number for part in found}
        assert len(numbers) > 1
        for part in found:
            done = agent.prepare(Prepare((part,)))
            assert "is over here" in done.refused[part.number]
        agent.abort(Abort((10**6,)))  # it was told of the end first
        late = replace(found[0], number=10**6)
        assert "is over here" in agent.prepare(Prepare((late,))).refused[10**6]
        aborted: list[tuple[int, ...]] = []
        under_way = {n: object() for n in (7, 9)}
        monkeypatch.setattr(agent, "changes", under_way)
        monkeypatch.setattr(agent, "abort", lambda message: aborted.append(message.numbers))
        agent._abort_forgotten(Prepare((replace(found[0], number=8),)))
        assert aborted == [(7,)]
        monkeypatch.undo()
        check(plane)
    finally:
        plane.close()


def test_an_order_about_ways_that_was_overtaken_by_a_newer_one_is_not_carried_out(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    try:
        agent = plane.machines["west"].agent
        exchange = agent.host.store.exchange
        channels = plane.loop.deployer.deployment.channels.values()
        channel = next(c for c in channels if c.id in exchange.channels())
        for turn, is_cut in (((3, 7), True), ((4, 1), False), ((4, 3), True), ((4, 2), False), ((3, 9), False)):
            agent.reroute(Reroute(((replace(channel, is_cut=is_cut), ("west",)),), turn))
        assert exchange.is_cut(channel.id)
        agent.reroute(Reroute(((replace(channel, is_cut=False), ("west",)),), (5, 1)))
        assert not exchange.is_cut(channel.id)
    finally:
        plane.close()


def test_a_change_that_cannot_be_taken_back_for_want_of_room_is_taken_back_when_there_is_some(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    driver = plane.loop.driver
    try:
        plane.feed(rng, 0)
        plane.step()
        for node in ("e0", "e1"):
            plane.until(lambda: not plane.loop.deployer.has_open_changes)
            plane.apply(*(PlacementChanged(0, o, node) for o in operators(plane)))
        deadline = time.monotonic() + TIMEOUT_S
        while all(p.phase is not Phase.DRAIN for p in driver.progress.values()):  # nobody steps: it stays like this
            plane.poll()
            assert time.monotonic() < deadline
        change = next(p for p in driver.progress.values() if p.phase is Phase.DRAIN)
        change.problem = "somebody has said no"
        commit = Store.commit

        def full(store: Store, what: Commit) -> ReconfigurationOutcome:
            raise DiskFullError("there is no room")

        monkeypatch.setattr(Store, "commit", full)
        with pytest.raises(DiskFullError):
            driver.poll()
        assert change.number in driver.under_way
        monkeypatch.setattr(Store, "commit", commit)
        plane.until(lambda: any(o.reason == "somebody has said no" for o in plane.outcomes))
        assert change.number not in driver.under_way
        check(plane)
    finally:
        plane.close()


def test_results_are_not_cut_off_while_a_change_takes_effect(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    """The channel is there before the fragment that writes to it is."""
    host = Host(HostOptions(tmp_path / "host", 1), spark, runner)
    host.deliver((), Surroundings(tmp_path, tmp_path / "host"))
    channel, changing = ChannelId(INNER + 5), threading.RLock()
    sink_bindings = SiteSinkBindings(host, changing)
    spec = ChannelSpec(channel, pa.schema([("id", pa.int64())]), FragmentId(1))
    with changing:
        host.store.commit(Commit(add=(spec,), records=(SinkBindingRecord(channel, "means", "one"),)))
        ticking = threading.Thread(target=sink_bindings.tick, args=({},), daemon=True)
        ticking.start()
        ticking.join(0.3)
        assert channel in host.store.exchange.channels()
    ticking.join()
    assert channel not in host.store.exchange.channels()
    host.stop()


@pytest.mark.parametrize("seed", range(5))
def test_any_schedule_of_changes_and_deaths_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300, sends_ahead=seed % 2 == 1)
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


@pytest.mark.parametrize("seed", range(3))
def test_disks_that_are_full_at_any_commit_of_any_host_leave_the_output_as_it_is(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300, sends_ahead=seed % 2 == 1)
    names = [HOME, *SITES]
    full = FullNow(Random(seed).random, 0.2)
    monkeypatch.setattr(loop, "AGAIN_S", 0.0)
    try:
        for moment in range(8):
            plane.feed(rng, moment * 500)
            monkeypatch.setattr(Store, "commit", lambda store, change: full.commits(store, change))
            actions: list[Callable[[], None]] = [partial(plane.apply, *plane.random_events(rng))]
            for _ in range(int(rng.integers(4, 16))):
                stepping = partial(plane.step, only=str(rng.choice(names)))
                actions.append(stepping if rng.random() < 0.5 else plane.poll)
            for action in actions:
                with suppress(DiskFullError):
                    action()
            monkeypatch.setattr(Store, "commit", full.commit)
        plane.mend(rng)
        check(plane)
        assert full.refused
    finally:
        plane.close()


def beside(plane: SpreadPlane, moving: list[OperatorId], nodes: list[str]) -> None:
    """Lets operators run at their old and new places for a while."""
    deployer = plane.loop.deployer
    deployer.special.update(dict.fromkeys(moving, SMS))
    plane.apply(*(PlacementChanged(0, o, node) for o, node in zip(moving, nodes, strict=True)))


def set_apart(plane: SpreadPlane) -> list[OperatorId]:
    """Operators with windows, each in a fragment of its own."""
    found = operators(plane)
    plane.loop.deployer.placed.apart.update({o: f"operator {o}" for o in found})
    plane.loop.deployer.note(found)
    plane.loop.begin_expected()
    plane.until(lambda: not plane.loop.deployer.has_open_changes)
    return found


def test_operators_run_at_two_sites_for_a_while_and_no_state_travels(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    try:
        moving, now_ms = set_apart(plane), 0
        plane.outcomes.clear()
        for node in ("e0", "e1", "cloud", "e2"):
            for _ in range(3):
                plane.feed(rng, now_ms := now_ms + 300)
                plane.step()
            beside(plane, moving, [node] * len(moving))
            deadline = time.monotonic() + TIMEOUT_S
            while plane.loop.deployer.has_open_changes:  # it ends when event time has passed its windows
                plane.feed(rng, now_ms := now_ms + 50)
                plane.step()
                plane.poll()
                time.sleep(0.02)
                assert time.monotonic() < deadline, plane.described()
        assert [o.reason for o in plane.outcomes if o.reason] == []
        overlapped = [o for o in plane.outcomes if o.overlapped]
        assert len(overlapped) >= 4
        assert not any(o.state_bytes for o in overlapped)
        check(plane)
    finally:
        plane.close()


@pytest.mark.parametrize("seed", range(20, 24))
def test_overlaps_between_sites_survive_deaths_and_moving_devices(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, SITES, disorder_ms=300)
    names = [HOME, *SITES]
    try:
        moving = set_apart(plane)
        forks = 0
        for moment in range(10):
            plane.feed(rng, moment * 500)
            if rng.random() < 0.5:
                nodes = [str(rng.choice([n for n in ("e0", "e1", "e2", "cloud") if n not in plane.away]))] * len(moving)
                beside(plane, moving, nodes)
            elif rng.random() < 0.3:
                plane.apply(*plane.random_events(rng))
            for _ in range(int(rng.integers(4, 20))):
                if rng.random() < 0.5:
                    plane.step(only=str(rng.choice(names)))
                else:
                    plane.poll()
                    time.sleep(0.01)
            forks += bool(plane.loop.driver.forked)
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
        assert forks or any(o.overlapped for o in plane.outcomes)
    finally:
        plane.close()


def test_a_site_knows_what_had_stopped_before_it_runs_anything(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that ran earlier would read past the marker at which its fragments had stopped."""
    order: list[str] = []
    for kind, name in ((ChangeRecovery, "recover"), (Host, "start")):
        monkeypatch.setattr(kind, name, _noting(order, name, getattr(kind, name)))
    options = SiteOptions("west", tmp_path, "http://127.0.0.1:1", "token", ({"name": "e0"},))
    site = Site(options, spark)
    site.start()
    assert site.streams is not None
    site.streams.take({"streams": {}, "sinks": {}})
    assert site.measures().host["problems"] == []
    site.streams.take({"streams": {"cars": to_plain(replace(STREAMS["cars"], nodes=("e0",)))}, "sinks": {}})
    (problem,) = site.measures().host["problems"]
    assert problem == "stream cars is new or has changed; start this site again to take it in"
    port = int(site.address.rsplit(":", 1)[1])
    socket.create_connection(("127.0.0.1", port), 10).close()
    site.stop(drain=False)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 10)
    assert order == ["recover", "start"]


def _noting(order: list[str], name: str, done: Callable[[Any], None]) -> Callable[[Any], None]:
    def noted(what: Any) -> None:
        order.append(name)
        done(what)

    return noted
