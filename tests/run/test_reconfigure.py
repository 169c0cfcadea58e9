"""Running queries while everything moves: the output is the oracle's, and nothing of the past is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.run.prepared import PreparedRunner
from tests.run.moving import MovingPlane
from tests.run.test_step import QUERIES


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_of_changes_gives_the_oracles_output(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(tmp_path, spark, runner, QUERIES, slots=1 + seed % 2, disorder_ms=300)
    for moment in range(10):
        plane.feed(rng, moment * 500)
        if rng.random() < 0.7:
            plane.apply(*plane.random_events(rng))
        for slot in range(plane.slots):
            if rng.random() < 0.7:
                plane.step(slot)
        if rng.random() < 0.8:
            plane.poll()
        if rng.random() < 0.2:
            plane.crash()
    plane.mend(rng)
    plane.finish()
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
