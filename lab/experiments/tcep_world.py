"""A road on which traffic changes over the day: real placements by the real mechanisms, simulated time and load.

Vehicles hand over between road-side units and send more in rush hours; the engine keeps the placement valid with each
query's mechanism. Only the effects of running are simulated: latency is that of the routes plus processing, which grows
with the load of a node, plus noise. Control bytes are counted from the messages of the mechanisms, from keeping the
cost space, and from state that moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.workloads import tcep as road
from meander.adapt.decisions import Transition, TransitionOutcome
from meander.adapt.measures import EnvironmentMeasures, Measures, QueryMeasures, channels_of
from meander.adapt.mechanism_forecasts import CatalogForesight
from meander.adapt.per_query import PerQuery, assign, place_again
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded, RateChanged
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import STATEFUL
from meander.model.plan import Query
from meander.model.topology.elements import Link, NodeKind
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine
from meander.place.free_capacity import Room
from meander.place.mechanisms.base import Mechanism
from meander.place.mechanisms.search.message_counts import Message
from meander.place.mechanisms.search.snap import load_share
from meander.place.problem import Problem, Proposal

MINUTE_MS = 60_000
RESULTS = 20
"""Results whose latency is drawn in each round."""
PROCESSING_MS = {NodeKind.SENSOR: 3.0, NodeKind.EDGE: 1.0, NodeKind.CLOUD: 0.3}
STATE_S = 1.0
"""Seconds of input that a stateful operator holds, by its window."""


@dataclass(frozen=True, slots=True)
class DayTraffic:
    """The traffic of a part of the day."""

    rate_tps: float
    handovers_per_minute: float
    """Of one vehicle."""


CALM, RUSH = DayTraffic(1.0, 0.0), DayTraffic(2.0, 0.25)


class Counting(PerQuery):
    """Per-query mechanisms that remember what each query's placements cost."""

    def __init__(self, library: Mapping[str, Mechanism], fallback: str) -> None:
        super().__init__(library, fallback)
        self.owner: dict[OperatorId, QueryId] = {}
        self.sent: dict[QueryId, float] = {}

    def place(self, problem: Problem) -> Proposal:
        found = super().place(problem)
        owners = [self.owner[o] for o in problem.free if o in self.owner]
        for query in owners:
            self.sent[query] = self.sent.get(query, 0.0) + found.bytes / len(owners)
        return found


