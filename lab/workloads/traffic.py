"""Traffic: vehicles on a grid of roads that follow each other, brake, queue and turn; and 150 queries about them.

Car following is the Intelligent Driver Model (Treiber, Hennecke, Helbing 2000): a vehicle accelerates towards the speed
it likes and brakes for the one in front. Junctions let one direction go at a time, so queues grow and dissolve as waves
that run against the traffic; turns prefer the centre, so some districts are crowded and others are not. All vehicles
are columns; a moment of 40 ms is a handful of array operations. The number of vehicles is constant or ramps up as in a
morning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from meander.lang import sql
from meander.lang.topology.reader import TopologyFile
from meander.model.plan import Query
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.run.frames import arrow_schema

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATE_HZ = 25
TICK_MS = 1000 // RATE_HZ
LANES = 2
ROAD_M = 300.0
VEHICLE_M = 5.0
SCHEMA = Schema.of(ts="timestamp", id="bigint", x="double", y="double", speed="double", acc="double", lane="bigint")
"""The report of a vehicle, 25 times a second; lanes are numbered over all roads, so the road is lane / 2."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """Parameters of car following."""

    speed_mps: float = 15.0
    headway_s: float = 1.3
    standstill_m: float = 2.0
    acceleration: float = 1.4
    braking: float = 2.0
    green_s: float = 12.0
    """The time for which a junction lets one direction go."""
    pull: float = 1.5
    """The preference for turns towards the centre."""


class Traffic:
    """The same seed gives the same traffic. `ramp_s`: the number of vehicles grows to its full size in that time."""

    def __init__(
        self,
        vehicles: int,
        seed: int = 0,
        *,
        grid: int = 8,
        ramp_s: float | None = None,
        drivers: Drivers | None = None,
    ) -> None:
        self.grid, self.ramp_s, self.drivers = grid, ramp_s, drivers or Drivers()
        self._rng = np.random.default_rng(seed)
        self.starts, self.ends = _roads(grid)
        """Junctions at both ends of each road."""
        self._following, self._chances = _turns(self.starts, self.ends, grid, self.drivers.pull)
        roads = len(self.starts)
        self.ticks = 0
        self.road: Ints = self._rng.integers(0, roads, vehicles)
        self.lane: Ints = self._rng.integers(0, LANES, vehicles)
        self.at_m: Floats = self._rng.random(vehicles) * (ROAD_M - VEHICLE_M)
        self.speed: Floats = self._rng.random(vehicles) * 5
        self.acc: Floats = np.zeros(vehicles)
        self.likes: Floats = self.drivers.speed_mps * (0.8 + 0.4 * self._rng.random(vehicles))
        self.next: Ints = self._turn(self.road)

    @property
    def active(self) -> int:
        """Vehicles on the road now."""
        if self.ramp_s is None:
            return self.road.size
        grown = min(1.0, 0.1 + 0.9 * self.ticks / RATE_HZ / self.ramp_s)
        return max(1, round(grown * self.road.size))

    def tick(self) -> None:
        """40 ms pass."""
        n, d, dt = self.active, self.drivers, 1 / RATE_HZ
        road, lane, at, speed = self.road[:n], self.lane[:n], self.at_m[:n], self.speed[:n]
        gap, ahead = self._ahead(road * LANES + lane, at, speed, self.next[:n] * LANES + lane)
        closing = speed * (speed - ahead) / (2 * np.sqrt(d.acceleration * d.braking))
        wanted = d.standstill_m + np.maximum(0.0, speed * d.headway_s + closing)
        acc = d.acceleration * (1 - (speed / self.likes[:n]) ** 4 - (wanted / np.maximum(gap, 0.5)) ** 2)
        acc = np.clip(acc, -9.0, d.acceleration)
        faster = np.maximum(0.0, speed + acc * dt)
        self.acc[:n] = (faster - speed) / dt
        self.speed[:n] = faster
        at += np.minimum(faster * dt, np.maximum(gap - 0.5, 0.0))
        over = np.flatnonzero(at >= ROAD_M)
        if over.size:
            at[over] -= ROAD_M
            road[over] = self.next[over]
            self.next[over] = self._turn(road[over])
        self.ticks += 1

    def _ahead(self, lane: Ints, at: Floats, speed: Floats, then: Ints) -> tuple[Floats, Floats]:
        """Room to the vehicle in front, and its speed: a vehicle, the tail of the next road, or a red light."""
        order = np.lexsort((at, lane))
        lanes, places = lane[order], at[order]
        last = np.r_[lanes[1:] != lanes[:-1], True]
        gap, ahead = np.empty_like(at), np.empty_like(at)
        gap[order[:-1]] = places[1:] - places[:-1] - VEHICLE_M
        ahead[order[:-1]] = speed[order[1:]]
        first = np.r_[True, last[:-1]]
        tail = np.full(len(self.starts) * LANES, 2 * ROAD_M)
        tail_speed = np.full(tail.size, self.drivers.speed_mps)
        tail[lanes[first]], tail_speed[lanes[first]] = places[first], speed[order[first]]
        leading = order[last]
        gap[leading] = ROAD_M - at[leading] + tail[then[leading]] - VEHICLE_M
        ahead[leading] = tail_speed[then[leading]]
        red = leading[~self._is_green(lane[leading] // LANES)]
        gap[red], ahead[red] = ROAD_M - at[red], 0.0
        return np.maximum(gap, 0.0), ahead

    def _is_green(self, road: Ints) -> NDArray[np.bool_]:
        """Junctions let east-west and north-south go in turns, not all at the same time."""
        across = np.abs(self.ends[road] - self.starts[road]) == 1
        phase = (self.ticks / RATE_HZ / self.drivers.green_s + 0.37 * self.ends[road]) % 2 < 1
        found: NDArray[np.bool_] = across == phase
        return found

    def _turn(self, road: Ints) -> Ints:
        """The road after this one, at random."""
        drawn = self._rng.random(road.size)[:, None]
        pick = (drawn > self._chances[road]).sum(axis=1)
        found: Ints = self._following[road, np.minimum(pick, self._following.shape[1] - 1)]
        return found

    def places(self) -> tuple[Floats, Floats]:
        """x and y of the vehicles that are on the road, in metres."""
        n = self.active
        along = self.at_m[:n] / ROAD_M
        start, end = self.starts[self.road[:n]], self.ends[self.road[:n]]
        x = start % self.grid + along * (end % self.grid - start % self.grid)
        y = start // self.grid + along * (end // self.grid - start // self.grid)
        return (x * ROAD_M).astype(np.float64), (y * ROAD_M).astype(np.float64)

    def tuples(self, at_ms: int) -> pa.Table:
        """The reports of all vehicles at this moment."""
        n = self.active
        x, y = self.places()
        times = pa.array(np.full(n, at_ms * 1000, np.int64)).cast(pa.timestamp("us", "UTC"))
        lane = self.road[:n] * LANES + self.lane[:n]
        columns = [times, np.arange(n), x, y, self.speed[:n], self.acc[:n], lane]
        return pa.table(columns, schema=arrow_schema(SCHEMA))

    def districts(self, count: int) -> Ints:
        """The district of each vehicle on the road: roads are dealt out in stripes of neighbours."""
        found: Ints = self.road[: self.active] * count // len(self.starts)
        return found


def _roads(grid: int) -> tuple[Ints, Ints]:
    """Both directions between all neighbouring junctions."""
    at = np.arange(grid * grid).reshape(grid, grid)
    pairs = np.concatenate(
        [np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1), np.stack([at[:-1].ravel(), at[1:].ravel()], 1)]
    )
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    return both[:, 0].astype(np.int64), both[:, 1].astype(np.int64)


def _turns(starts: Ints, ends: Ints, grid: int, pull: float) -> tuple[Ints, Floats]:
    """For each road the up to four that follow, and the running sum of their chances. There are no U-turns."""
    middle = (grid - 1) / 2

    def far(junctions: Ints) -> Floats:
        found: Floats = np.hypot(junctions % grid - middle, junctions // grid - middle)
        return found

    following = np.zeros((len(starts), 4), np.int64)
    chances = np.ones((len(starts), 4))
    for road in range(len(starts)):
        after = np.flatnonzero(starts == ends[road])
        ahead = after[ends[after] != starts[road]]
        weights = np.exp(pull * (far(ends[[road]]) - far(ends[ahead])) / 2)
        following[road, : len(ahead)] = ahead
        following[road, len(ahead) :] = ahead[-1]
        chances[road, : len(ahead)] = np.cumsum(weights / weights.sum())
    return following, chances


# ---------------------------------------------------------------- queries

KINDS = {
    "count": ("road", "count(*) AS n"),
    "average": ("road, speed", "avg(speed) AS mean"),
    "top": ("road, speed, id", "top_k(speed, 10) AS fastest"),
}
"""Three kinds of queries: columns of the first operator, and those of the second for each road."""
REPLICAS = 50
CENTRE = "centre"


def stream_of(kind: str, district: int) -> str:
    return f"{kind}_{district}"


def traffic_world(replicas: int = REPLICAS, window: str = "1 s") -> tuple[TopologyFile, list[Query]]:
    """Each kind once per district: a projection where the vehicles are, an aggregate in the centre.

    With 50 districts these are 150 queries of 300 operators, in 300 fragments beside sources and sinks.
    """
    names = [stream_of(kind, i) for i in range(replicas) for kind in KINDS]
    nodes = [*(Node(f"at {n}", NodeKind.SENSOR, 1) for n in names), Node(CENTRE, NodeKind.CLOUD, 10_000)]
    links = [Link(f"at {n}", CENTRE, 1) for n in names]
    streams = {n: Stream(n, SCHEMA, "ts", (f"at {n}",), rate_tps=RATE_HZ) for n in names}
    sinks = {"out": SinkTarget("out", CENTRE, {"connector": "memory", "event_time": "true"})}
    text = "\n".join(
        f"CREATE QUERY {stream_of(kind, i)} AS SELECT road, {aggregate} "
        f"FROM (SELECT ts, floor(lane / {LANES}) AS {columns} FROM {stream_of(kind, i)}) AS t "
        f"GROUP BY road WINDOW TUMBLING(ts, {window}) INTO out;"
        for i in range(replicas)
        for kind, (columns, aggregate) in KINDS.items()
    )
    file = TopologyFile(Topology.of(nodes, links), streams, sinks)
    return file, list(sql(text, streams, sinks).queries)
