"""Predictions of transitions on the running data plane: time, bytes and overlap of every protocol, and the best mix.

Moving with state takes as long as the state travels over its route; beginning beside takes until the windows that had
begun have ended. Both take some moments in which slots are between two steps; how long such a moment takes, and how far
watermarks are behind the clock, is learned from transitions that ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from meander.adapt.transition_prediction import AT_ONCE, BESIDE, WITH_STATE, PredictedMove, TransitionPrediction
from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.protocols.sms import limits, split
from meander.deploy.protocols.transitions import Itinerary, TransitionProtocol, mixed, transition_protocol
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.model.operators import STATEFUL

LEARNED = 0.3
"""The share of the last transition in what is learned."""
CONTROL_BYTES = 600
"""Of deployment contexts, confirmations and markers for an operator, before a transition was seen."""
CLOSE, CLOSE_S = 0.1, 0.05
"""Times that differ by less than this share, or so many seconds, count as equal: then fewer bytes win."""

Ends = Mapping[OperatorId, tuple[NodeId, NodeId]]
"""The nodes between which operators move."""


@dataclass(frozen=True, slots=True)
class SlowRoute:
    """Links that limit how fast something travels."""

    mbps: Mapping[int, float]
    """Bandwidth by link."""
    latency_s: float


def _slowest(route: SlowRoute) -> float | None:
    found = min(route.mbps.values(), default=math.inf)
    return None if math.isinf(found) else found


@dataclass(slots=True)
class TransitionPace:
    """Figures learned from transitions that ended."""

    phase_s: float = 0.15
    """How long it takes to have slots between two steps and to commit a part of a change."""
    behind_s: float = 0.0
    """How much later than the clock windows end."""
    control_bytes: float = float(CONTROL_BYTES)
    """Of an operator that moves."""

    def learn(self, prediction: TransitionPrediction, seconds: float, waiting_s: float, control: int) -> None:
        """Compares a prediction with what happened."""
        windows_s = prediction.overlap_s - (self.behind_s if prediction.overlap_s else 0.0)
        transfer_s = max((o.transfer_s for o in prediction.operators if o.way == WITH_STATE), default=0.0)
        if prediction.overlap_s:
            self.behind_s += LEARNED * (max(0.0, waiting_s - windows_s) - self.behind_s)
        if prediction.phases:
            phase_s = max(0.0, seconds - waiting_s - transfer_s) / prediction.phases
            self.phase_s += LEARNED * (phase_s - self.phase_s)
        if prediction.operators:
            self.control_bytes += LEARNED * (control / len(prediction.operators) - self.control_bytes)


@dataclass(slots=True)
class TransitionPredictor:
    """Looks at one loop, and changes nothing."""

    loop: PlacementLoop
    state_bytes: Callable[[FragmentId], int] | None = None
    """The size of a fragment's state, here or at a site; without it, that of fragments here."""
    pace: TransitionPace = field(default_factory=TransitionPace)

    def plan(self, protocol: TransitionProtocol, moves: Ends) -> tuple[Itinerary, TransitionPrediction]:
        """The steps of a transition by a protocol, and what they are predicted to take."""
        operators = {o: self._figures(o, *ends) for o, ends in moves.items()}
        routes = {o: self._slow_route(*ends) for o, ends in moves.items()}
        plan = self.loop.catalog.plan
        if not protocol.is_auto:
            itinerary = protocol.plan(plan, moves)
            return itinerary, self._predicted(protocol.name, itinerary, operators, routes)
        tried = [(i, self._predicted(protocol.name, i, operators, routes)) for i in self._mixes(operators)]
        soonest = min(prediction.seconds for _, prediction in tried)
        near = [(i, p) for i, p in tried if p.seconds <= max(soonest * (1 + CLOSE), soonest + CLOSE_S)]
        return min(near, key=lambda pair: (pair[1].bytes, pair[1].seconds))

    def _mixes(self, operators: Mapping[OperatorId, PredictedMove]) -> Iterator[Itinerary]:
        """From all that can begin beside to none: in each, those move with their state that gain most by it."""
        plan = self.loop.catalog.plan
        beside = [o for o in split(plan, operators)[0] if isinstance(plan[o].spec, STATEFUL)]
        beside.sort(key=lambda o: operators[o].transfer_s - (operators[o].window_s or 0.0))
        for count in range(len(beside) + 1):
            yield mixed(plan, operators, beside[:count])

    # ---------------------------------------------------------------- one operator

    def _figures(self, operator: OperatorId, source: NodeId, target: NodeId) -> PredictedMove:
        spec = self.loop.catalog.plan[operator].spec
        size = self._state_of(operator) if isinstance(spec, STATEFUL) else 0
        route = self._slow_route(source, target)
        mbps = None if route is None else _slowest(route)
        transfer_s = self._travel_s([(size, route)])
        window_s = self._window_s([operator]) if isinstance(spec, STATEFUL) else 0.0
        return PredictedMove(operator, type(spec).__name__, AT_ONCE, size, mbps, transfer_s, window_s)

    def _state_of(self, operator: OperatorId) -> int:
        """Its share of the state of its fragment."""
        deployment, plan = self.loop.deployer.deployment, self.loop.catalog.plan
        owner = deployment.owner.get(operator)
        if owner is None:
            return 0
        own = self.loop.host.store.state.size(owner).bytes
        size = own or (self.state_bytes(owner) if self.state_bytes is not None else 0)
        inside = (o for o in deployment.fragments[owner].operators if o in plan.operators)
        together = [o for o in inside if isinstance(plan[o].spec, STATEFUL)]
        return round(size / max(1, len(together)))

    def _slow_route(self, source: NodeId, target: NodeId) -> SlowRoute | None:
        """The links that state crosses; None where nothing limits it, as on one host that emulates no links."""
        paths, topology, sites = self.loop.paths, self.loop.catalog.topology, self.loop.driver.participants.map
        apart = sites.site_of(source) != sites.site_of(target)
        path = topology.path(source, target)
        if path is None or not (paths.emulated or apart):
            return None
        return SlowRoute({a: float(topology.arcs.bandwidth_mbps[a]) for a in path.arcs}, path.latency_ms / 1000)

    @staticmethod
    def _travel_s(loads: Collection[tuple[int, SlowRoute | None]]) -> float:
        """How long it takes until all of it has arrived; what crosses the same link shares it."""
        bits: dict[int, float] = {}
        mbps: dict[int, float] = {}
        longest_s = 0.0
        for size, route in loads:
            if size and route is not None:
                longest_s = max(longest_s, route.latency_s)
                mbps |= route.mbps
                for link in route.mbps:
                    bits[link] = bits.get(link, 0.0) + size * 8
        return longest_s + max((bits[link] / (mbps[link] * 1e6) for link in bits), default=0.0)

    def _window_s(self, operators: Collection[OperatorId]) -> float | None:
        """Until the old ones of operators that begin beside together have answered what had begun by now."""
        plan, now = self.loop.catalog.plan, self.loop.host.store.now_ms()
        beside = split(plan, operators)[0]
        if not beside:
            return None
        around = {i for o in beside for i in plan[o].inputs}
        found = limits(plan, beside, dict.fromkeys(beside, now), dict.fromkeys([*around, *beside], now))
        return max(0, max(found.values()) - now) / 1000

    # ---------------------------------------------------------------- all of them

    def _predicted(
        self,
        protocol: str,
        itinerary: Itinerary,
        figures: Mapping[OperatorId, PredictedMove],
        routes: Mapping[OperatorId, SlowRoute | None],
    ) -> TransitionPrediction:
        pace, plan = self.pace, self.loop.catalog.plan
        seconds = overlap_s = stop_s = busy_s = 0.0
        size, phases = 0, 2 if itinerary.apart else 0
        ways: dict[OperatorId, str] = {}
        for step in itinerary.steps:
            if step.protocol is not None and step.protocol.overlaps:
                window_s = (self._window_s(step.operators) or 0.0) + pace.behind_s
                loads = self._doubled(step.operators, window_s, routes)
                phases += 2
                overlap_s += window_s
                ways.update(dict.fromkeys(step.operators, BESIDE))
            else:
                loads = [(figures[o].state_bytes, routes[o]) for o in step.operators]
                phases += 1
                stop_s += self._travel_s(loads) + pace.phase_s
                seconds += self._travel_s(loads)
                ways.update({o: WITH_STATE if isinstance(plan[o].spec, STATEFUL) else AT_ONCE for o in step.operators})
            size += sum(load for load, _ in loads)
            busy_s += self._travel_s(loads)
        seconds += overlap_s + phases * pace.phase_s
        size += round(pace.control_bytes * len(figures))
        moves = tuple(replace(f, way=ways.get(o, AT_ONCE)) for o, f in figures.items())
        return TransitionPrediction(protocol, seconds, size, overlap_s, stop_s, busy_s, phases, moves)

    def _doubled(
        self, operators: Collection[OperatorId], seconds: float, routes: Mapping[OperatorId, SlowRoute | None]
    ) -> list[tuple[int, SlowRoute | None]]:
        """The input that operators get at both places for a time, and what it crosses to the new one."""
        plan, inside = self.loop.catalog.plan, set(operators)
        into = {(i, o) for o in operators for i in plan[o].inputs if i not in inside}
        return [(round(plan[i].rate_tps * plan[i].row_bytes * seconds), routes[o]) for i, o in into]

    # ---------------------------------------------------------------- before anything is decided

    def foresee(self, protocol: str, nodes: Mapping[OperatorId, NodeId]) -> TransitionPrediction:
        """A transition by a protocol to these nodes from where operators run now."""
        deployment = self.loop.deployer.deployment
        here = {o: deployment.fragments[deployment.owner[o]].node for o in nodes if o in deployment.owner}
        moves = {o: (node, nodes[o]) for o, node in here.items() if node != nodes[o]}
        return self.plan(transition_protocol(protocol), moves)[1]
