"""The cases of the latency bench: three kinds of query at several rates, and joins that remember much."""

from __future__ import annotations

from dataclasses import dataclass

from meander.lang import sql
from meander.lang.topology.reader import TopologyFile
from meander.local.run_plan import LocalPlan, plan_queries
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Node, NodeKind
from meander.model.topology.graph import Topology

NODE = "here"
CARS = Schema.of(ts="timestamp", id="bigint", road="bigint", speed="double")
RAIN = Schema.of(ts="timestamp", id="bigint", mm="double")
WINDOW_MS = 200
JOIN_S = 10
MAP, AGGREGATE, JOIN = "filter+map", "window aggregate", "window join"
TEXTS = {
    MAP: "SELECT id, road, speed * 3.6 AS kmh FROM {0} WHERE speed > 10",
    AGGREGATE: f"""SELECT window_start, road, count(*) AS n, avg(speed) AS mean FROM {{0}}
      GROUP BY road WINDOW TUMBLING(ts, {WINDOW_MS} ms)""",
    JOIN: "SELECT a.id, a.speed, b.mm FROM {0} AS a JOIN {1} AS b ON a.id = b.id WITHIN {span} ms",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of query at a rate over all its streams; a join with its span."""

    kind: str
    rate_tps: int
    span_s: float = JOIN_S
    remembers: int | None = None

    @staticmethod
    def remembering(rows: int, rate_tps: int) -> Case:
        """A join whose span holds so many rows."""
        return Case(JOIN, rate_tps, rows / rate_tps, rows)

    @property
    def title(self) -> str:
        if self.remembers is not None:
            return f"{JOIN} of {self.remembers:,} rows at {self.rate_tps:,}/s"
        return f"{self.kind} at {self.rate_tps:,}/s"

    @property
    def slug(self) -> str:
        """A name in SQL."""
        return f"{self.kind.replace('+', '_').replace(' ', '_')}_{self.rate_tps}_{self.remembers or ''}"

    @property
    def streams(self) -> tuple[str, ...]:
        sides = ("cars", "rain") if self.kind == JOIN else ("cars",)
        return tuple(f"{side}_{self.slug}" for side in sides)

    @property
    def stream_tps(self) -> float:
        return self.rate_tps / len(self.streams)

    @property
    def keys(self) -> int:
        """So many that a tuple of a join meets about two."""
        return max(1000, int(self.stream_tps * self.span_s))

    @property
    def past_s(self) -> float:
        """Time before the beginning whose tuples are given first: until the state is as large as it stays."""
        return 3 * self.span_s if self.kind == JOIN else 1.0


@dataclass(frozen=True)
class LatencyWorld:
    """All cases as queries on one node, each with streams and a sink of its own."""

    file: TopologyFile
    plan: LocalPlan


def world(cases: list[Case]) -> LatencyWorld:
    streams: dict[str, Stream] = {}
    sinks: dict[str, SinkTarget] = {}
    statements = []
    for case in cases:
        for name in case.streams:
            schema = CARS if name.startswith("cars") else RAIN
            streams[name] = Stream(name, schema, "ts", (NODE,), case.stream_tps, {})
        sink = f"out_{case.slug}"
        sinks[sink] = SinkTarget(sink, NODE, {"connector": "memory", "event_time": "true"})
        text = TEXTS[case.kind].format(*case.streams, span=round(case.span_s * 1000))
        statements.append(f"CREATE QUERY {case.slug} AS {text} INTO {sink};")
    queries = sql("\n".join(statements), streams, sinks).queries
    file = TopologyFile(Topology.of([Node(NODE, NodeKind.CLOUD, 1000)], []), streams, sinks)
    return LatencyWorld(file, plan_queries(file, queries, "bottom_up"))
