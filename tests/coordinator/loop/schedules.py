"""A schedule: events, tuples, steps, pauses and restarts in any order, with what must be true after each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from meander.lang.event_file import dump_events
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded, QueryRemoved
from meander.model.ids import QueryId
from meander.model.plan import Query
from meander.place.amenders.concurrency_control import CONTROLS
from meander.place.engine import WORTH_SHARING
from meander.run.execution.runner import Runner
from meander.run.store.records.deployment import ChannelRecord, FragmentRecord
from tests.coordinator.loop.catalog_checks import catalog_faults
from tests.coordinator.loop.deployment_checks import deployment_faults, host_faults, step_faults
from tests.coordinator.loop.ground import FOGS, INTO, PASSING, Ground
from tests.coordinator.loop.moves import MOST_QUERIES, Moves
from tests.coordinator.loop.reasons import reason_faults, stuck_faults
from tests.coordinator.loop.world import LONG_MS, NO_SPARK, LoopWorld, ServiceWorld, Setting

MECHANISMS = ("bottom_up", "bottom_up", "top_down", "random", "mdcep", "producer_consumer")

ALL_MECHANISMS = (*dict.fromkeys(MECHANISMS), "ilp", "global_optimal", "relaxation", "mopa")
WIDE_QUERIES = 8

SERVICE_SHARE = 0.15
"""How many schedules play with the service's ledger: it takes twice as long."""


