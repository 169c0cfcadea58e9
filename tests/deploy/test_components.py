"""Data that leaves a node and comes back beside what stayed: the node's fragments must not wait for each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from meander.model.events import PlacementChanged
from meander.model.operators import Filter, WindowJoin
from meander.run.execution.prepared import PreparedRunner
from tests.reconfigure.moving import MovingPlane

SELF_JOIN = (
    "CREATE QUERY q AS SELECT a.road, a.mm, b.mm AS other FROM (SELECT * FROM rain WHERE mm > 1) AS a "
    "JOIN rain AS b ON a.road = b.road WINDOW TUMBLING(500 ms) INTO one;"
)


def _put(plane: MovingPlane, join: str, filter_: str) -> None:
    """The join reads the source, which is on s2, and the filter, which reads the source too."""
    where = {WindowJoin: join, Filter: filter_}
    found = {o: where[type(r.spec)] for o, r in plane.catalog.plan.operators.items() if type(r.spec) in where}
    assert len(found) == 2
    plane.apply(*[PlacementChanged(0, operator, node) for operator, node in found.items()])


def test_data_that_leaves_a_node_and_comes_back_is_not_waited_for(tmp_path: Path, spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    runner = PreparedRunner(spark)
    plane = MovingPlane(tmp_path, spark, runner, SELF_JOIN)
    for moment, (join, filter_) in enumerate([("s2", "e0"), ("cloud", "e1"), ("s2", "e2"), ("s2", "e1")]):
        _put(plane, join, filter_)
        for part in range(3):
            plane.feed(rng, moment * 1200 + part * 400)
            plane.step()
            plane.poll()
        assert not plane.loop.deployer.under_way
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    runner.close()
