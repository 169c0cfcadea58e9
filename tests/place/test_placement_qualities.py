"""Predicted latency, hops, traffic and network usage of small placements, worked out by hand."""

import pytest

from meander.model.ids import OperatorId
from meander.place.placement_qualities import predict
from meander.place.problem import Flow, Need
from tests.place.mechanisms.problems import chain, line, problem_of

LEFT, RIGHT, JOIN, FIRST, SECOND = (OperatorId(i) for i in (0, 1, 10, 100, 101))


def test_a_chain() -> None:
    """a - b - c - d, 10 ms each: 8 Mbit/s over one hop, 2 Mbit/s over two."""
    topology = line([1, 1, 1, 1])
    found = predict(chain(topology, "a", "d", [8.0, 2.0]), {JOIN: topology.id("b")})
    assert found.latency_ms == 30
    assert (found.hops, found.total_hops, found.missing) == (3, 3, 0)
    assert found.usage_bytes == pytest.approx((8e6 / 8) * 0.010 + (2e6 / 8) * 0.020)


def test_of_two_inputs_and_two_sinks_the_slowest_way_counts() -> None:
    topology = line([1, 1, 1, 1])
    a, b, c, d = topology.ids()
    flows = (
        Flow(LEFT, JOIN, 1, 1.0), Flow(RIGHT, JOIN, 1, 1.0), Flow(JOIN, FIRST, 1, 1.0), Flow(JOIN, SECOND, 1, 1.0)
    )  # fmt: skip
    problem = problem_of(topology, {JOIN: Need(1, 0.0)}, {LEFT: a, RIGHT: c, FIRST: c, SECOND: d}, flows)
    found = predict(problem, {JOIN: c})
    assert found.latency_ms == 30
    assert found.hops == 3
    assert predict(problem, {JOIN: b}).total_hops == 1 + 1 + 1 + 2


def test_what_is_not_placed_or_not_connected_is_left_out() -> None:
    topology = line([1, 1, 1])
    problem = chain(topology, "a", "c", [1.0, 1.0])
    assert predict(problem, {}).missing == 2
    topology.remove_link("b", "c")
    found = predict(problem, {JOIN: topology.id("b")})
    assert (found.missing, found.latency_ms) == (1, 10)