@dataclass
class RoadWorld:
    """Queries on the road. `advance` plays one round; transitions that were started take effect at its begin."""

    queries: Sequence[Query]
    library: Mapping[str, Mechanism]
    first: Mapping[QueryId, str]
    seed: int = 0
    catalog: Catalog = field(init=False)
    engine: Engine = field(init=False)
    foresight: CatalogForesight = field(init=False)
    unplaced: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.catalog = Catalog(road.topology(), road.streams(), dict(road.SINKS), rules=0)
        self.counting = Counting(self.library, "bottom_up" if "bottom_up" in self.library else next(iter(self.library)))
        self.engine = Engine(self.catalog, self.counting, seed=self.seed)
        self.foresight = CatalogForesight(self.catalog, self.library, seed=self.seed)
        self.at = dict(road.vehicles())
        self.traffic = DayTraffic(1.0, 0.0)
        self.rng = np.random.default_rng(self.seed)
        self._started: list[Transition] = []
        self._ended: dict[QueryId, TransitionOutcome] = {}
        self._space_messages = 0
        self.engine.run([QueryAdded(0, query) for query in self.queries])
        for query in self.queries:
            self._own(query.id)
            place_again(self.engine, query.id, self.first[query.id])
        self.counting.sent.clear()

    def _own(self, query: QueryId) -> None:
        for operator in self.catalog.plan.serving(query):
            self.counting.owner.setdefault(operator, query)

    # ---------------------------------------------------------------- executor

    def start(self, transition: Transition) -> None:
        self._started.append(transition)

    def poll(self) -> Mapping[QueryId, TransitionOutcome]:
        ended, self._ended = self._ended, {}
        return ended

    def _carry_out(self) -> None:
        started, self._started = self._started, []
        for transition in started:
            before = self.counting.sent.get(transition.query, 0.0)
            report = place_again(self.engine, transition.query, transition.target)
            self._charge_state(report)
            spent = self.counting.sent.get(transition.query, 0.0) - before
            self._ended[transition.query] = TransitionOutcome(
                not report.unplaced, "not all of it was placed", 1.0, spent
            )
            if report.unplaced:
                assign(self.engine, transition.query, transition.source)

    # ---------------------------------------------------------------- a round

    def advance(self, at_ms: int, span_ms: int, traffic: DayTraffic) -> Measures:
        """All events up to `at_ms`, and their measures."""
        self._carry_out()
        events, handovers = self._events(at_ms, span_ms, traffic)
        report = self.engine.run(events) if events else BatchReport(0)
        self._charge_state(report)
        self._charge_space()
        self.unplaced = sum(o not in self.catalog.placement.nodes for o in self.catalog.plan.operators)
        sent, self.counting.sent = self.counting.sent, {}
        loads = self._loads()
        tuples = int(len(self.catalog.streams) * traffic.rate_tps * span_ms / 1000)
        world = EnvironmentMeasures(0, handovers, len(self.at), tuples)
        return Measures(
            at_ms, span_ms, {q.id: self._seen(q.id, span_ms, loads, sent) for q in self.queries}, loads, world
        )

    def _events(self, at_ms: int, span_ms: int, traffic: DayTraffic) -> tuple[list[ChangeEvent], int]:
        events: list[ChangeEvent] = []
        if traffic.rate_tps != self.traffic.rate_tps:
            events += [RateChanged(at_ms, stream, traffic.rate_tps) for stream in self.catalog.streams]
        self.traffic = traffic
        steps = self.rng.poisson(traffic.handovers_per_minute * span_ms / MINUTE_MS, len(self.at))
        for vehicle, passed in zip(list(self.at), steps.tolist(), strict=True):
            unit = int(self.at[vehicle].removeprefix("rsu-"))
            onward = f"rsu-{(unit - 1 + passed) % road.UNITS + 1}"
            if onward != self.at[vehicle]:
                events.append(LinkRemoved(at_ms, vehicle, self.at[vehicle]))
                events.append(LinkAdded(at_ms, Link(vehicle, onward, 5.0, 5.0)))
                self.at[vehicle] = onward
        return events, int(steps.sum())

    def _charge_state(self, report: BatchReport) -> None:
        """State of operators that moved, once over each."""
        plan = self.catalog.plan
        for move in report.moves:
            if move.source is None or move.target is None or not isinstance(plan[move.operator].spec, STATEFUL):
                continue
            record = plan[move.operator]
            held = sum(plan[i].rate_tps * plan[i].row_bytes for i in record.inputs) * STATE_S
            query = self.counting.owner[move.operator]
            self.counting.sent[query] = self.counting.sent.get(query, 0.0) + held

    def _charge_space(self) -> None:
        """Measurements for the cost space, shared by the queries whose mechanism needs it."""
        space = self.catalog.space
        if space is None:
            self._space_messages = 0
            return
        fresh, self._space_messages = space.messages - self._space_messages, space.messages
        users = {
            self.counting.owner[o]
            for o, name in self.counting.by_operator.items()
            if o in self.counting.owner and self.library[name].metadata.needs_cost_space
        }
        for query in users:
            share = max(fresh, 0) * int(Message.COORDINATE) / len(users)
            self.counting.sent[query] = self.counting.sent.get(query, 0.0) + share

    def _loads(self) -> dict[NodeId, float]:
        room = Room(self.catalog.ledger)
        return {node: load_share(room, node) for node in self.catalog.on_node}

    def _seen(
        self, query: QueryId, span_ms: int, loads: Mapping[NodeId, float], sent: Mapping[QueryId, float]
    ) -> QueryMeasures:
        plan, placed = self.catalog.plan, self.catalog.placement.nodes
        channels = channels_of(plan, self.catalog.placement, query, span_ms)
        nodes = frozenset(placed[o] for o in plan.serving(query) if plan[o].pin is None and o in placed)
        latency = self._latency_ms(query)
        drawn = latency * self.rng.lognormal(0.0, 0.03, RESULTS) if latency < float("inf") else ()
        results = {road.SINK: RESULTS if len(drawn) else 0}
        return QueryMeasures([float(ms) for ms in drawn], results, channels, sent.get(query, 0.0), nodes)

    def _latency_ms(self, query: QueryId) -> float:
        """The slowest way to a sink: routes, and processing that takes longer on busy nodes."""
        plan, placement = self.catalog.plan, self.catalog.placement
        when: dict[OperatorId, float] = {}
        serving = plan.serving(query)
        if any(o not in placement.nodes for o in serving):
            return float("inf")
        for operator in sorted(serving):  # operators are numbered inputs first
            arrived = [
                when[i] + (route.latency_ms if (route := placement.routes.get((i, operator))) else 0.0)
                for i in plan[operator].inputs
            ]
            when[operator] = max(arrived, default=0.0) + self._processing_ms(placement.nodes[operator], operator)
        return max(when[sink] for sink in plan.query(query).sinks)

    def _processing_ms(self, node: NodeId, operator: OperatorId) -> float:
        if not self.catalog.plan[operator].slots:
            return 0.0
        nodes, ledger = self.catalog.topology.nodes, self.catalog.ledger
        busy = float(ledger.load_tps[node]) / float(nodes.capacity_tps[node])
        return PROCESSING_MS[NodeKind(int(nodes.kind[node]))] / (1 - min(busy, 0.95))
