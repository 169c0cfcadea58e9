"""Foresight: the qualities of a query under another mechanism, from the mechanism itself, on the catalog as it is.

The mechanism drafts a placement of the query's operators, with all other operators left alone; nothing is changed.
Mechanisms are not trusted: one that raises or takes too long gives a `Refusal` with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from meander.model.demands import Metric
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.placement import mbps
from meander.model.plan import topological_order
from meander.place.amenders.amendment import AmendmentDraft, draft
from meander.place.catalog import Catalog
from meander.place.changelog import Delta
from meander.place.costspace.build import build
from meander.place.costspace.space import CostSpace
from meander.place.free_capacity import Room
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.search.snap import load_share
from meander.place.node_costs import node_costs
from meander.place.placement_qualities import predict
from meander.place.problem import Flow, Need, Problem

TIME_LIMIT_S = 5.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Forecast:
    """A placement of a query that a mechanism would make, and its predicted values in base units."""

    values: Mapping[Metric, float]
    nodes: Mapping[OperatorId, NodeId] = field(default_factory=dict)
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """No forecast. When the mechanism is at fault, it is to be quarantined."""

    reason: str
    fault: bool = False


class Foresight(Protocol):
    """The loop's view of placing, and nothing more."""

    def mechanisms(self, query: QueryId) -> Mapping[str, Metadata]:
        """Mechanisms that can take this query, in the order people should try them."""

    def now(self, query: QueryId) -> Forecast:
        """The same prediction for where the query runs at present."""

    def forecast(self, query: QueryId, mechanism: str) -> Forecast | Refusal:
        """The forecast for the query."""

    def sharing(self, query: QueryId) -> frozenset[QueryId]:
        """Other queries with which it shares operators that can move."""


def within(limit_s: float, function: Callable[[], _T]) -> _T:
    """The function's result; TimeoutError when it takes longer. A thread that is too slow is left to end by itself."""
    result: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as error:  # handed to the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="forecast", daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not result:
        raise TimeoutError(f"took more than {limit_s:g} s")
    return result[0]


class CatalogForesight:
    """Foresight on a catalog, which it only reads.

    The catalog's cost space is used when there is one, as its owner keeps it up to date. Otherwise one is built, and
    built again when the topology has changed.
    """

    def __init__(
        self, catalog: Catalog, library: Mapping[str, Mechanism], *, seed: int = 0, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        self.catalog, self.library = catalog, library
        self.seed, self.time_limit_s = seed, time_limit_s
        self._space: tuple[int, CostSpace] | None = None

    def mechanisms(self, query: QueryId) -> Mapping[str, Metadata]:
        free = len(self._movable(query))
        return {
            name: m.metadata
            for name, m in self.library.items()
            if m.metadata.most_operators is None or free <= m.metadata.most_operators
        }

    def sharing(self, query: QueryId) -> frozenset[QueryId]:
        """Found by walking from shared operators to the sinks above them."""
        plan = self.catalog.plan
        own = set(plan.serving(query))
        stack = [r for o in self._movable(query) for r in plan[o].readers if r not in own]
        above: set[OperatorId] = set()
        while stack:
            operator = stack.pop()
            if operator not in above:
                above.add(operator)
                stack.extend(plan[operator].readers)
        return frozenset(q for q, running in plan.queries.items() if above & set(running.sinks))

    def now(self, query: QueryId) -> Forecast:
        nodes = {o: n for o in self._movable(query) if (n := self.catalog.placement.nodes.get(o)) is not None}
        return Forecast(self._values(query, nodes, Room(self.catalog.ledger), None), nodes)

    def forecast(self, query: QueryId, mechanism: str) -> Forecast | Refusal:
        chosen, movable = self.library[mechanism], self._movable(query)
        if not movable:
            return Refusal("the query has no operator that can move")
        try:
            result = within(self.time_limit_s, lambda: self._draft(chosen, movable))
        except Exception as error:  # a mechanism that breaks must not take the loop with it
            return Refusal(f"mechanism {mechanism} failed: {error}", fault=True)
        if result.unplaced or result.unrouted:
            reason = next(iter((*result.unplaced.values(), *result.unrouted.values())))
            return Refusal(f"mechanism {mechanism} cannot place all of it: {reason}")
        moves = sum(self.catalog.placement.nodes.get(o) != n for o, n in result.nodes.items())
        return Forecast(self._values(query, result.nodes, result.room, result), result.nodes, moves)

    def _movable(self, query: QueryId) -> list[OperatorId]:
        """Operators of the query that no pin holds, inputs first: none while they replace others, all or nothing."""
        plan = self.catalog.plan
        if query in plan.replacing:
            return []
        free = {o for o in plan.serving(query) if plan[o].pin is None}
        return topological_order({o: [i for i in plan[o].inputs if i in free] for o in free})

    def _draft(self, mechanism: Mechanism, movable: list[OperatorId]) -> AmendmentDraft:
        catalog, plan = self.catalog, self.catalog.plan
        if mechanism.metadata.needs_cost_space and catalog.space is None:
            catalog = copy(catalog)
            catalog.space = self._own_space()
        inside = set(movable)
        border = dict.fromkeys(n for o in movable for n in plan.neighbours(o) if n not in inside)
        settled = tuple(o for o in border if plan[o].state is OperatorState.PLACED)
        delta = Delta(tuple(movable), (), settled, ("forecast",))
        return draft(catalog, delta, mechanism, Room(catalog.ledger), self.seed)

    def _own_space(self) -> CostSpace:
        version = self.catalog.topology.version
        if self._space is None or self._space[0] != version:
            self._space = version, build(self.catalog.topology)
        return self._space[1]

    def _values(
        self, query: QueryId, nodes: Mapping[OperatorId, NodeId], room: Room, drafted: AmendmentDraft | None
    ) -> dict[Metric, float]:
        plan, placed = self.catalog.plan, self.catalog.placement.nodes
        serving = plan.serving(query)
        flows = tuple(
            Flow(upstream, o, plan[upstream].rate_tps, mbps(plan[upstream]))
            for o in serving
            for upstream in dict.fromkeys(plan[o].inputs)
        )
        problem = Problem(
            free={o: Need(plan[o].slots, plan[o].load_tps) for o in serving if o in nodes},
            pinned={o: placed[o] for o in serving if o in placed and o not in nodes},
            flows=tuple(f for f in flows if _known(f, nodes, placed)),
            topology=self.catalog.topology,
            room=room,
        )
        found = predict(problem, nodes)
        costs = node_costs(self.catalog, {o: placed[o] for o in serving if o in placed} | dict(nodes))
        values = {
            Metric.LATENCY: found.latency_ms,
            Metric.HOPS: float(found.hops),
            Metric.NETWORK_USAGE: found.usage_bytes,
            Metric.ENERGY: costs.power_w,
            Metric.PRICE: costs.price_per_h,
            Metric.LOAD: max((load_share(room, n) for n in set(nodes.values())), default=0.0),
        }
        if drafted is not None and drafted.proposal is not None:
            values[Metric.OVERHEAD] = float(drafted.proposal.bytes)
        return values


def _known(flow: Flow, nodes: Mapping[OperatorId, NodeId], placed: Mapping[OperatorId, NodeId]) -> bool:
    return all(end in nodes or end in placed for end in (flow.upstream, flow.reader))
