"""Predictions of transitions, and the mix that `auto` chooses: by state, bandwidth on the route, and windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.adapt.transition_prediction import AT_ONCE, BESIDE, WITH_STATE
from meander.coordinator.adaptation.transition_predictor import Ends, TransitionPredictor
from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.fragments import Deployment, Placed, redeploy
from meander.deploy.protocols.transitions import TRANSITIONS, transition_protocol
from meander.lang import sql
from meander.model.events import QueryAdded
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.model.operators import STATEFUL, WindowAggregate
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from tests.reconfigure.moving import moving_catalog
from tests.run.harness import SINKS, STREAMS

AUTO = transition_protocol("auto")
TWO_WINDOWS = (
    "CREATE QUERY q AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 4 s) INTO one;"
    "CREATE QUERY p AS SELECT id, count(*) AS n FROM cars GROUP BY id WINDOW TUMBLING(ts, 1 min) INTO two;"
)
NOW_MS = 61_000
"""A second after the windows of both began."""


@dataclass
class Plane:
    """Two placed queries that do not run: state is as large as the test says, links as slow."""

    text: str = TWO_WINDOWS
    state_bytes: dict[OperatorId, int] = field(default_factory=dict)
    mbps: float = math.inf
    emulated: bool = True

    def __post_init__(self) -> None:
        catalog = self.catalog = moving_catalog(2)
        engine = Engine(catalog, mechanism("bottom_up"))
        assert not engine.run([QueryAdded(0, q) for q in sql(self.text, STREAMS, SINKS).queries]).unplaced
        catalog.topology.arcs.bandwidth_mbps[:] = self.mbps
        self.deployment = Deployment()
        placed = Placed(catalog.plan, catalog.placement, catalog.topology)
        self.deployment.apply(redeploy(placed, self.deployment, catalog.plan.operators))
        loop = SimpleNamespace(
            catalog=catalog,
            deployer=SimpleNamespace(deployment=self.deployment),
            host=SimpleNamespace(store=SimpleNamespace(state=SimpleNamespace(size=self._size), now_ms=lambda: NOW_MS)),
            paths=SimpleNamespace(emulated=self.emulated),
            driver=SimpleNamespace(participants=SimpleNamespace(map=SimpleNamespace(site_of=lambda node: "home"))),
        )
        self.predictor = TransitionPredictor(cast(PlacementLoop, loop))

    def _size(self, fragment: FragmentId) -> Any:
        inside = self.deployment.fragments[fragment].operators
        return SimpleNamespace(bytes=sum(self.state_bytes.get(o, 0) for o in inside))

    @property
    def aggregates(self) -> list[OperatorId]:
        """Of the short window, and of the long one."""
        found = [o for o, r in self.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate)]
        return sorted(found, key=lambda o: getattr(cast(Any, self.catalog.plan[o].spec).window, "size_ms", 0))

    def moves(self) -> Ends:
        """Everything that can move goes over the link between the first edge and the cloud."""
        topology, placed = self.catalog.topology, self.catalog.placement.nodes
        cloud, edge = topology.id("cloud"), topology.id("e0")
        free = [o for o, r in self.catalog.plan.operators.items() if r.pin is None]
        return {o: (placed[o], edge if placed[o] == cloud else cloud) for o in free}

    def ways(self, **kwargs: Any) -> dict[OperatorId, str]:
        return {o.operator: o.way for o in self.predictor.plan(AUTO, self.moves())[1].operators}


def test_small_state_moves_and_large_state_on_a_slow_link_runs_out_beside() -> None:
    small = Plane(mbps=1.0)
    short, long = small.aggregates
    assert (small.ways()[short], small.ways()[long]) == (WITH_STATE, WITH_STATE)
    # two megabytes travel for 16 s, twice that if both share the link: longer than the short window lasts (3 s), not
    # as long as the long one (59 s)
    large = Plane(mbps=1.0, state_bytes={short: 2_000_000, long: 2_000_000})
    assert large.ways()[short] == BESIDE
    assert large.ways()[long] == WITH_STATE
    prediction = large.predictor.plan(AUTO, large.moves())[1]
    assert prediction.overlap_s == pytest.approx(3.0, abs=0.01)
    figures = {o.operator: o for o in prediction.operators}
    assert figures[long].transfer_s == pytest.approx(16.0, abs=0.1)
    assert figures[long].window_s == pytest.approx(59.0, abs=0.01)
    assert (figures[long].mbps, figures[long].state_bytes) == (1.0, 2_000_000)


def test_where_links_limit_nothing_state_moves() -> None:
    plane = Plane(mbps=1.0, emulated=False)
    plane.state_bytes = dict.fromkeys(plane.aggregates, 10**9)
    assert set(plane.ways().values()) <= {WITH_STATE, AT_ONCE}


def test_a_session_moves_with_its_state_however_long_that_takes() -> None:
    text = "CREATE QUERY q AS SELECT id, count(*) AS n FROM cars GROUP BY id WINDOW SESSION(ts, 1 s) INTO one;"
    plane = Plane(text, mbps=0.1)
    (session,) = plane.aggregates
    plane.state_bytes = {session: 10**8}
    assert plane.ways()[session] == WITH_STATE


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_auto_is_predicted_to_end_no_later_than_the_protocols_that_it_mixes(data: st.DataObject) -> None:
    plane = Plane(mbps=data.draw(st.sampled_from([0.1, 1.0, 10.0])))
    plane.state_bytes = {o: data.draw(st.integers(0, 10**7)) for o in plane.aggregates}
    plane.predictor.pace.phase_s = data.draw(st.sampled_from([0.01, 0.2, 1.0]))
    moves = plane.moves()
    auto = plane.predictor.plan(AUTO, moves)[1]
    for name in ("at_once", "sms_concurrent"):
        other = plane.predictor.plan(transition_protocol(name), moves)[1]
        slack = 1e-9 + max(0.1 * other.seconds, 0.05)
        assert auto.seconds <= other.seconds + slack, "as soon, but for a difference that fewer bytes are worth"
        if auto.seconds > other.seconds:
            assert auto.bytes <= other.bytes
    moved = {o.operator for o in auto.operators if o.way == WITH_STATE}
    assert moved <= {o for o in moves if isinstance(plane.catalog.plan[o].spec, STATEFUL)}


def test_every_protocol_has_a_prediction_and_its_bytes_are_those_of_what_it_moves() -> None:
    plane = Plane(mbps=1.0)
    plane.state_bytes = dict.fromkeys(plane.aggregates, 50_000)
    found = {p.name: plane.predictor.plan(p, plane.moves())[1] for p in TRANSITIONS}
    assert all(prediction.seconds > 0 for prediction in found.values())
    with_state = found["at_once"]
    assert with_state.bytes == 100_000 + 600 * len(with_state.operators)
    assert with_state.overlap_s == 0.0
    assert found["sms_concurrent"].stop_s == 0.0, "what only windows read begins beside, as they do"
    assert found["mfgs_sequential"].seconds > found["mfgs_concurrent"].seconds > with_state.seconds


def test_what_is_learned_brings_the_next_prediction_closer() -> None:
    plane = Plane()
    protocol = transition_protocol("sms_concurrent")
    actual_s, waiting_s = 65.0, 62.0
    misses = []
    for _ in range(12):
        prediction = plane.predictor.plan(protocol, plane.moves())[1]
        misses.append(abs(prediction.seconds - actual_s))
        plane.predictor.pace.learn(prediction, actual_s, waiting_s, 5_000)
    assert misses[-1] < 0.1 * misses[0]
    assert misses == sorted(misses, reverse=True)


def test_a_transition_that_moves_nothing_takes_nothing() -> None:
    plane = Plane()
    here: dict[OperatorId, NodeId] = dict(plane.catalog.placement.nodes)
    found = plane.predictor.foresee("auto", here)
    assert (found.seconds, found.bytes, found.operators) == (0.0, 0, ())