class Schedule:
    """One world, and the queries that have seen every tuple."""

    def __init__(
        self,
        world: LoopWorld,
        rng: np.random.Generator,
        most_queries: int = MOST_QUERIES,
    ) -> None:
        self.world, self.rng, self.moves = world, rng, Moves(world, rng, most_queries)
        self.residents: dict[QueryId, QueryAdded] = {}
        """Queries that ran completely before the first tuple entered."""
        self.log: list[str] = []
        """What happened, for whoever has to find out why a check failed."""
        self.stuck: list[str] = []
        """Operators that waited although they could have run."""
        self.crashes = self.refused = self.waited = self.blocked = self.exact = 0

    @staticmethod
    def drawn(
        directory: Path, seed: int, *, runner: Runner | None = None, spark: SparkSession = NO_SPARK, moments: int = 6
    ) -> Schedule:
        """Plays a whole schedule, from its first query to the last one that goes."""
        rng = np.random.default_rng(seed)
        setting = Setting(
            mechanism=str(rng.choice(MECHANISMS)),
            slots=1 + int(rng.random() < 0.3),
            replicas=int(rng.random() < 0.9),
        )
        kind = ServiceWorld if rng.random() < SERVICE_SHARE else LoopWorld
        ground = Ground.drawn(rng)
        if not ground.is_thin:  # state that moves over a thin link takes real time
            setting = replace(setting, emulated=bool(rng.random() < 0.3))
        world = kind(directory, ground, setting, runner=runner, spark=spark)
        return Schedule(world, rng)._played(moments)

    @staticmethod
    def wide(directory: Path, seed: int, *, moments: int = 8) -> Schedule:
        """As drawn, with more nodes and queries, little memory, every mechanism, and amenders that work at once."""
        rng = np.random.default_rng(seed)
        setting = Setting(
            mechanism=str(rng.choice(ALL_MECHANISMS)),
            slots=1 + int(rng.random() < 0.3),
            replicas=int(rng.random() < 0.9),
            amenders=int(rng.integers(1, 4)),
            control=str(rng.choice(list(CONTROLS))),
            worth_sharing=int(rng.choice([2, WORTH_SHARING])),
        )
        kind = ServiceWorld if rng.random() < SERVICE_SHARE else LoopWorld
        world = kind(directory, Ground.wide(rng), setting)
        return Schedule(world, rng, WIDE_QUERIES)._played(moments)

    @staticmethod
    def parted(directory: Path, seed: int, *, moments: int = 8) -> Schedule:
        """As drawn, with joins that Nova places on nodes that can take in little, and sensors less than their stream,
        beside other queries."""
        rng = np.random.default_rng(seed)
        setting = Setting(slots=1 + int(rng.random() < 0.3), replicas=int(rng.random() < 0.9), nova=True)
        kind = ServiceWorld if rng.random() < 0.4 else LoopWorld
        ground = Ground.drawn(rng)
        takes = {n: float(rng.choice([11.0, 25.0, 60.0])) for n in (*FOGS, "hub", "cloud")}
        nodes = tuple(replace(n, capacity_tps=takes.get(n.name, 5.0)) for n in ground.nodes)
        return Schedule(kind(directory, replace(ground, nodes=nodes), setting), rng)._played(moments)

    def _played(self, moments: int) -> Schedule:
        try:
            self.play(moments)
        except Exception as error:
            error.add_note("\n".join(self.log))
            raise
        finally:
            self.world.close()
        return self

    def play(self, moments: int) -> None:
        self.first_queries()
        for _ in range(moments):
            self.moment()
        self.come_to_rest()
        self.mend()
        self.remove_everything()

    # ---------------------------------------------------------------- beginning

    def first_queries(self) -> None:
        count = int(self.rng.integers(1, 4))
        chosen = [(self.moves.any_body(), INTO[int(self.rng.integers(len(INTO)))]) for _ in range(count)]
        events = [self.moves.added(body, into) for body, into in chosen]
        self.apply(events)
        self.world.settle()
        placed = self.world.catalog.placement.nodes
        for event in events:
            if event.query.id in self.world.catalog.plan.queries and all(
                o in placed for o in self.world.catalog.plan.serving(event.query.id)
            ):
                self.residents[event.query.id] = event

    # ---------------------------------------------------------------- moments

    def moment(self) -> None:
        rng, world = self.rng, self.world
        if rng.random() < 0.5:
            world.feed(rng)
        if rng.random() < 0.8:
            self.change()
        if rng.random() < 0.08:
            self.pause()
        for slot in range(world.setting.slots):
            if rng.random() < 0.6:
                self.step(slot)
        if rng.random() < 0.6:
            self.poll()
        if rng.random() < 0.1:
            self.crash()
        if rng.random() < 0.05:
            self.note("time passes")
            world.clock.now_ms += LONG_MS

    def change(self) -> None:
        """A batch of events: begun at once, begun later, or followed by the end of the process."""
        events = self.moves.drawn()
        fate = self.rng.random()
        if fate < 0.8:
            self.apply(events)
        elif fate < 0.9 or not isinstance(self.world, ServiceWorld):
            self.apply(events, begins=False)
            if self.rng.random() < 0.5:
                self.crash()
        else:
            self.accept(events)

    def apply(self, events: Iterable[ChangeEvent], *, begins: bool = True) -> None:
        batch = list(events)
        self.note(f"{'apply' if begins else 'decide'} {self._shown(batch)}")
        try:
            self.world.decide(*batch)
        except InputError as error:
            self.note(f"refused: {error}")
            self.refused += 1
        else:
            self._gone(batch)
        if begins:
            self.world.begin()
        self.check()

    def accept(self, events: Iterable[ChangeEvent]) -> None:
        """The process ends after it has promised to do something."""
        batch = list(events)
        assert isinstance(self.world, ServiceWorld)
        with suppress(InputError):
            self.world.admit(*batch)
            self.note(f"accept {self._shown(batch)} and end")
            self._gone(batch)
            self.crashes += 1
            self.world.accept(*batch)
            self.check()

    def _gone(self, batch: Iterable[ChangeEvent]) -> None:
        for event in batch:
            if isinstance(event, QueryRemoved):
                self.residents.pop(event.query, None)

    def step(self, slot: int | None = None) -> None:
        self.note("step" if slot is None else f"step {slot}")
        self.world.step(slot)
        self.check_host()

    def poll(self) -> None:
        self.note("poll")
        self.world.poll()
        self.check_host()

    def pause(self) -> None:
        """A fragment stops as if data had broken an expression, or all such go on."""
        fragments = list(self.world.host.routing.fragments)
        if fragments and self.rng.random() < 0.6:
            fragment = fragments[int(self.rng.integers(len(fragments)))]
            self.note(f"pause {fragment}")
            self.world.pause(fragment)
        else:
            self.resume()

    def resume(self) -> None:
        self.note("resume")
        self.world.resume()

    def crash(self) -> None:
        self.note("crash")
        self.crashes += 1
        self.world.crash()
        self.check()

    def note(self, what: str) -> None:
        self.log.append(what)

    def _shown(self, batch: Iterable[ChangeEvent]) -> str:
        return " ".join(line.strip() for line in dump_events(batch, self.world.texts))

    # ---------------------------------------------------------------- rest

    def come_to_rest(self) -> bool:
        """Whatever is under way ends; then all must be as the catalog says, and whoever waits does so for a reason.

        False if something cannot end, because the state of an operator has no way to where that is to be.
        """
        self.resume()
        self.apply([self.moves.again()])
        is_at_rest = self.world.settle()
        self.check()
        self.waited += sum(o not in self.world.catalog.placement.nodes for o in self.world.catalog.plan.operators)
        none_of(reason_faults(self.world.catalog))
        only_ends = self.world.setting.mechanism == "producer_consumer"
        self.stuck += stuck_faults(self.world.catalog, only_ends=only_ends)
        if is_at_rest:
            none_of([*deployment_faults(self.world), *host_faults(self.world)])
        else:
            self.blocked += 1
        return is_at_rest

    def mend(self) -> None:
        """Everything that went comes back; what came out is what should have, also of the last tuples."""
        self.apply(self.moves.returning())
        self.apply(self.moves.mending())
        if self.come_to_rest():
            self.world.feed(self.rng)
            self.world.end_streams()
            self.world.settle()
            self.check_results()

    def check(self) -> None:
        none_of(catalog_faults(self.world.catalog, self.world.engine.parted))
        self.check_host()

    def check_host(self) -> None:
        none_of(step_faults(self.world))
        if not self.world.decided:  # what was decided is noted at once, and its channels follow when it begins
            none_of([f"validate: {fault}" for fault in self.world.validate()])

    def check_results(self) -> None:
        """Queries that saw every tuple have given everything; others gave nothing twice and left nothing out."""
        catalog, results = self.world.catalog, self.world.results()
        for name, running in catalog.plan.queries.items():
            expected = self.world.tuples.expected(running.query)
            complete = all(o in catalog.placement.nodes for o in catalog.plan.serving(name))
            for sink, wanted in expected.items():
                given = results.get((name, sink), [])
                much, few = Counter(given), Counter(wanted)
                if name in self.residents and complete:
                    self.exact += 1
                    assert much == few, f"{name} into {sink}: missing {few - much}, too many {much - few}"
                elif _passes(name):
                    assert not much - few, f"{name} into {sink}: too many {much - few}"
                    if complete:
                        none_of([f"{name} into {sink}: {gap}" for gap in self._gaps(running.query, sink, much)])
                else:
                    assert max(much.values(), default=1) == 1, f"{name} into {sink}: twice {much}"

    def _gaps(self, query: Query, sink: str, given: Counter[tuple[Any, ...]]) -> list[str]:
        """Tuples that are missing although earlier ones of the same producer came out."""
        found = []
        for producer in self.world.tuples.entered:
            wanted = self.world.tuples.expected(query, producer)[sink]
            came = [row in given for row in wanted]
            if False in came[came.index(True) if True in came else len(came) :]:
                missing = [row for row, there in zip(wanted, came, strict=True) if not there]
                found.append(f"of {producer} {missing} are missing among {wanted}")
        return found

    def remove_everything(self) -> None:
        """With the last query everything is gone that came with queries."""
        names = list(self.world.catalog.plan.queries)
        self.rng.shuffle(names)
        half = len(names) // 2
        for part in (names[:half], names[half:]):
            self.apply([QueryRemoved(0, QueryId(n)) for n in part])
            if self.rng.random() < 0.3:
                self.crash()
        assert self.come_to_rest()
        none_of(leftovers(self.world))


