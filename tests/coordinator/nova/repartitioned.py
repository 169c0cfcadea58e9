"""Joins cut into parts on a data plane whose infrastructure moves: random cuts, and a plane that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from meander.coordinator.nova.repartitioning import Repartitioning
from meander.lang import sql
from meander.model.events import ChangeEvent, PlacementChanged
from meander.model.ids import NodeId
from meander.model.plan import Query
from meander.place.nova.queries.join_parts import JoinPart
from meander.place.nova.queries.shape import shape_of
from meander.place.nova.queries.split import Slots, slots_of
from meander.place.nova.queries.wiring import Wiring
from meander.run.execution.runner import Runner
from tests.reconfigure.moving import MovingPlane
from tests.run.harness import SINKS, STREAMS

JOINS = {
    "tumbling": "CREATE QUERY wet AS SELECT cars.id, cars.speed, rain.mm FROM cars JOIN rain ON cars.road = rain.road "
    "WINDOW TUMBLING(2 s) WHERE cars.speed > 5 INTO two;",
    "sliding": "CREATE QUERY wet AS SELECT cars.id, rain.mm FROM cars JOIN rain ON cars.road = rain.road "
    "WINDOW SLIDING(2 s, 1 s) INTO two;",
    "within": "CREATE QUERY wet AS SELECT cars.id, rain.mm FROM cars JOIN rain ON cars.road = rain.road "
    "AND cars.speed > rain.mm WITHIN 1 s INTO two;",
}
OTHER = "CREATE QUERY fast AS SELECT id, speed FROM cars WHERE speed > 10 INTO one;"
HOSTS = ("e0", "e1", "e2", "cloud")


def query(text: str) -> Query:
    return next(iter(sql(text, STREAMS, SINKS).queries))


def cut(rng: np.random.Generator, depth: int = 2) -> list[tuple[Slots, Slots]]:
    """A random cut of all cells into rectangles, at quarters: so plans repeat, which is faster."""
    found: list[tuple[Slots, Slots]] = []
    stack = [((0, 4), (0, 4), depth)]
    while stack:
        left, right, more = stack.pop()
        side = left if rng.random() < 0.5 else right
        if not more or rng.random() < 0.3 or side[1] - side[0] < 2:
            found.append((slots_of(range(*left), 4), slots_of(range(*right), 4)))
            continue
        at = int(rng.integers(side[0] + 1, side[1]))
        pieces = ((side[0], at), (at, side[1]))
        stack += [(p, right, more - 1) if side is left else (left, p, more - 1) for p in pieces]
    return found


class PartedPlane(MovingPlane):
    """A plane with one join that is cut into parts, beside a query that is not."""

    def __init__(self, directory: Path, spark: SparkSession, runner: Runner, text: str, rng: np.random.Generator):
        super().__init__(directory, spark, runner, OTHER, slots=1, disorder_ms=300)
        parted = query(text)
        self.wiring = Wiring(self.catalog, self.engine.log, shape_of(parted, STREAMS, SINKS))
        self.repartitioning = Repartitioning(self.loop, self.wiring)
        self.repartitioning.start(self.random_parts(rng))
        self.wanted.append(parted)
        while self.loop.deployer.has_open_changes:
            self.poll()
            self.step()

    def random_parts(self, rng: np.random.Generator) -> list[JoinPart]:
        hosts = [self.catalog.topology.known_id(n) for n in HOSTS if n not in self.away]
        lefts = len(self.wiring.shape.left.nodes)
        return [
            JoinPart(left, lefts, one, other, NodeId(int(rng.choice(hosts))))
            for left in range(lefts)
            for one, other in cut(rng)
        ]

    def crash(self) -> None:
        super().crash()
        self.repartitioning = Repartitioning(self.loop, self.wiring)

    def recut(self, rng: np.random.Generator, events: Sequence[ChangeEvent] = ()) -> None:
        """Another cut, or the same one on other nodes."""
        hosts = [self.catalog.topology.known_id(n) for n in HOSTS if n not in self.away]
        match int(rng.integers(0, 3)):
            case 0:
                parts = [replace(p, node=NodeId(int(rng.choice(hosts)))) for p in self.wiring.active]
            case 1:
                stay = [p.node if p.node in hosts else self.wiring.sink_node for p in self.wiring.active]
                parts = [replace(p, node=n) for p, n in zip(self.wiring.active, stay, strict=True)]
            case _:
                parts = self.random_parts(rng)
        self.repartitioning.apply(events, parts, "random cut")

    def poll(self) -> None:
        super().poll()
        if hasattr(self, "repartitioning"):
            self.repartitioning.poll()

    def mend(self, rng: np.random.Generator) -> None:
        super().mend(rng)
        self.recut(rng)

    def random_events(self, rng: np.random.Generator) -> Sequence[ChangeEvent]:
        events = super().random_events(rng)
        return [e for e in events if not isinstance(e, PlacementChanged)]
