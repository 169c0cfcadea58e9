"""The model of rebinding: nothing is lost, a seed gives one run, and moving helps when the binding is bad."""

from __future__ import annotations

import numpy as np
import pytest

from lab.experiments.rebinding_model import BindingSetting, Costs, LatencySamples, Model, arrivals, breaks_at
from meander.run.rebinding.options import Installing

COSTS = Costs(kind_s={"count": 5e-6, "average": 8.4e-5, "top": 8.8e-5})
WAYS = [
    BindingSetting("static"),
    BindingSetting("single_queue"),
    BindingSetting("greedy", Installing.BLOCKING, 0.5),
    BindingSetting("greedy", period_s=0.5),
    BindingSetting("steady", Installing.BLOCKING, 0.5),
    BindingSetting("steady", period_s=0.5),
]


@pytest.mark.parametrize("setting", WAYS, ids=lambda s: f"{s.policy} {s.installing}")
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_every_moment_of_every_query_is_answered_once_and_not_before_it_came(
    setting: BindingSetting, slots: int
) -> None:
    traffic = arrivals(60, 4.0, 5)
    model = Model(traffic, slots, setting, COSTS)
    found = model.run()
    assert found.latency_s.size == traffic.size
    assert (found.latency_s > 0).all()
    assert np.isfinite(found.latency_s).all()
    assert (np.diff(model.done_s, axis=1) >= 0).all()
    assert (model.reached == traffic.shape[1]).all()
    again = Model(traffic, slots, setting, COSTS).run()
    assert (again.latency_s == found.latency_s).all()


def test_moving_helps_where_a_static_binding_cannot_keep_up() -> None:
    traffic = arrivals(2000, 12.0, 50)
    static, moved = (
        Model(traffic, 24, setting, COSTS).run() for setting in (WAYS[0], BindingSetting("steady", period_s=1.0))
    )
    assert static.within(0.4) < 0.5 < 0.85 < moved.within(0.4)
    assert moved.moves > 0
    assert static.moves == 0


def test_the_breaking_point_is_where_the_latency_stays_high() -> None:
    at = np.repeat(np.arange(10.0), 2)
    load = np.arange(10.0) * 100
    breaks = LatencySamples(at, np.where((at == 2) | (at > 5), 5.0, 0.1), 0, 20.0)
    assert breaks_at(breaks, 1.0, load) == 600
    assert breaks_at(LatencySamples(at, np.full(20, 0.1), 0, 20.0), 1.0, load) == 900