def none_of(faults: list[str]) -> None:
    """Nothing may be wrong; otherwise the test says all that is."""
    if faults:
        raise AssertionError("\n".join(faults))


def _passes(name: str) -> bool:
    return name.rstrip("0123456789") in PASSING


def leftovers(world: LoopWorld) -> list[str]:
    """What is left where nothing should be."""
    catalog, host, loop = world.catalog, world.host, world.loop
    kept = {
        "operators": catalog.plan.operators,
        "shared plans": catalog.plan.plans,
        "placements": catalog.placement.nodes,
        "routes": catalog.placement.routes,
        "operators to be shared": catalog.running,
        "slots in use": np.flatnonzero(catalog.ledger.slots).tolist(),
        "tuples/s in use": np.flatnonzero(catalog.ledger.load_tps).tolist(),
        "Mbit/s in use": np.flatnonzero(catalog.ledger.mbps).tolist(),
        "entries that wait": world.engine.log.waiting,
        "fragments": loop.deployer.deployment.fragments,
        "channels": loop.deployer.deployment.channels,
        "owners": loop.deployer.deployment.owner,
        "fragments on the host": host.routing.fragments,
        "channels in the store": host.store.exchange.channels(),
        "state": host.store.state.fragments(),
        "streams that are fed": host.feeding.channels,
        "what ran": catalog.plan.former,
        "records of fragments": host.store.records(FragmentRecord),
        "records of channels": host.store.records(ChannelRecord),
        "held": loop.deployer.placed.held,
        "looked after": loop.deployer._loose,
    }
    return [f"{what}: {value}" for what, value in kept.items() if value]
