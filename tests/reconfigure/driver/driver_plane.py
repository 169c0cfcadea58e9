"""A fleet in one process: hosts that nobody starts, so that a test decides who steps, polls and dies, and when.

Doors, pulling and orders are the real ones, over the loopback interface, from threads of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.own_site import OwnSite
from meander.membership.fence import Fence
from meander.membership.protocol import PROTOCOL, Epoch
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.agent.serving.request_handler import AgentRequestHandler
from meander.reconfigure.endpoint import ListenOptions
from meander.reconfigure.serialised_fragment import take_up
from meander.reconfigure.state.precopy import AHEAD
from meander.run.channels.base import ChannelAppend
from meander.run.channels.flight.proof import FORMER, HOME, former_key_of, key_of
from meander.run.channels.flight.server import FlightServer
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.execution.runner import Runner
from meander.run.frames import BEGIN, END, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.oracle.batch import PRODUCER
from meander.run.reporting.paused import failed_facts
from meander.run.store.commit import Commit
from meander.run.store.records.reconfigurations import DecidedRecord, DrainedRecord, OverlapRecord, PartRecord
from meander.run.store.records.transport import CopyRecord, ReaderRecord
from tests.reconfigure.moving import MovingPlane
from tests.run.harness import SINKS, STREAMS

TIMEOUT_S = 600.0
INNER = 1_000_000_000


@dataclass
class Roster:
    """Implements `Fleet`."""

    nodes: Mapping[str, str]
    where: dict[str, str] = field(default_factory=dict)
    broker: str = ""
    protocols: dict[str, int] = field(default_factory=dict)
    epoch: Epoch = field(default_factory=lambda: Epoch(1, "coordinator 1"))

    def owner(self, node: str) -> str | None:
        return self.nodes.get(node)

    def addresses(self) -> Mapping[str, str]:
        return dict(self.where)

    def revoked(self) -> Collection[str]:
        return ()

    def brokers(self) -> Mapping[str, str]:
        return dict.fromkeys(self.where, self.broker) if self.broker else {}

    def protocol(self, site: str) -> int:
        return self.protocols.get(site, PROTOCOL)

    def key(self, site: str) -> str | None:
        return key_of(site)

    def former_key(self, site: str) -> str | None:
        return former_key_of(site)

    def next_epoch(self) -> None:
        number = self.epoch.number + 1
        self.epoch = Epoch(number, f"coordinator {number}")


@dataclass(frozen=True)
class World:
    streams: Mapping[str, Any]
    sinks: Mapping[str, Any]


class Machine:
    """A site that can be gone for a while."""

    def __init__(
        self,
        name: str,
        directory: Path,
        spark: SparkSession,
        runner: Runner,
        clock: Callable[[], int],
        broker: str = "",
        *,
        sends_ahead: bool = False,
        protocol: int = PROTOCOL,
    ) -> None:
        """One of an older version takes no orders in another than its own."""
        self.sends_ahead, self.protocol = sends_ahead, protocol
        self.name, self.directory, self.spark, self.runner, self.clock = name, directory, spark, runner, clock
        self.broker = broker
        self.is_up = False

    def start(self) -> str:
        """Gives the address."""
        self.directory.mkdir(exist_ok=True)
        host = self.host = Host(HostOptions(self.directory, 1), self.spark, self.runner, clock=self.clock)
        self.contacts = PeerDirectory(host.store, self.name, key_of(self.name))
        kafka = None
        if self.broker:
            kafka = KafkaExchange(Broker(self.spark, self.broker), self.name, key_of(self.name), self.contacts.contact)
        self.agent = Agent(host)
        if self.sends_ahead:
            self.agent.mover.precopies.least_bytes = 0.0
        self.agent.remote_channels.connect(self.contacts.client_for, kafka)
        fence = Fence(self.directory / "fence.json")
        desk = AgentRequestHandler(self.name, self.agent, self.contacts, Replication(host.store), fence)
        if self.protocol != PROTOCOL:
            desk.order = self._strictly(desk.order)  # type: ignore[method-assign, assignment]
        take_up(host)
        self.agent.recovery.recover()
        former = former_key_of(self.name) if self.protocol <= FORMER else None
        self.door = FlightServer(host.store, desk, key_of(self.name), "grpc://127.0.0.1:0", former_key=lambda: former)
        self.agent.remote_channels.refresh()
        self.is_up = True
        return f"grpc://127.0.0.1:{self.door.port}"

    def _strictly(self, order: Callable[[str, Mapping[str, Any]], Any]) -> Callable[[str, Mapping[str, Any]], Any]:
        def ordered(action: str, body: Mapping[str, Any]) -> Any:
            if body["protocol"] != self.protocol:
                raise InputError(f"the coordinator speaks version {body['protocol']}, this site {self.protocol}")
            return order(action, body)

        return ordered

    def die(self) -> None:
        """Nothing is said to anybody, nothing is finished."""
        self.is_up = False
        self.host.store.close()
        self.door.shutdown()
        self.agent.stop()
        self.contacts.close()


class SpreadPlane(MovingPlane):
    """Sensors and edges at sites, the cloud at home."""

    def __init__(
        self,
        directory: Path,
        spark: SparkSession,
        runner: Runner,
        text: str,
        sites: Mapping[str, tuple[str, ...]],
        broker: str = "",
        older: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        """`older` are the versions of the protocol of sites that do not speak the newest."""
        owners = {node: site for site, nodes in sites.items() for node in nodes}
        self.roster = Roster(owners, broker=broker, protocols=dict(older or {}))
        self.machines: dict[str, Machine] = {}
        self.home_site: OwnSite | None = None
        self._paths = (directory, spark, runner)
        self._names = tuple(sites)
        (directory / "home").mkdir(parents=True)
        super().__init__(directory / "home", spark, runner, text, **options)
        self.until(lambda: not self.loop.deployer.has_open_changes and self.is_in_effect())

    def _open(self) -> None:
        if not self.machines:
            base, spark, runner = self._paths
            for name in self._names:
                machine = self.machines[name] = Machine(
                    name, base / name, spark, runner, self.clock, self.roster.broker,
                    sends_ahead=self.sends_ahead, protocol=self.roster.protocol(name),
                )  # fmt: skip
                self.roster.where[name] = machine.start()
        options = HostOptions(self.directory, 1, idle_timeout_ms=self.idle_timeout_ms)
        self.host = Host(options, self.spark, self.runner, clock=self.clock)
        self.loop = PlacementLoop(self.catalog, self.engine, self.host, background=False, clock=self._seconds)
        if self.sends_ahead:
            self.loop.driver.agent.mover.precopies.least_bytes = 0.0
        self.home_site = OwnSite(self.roster, "secret", World(STREAMS, SINKS), ListenOptions(broker=self.roster.broker))
        self.home_site.facts = self._facts
        self.home_site.join(self.loop)

    def _facts(self) -> dict[str, dict[str, Any]]:
        """What sites tell with their heartbeats."""
        up = {name: m.host for name, m in self.machines.items() if m.is_up}
        return {name: {"failed": failed_facts(host), "behind": host.status().behind} for name, host in up.items()}

    @property
    def hosts(self) -> dict[str, Host]:
        return {HOME: self.host, **{n: m.host for n, m in self.machines.items() if m.is_up}}

    def is_in_effect(self) -> bool:
        """Whether every site has heard of everything that was decided."""
        return not self.host.store.records(DecidedRecord)

    # Dying

    def crash(self, *_: Any) -> None:
        """The coordinator dies, and another one starts on its directory."""
        assert self.home_site is not None
        self.host.store.close()
        self.home_site.close()
        self.roster.next_epoch()
        self._open()
        self.loop.recover()
        self.poll()

    def kill(self, site: str) -> None:
        self.machines[site].die()

    def restart(self, site: str) -> None:
        self.roster.where[site] = self.machines[site].start()
        assert self.home_site is not None
        self.home_site.joined(site)

    def close(self) -> None:
        assert self.home_site is not None
        self.home_site.close()
        for machine in self.machines.values():
            if machine.is_up:
                machine.die()

    # Tuples and steps

    def enter(self, stream: str, node: str, table: pa.Table) -> None:
        host = self.hosts.get(self.roster.owner(node) or HOME)
        if host is None:
            return  # it has no tuples while it is down
        before = self.reached[stream, node]
        hidden = with_hidden(table, "ts", self.disorder_ms, before)
        newest = int(np.max(table.column("ts").to_numpy(), initial=BEGIN)) - self.disorder_ms
        self.reached[stream, node] = max(before, newest)
        self.entered[stream].append(table.append_column(PRODUCER, pa.array([node] * len(table), pa.string())))
        mark = None if self.reached[stream, node] == BEGIN else self.reached[stream, node]
        channels = host.feeding.channels.get((stream, node), ())
        host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, mark) for c in channels)))

    def step(self, slot: int | None = None, only: str | None = None) -> None:
        for name, host in self.hosts.items():
            if only in (None, name):
                self.batch += 1
                with host.slots[0].step_lock:
                    host.stepper.step(0, self.batch)

    def finish(self) -> None:
        """Ends all streams; goes on until nothing is left to do anywhere."""
        for host in self.hosts.values():
            channels = [c for readers in host.feeding.channels.values() for c in readers]
            host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in channels)))
        self.until(self.is_quiet)

    def is_quiet(self) -> bool:
        if self.loop.deployer.has_open_changes or not self.is_in_effect():
            return False
        if any(host.stepper.has_work(0) for host in self.hosts.values()):
            return False
        for channel in self.loop.deployer.deployment.channels.values():
            for host in self.hosts.values():
                view = host.store.views.channels.by_id.get(channel.id)
                if view is not None and view.head != view.tail:
                    return False
        return True

    def until(self, condition: Callable[[], bool]) -> None:
        """Steps and polls until something is so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self.step()
            self.poll()
            assert time.monotonic() < deadline, self.described()
            time.sleep(0.005)

    def described(self) -> str:
        """What is going on, for a test that failed."""
        lines = [f"under way {sorted(self.loop.deployer.under_way)}, failures {self.loop.deployer.failures[-3:]}"]
        under_way = self.loop.driver.progress.values()
        lines += [f"{p.number}: {p.phase}, {p.problem}, waits for {p.waiting}, away {p.away}" for p in under_way]
        for name, host in self.hosts.items():
            routing = host.routing
            lines.append(
                f"{name}: awaiting {list(routing.awaiting)}, drained {routing.drained}, paused {routing.paused}"
            )
            for channel, view in sorted(host.store.views.channels.by_id.items()):
                if channel < INNER:
                    ends = [
                        host.store.record(CopyRecord, ChannelId(channel)),
                        host.store.record(ReaderRecord, ChannelId(channel)),
                    ]
                    lines.append(f"  channel {channel}: {view.head} to {view.tail} cut {view.is_cut} {ends}")
        for name, machine in self.machines.items():
            pulling = machine.agent.remote_channels.pulling
            assert pulling is not None
            lines.append(f"{name} pulls: {pulling.problems} {pulling.refused}")
        return "\n".join(lines)

    # Checks

    def check_deployment(self) -> None:
        """What runs is what was decided, where it was decided; nothing is left over."""
        driver = self.loop.driver
        deployment = self.loop.deployer.deployment
        for name, host in self.hosts.items():
            mine = {f.id: f.version for f in deployment.fragments.values() if driver.site_of(f.id) == name}
            assert {f: i.version for f, i in host.routing.fragments.items()} == mine
            assert not host.routing.awaiting
            assert not host.routing.drained
            ends = {
                c.id
                for c in deployment.channels.values()
                if name in (driver.site_of(c.sender), driver.site_of(c.receiver))
            }
            assert {c for c in host.store.exchange.channels() if c < INNER} == ends
            assert {f for f in host.store.state.fragments() if f < AHEAD} <= set(mine)
            assert not host.store.records(PartRecord)
            assert not host.store.records(DrainedRecord)
            assert not host.store.records(DecidedRecord)
            assert not host.store.records(OverlapRecord)
