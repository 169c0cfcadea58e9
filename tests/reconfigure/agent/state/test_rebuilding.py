"""State that moves by replay: what senders kept builds it at the new node, whatever it is the state of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.model.events import LinkAdded, LinkRemoved, PlacementChanged
from meander.model.ids import OperatorId
from meander.model.operators import STATEFUL
from meander.model.topology.elements import Link
from meander.reconfigure.state.replay import StateReplay
from meander.run.execution.prepared import PreparedRunner
from tests.reconfigure.moving import EDGES, MovingPlane

WINDOWS = """
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS v FROM cars GROUP BY road
  WINDOW SLIDING(ts, 2 s, 1 s) ALLOW LATENESS 500 ms INTO one;
CREATE QUERY trips AS SELECT id, count(*) AS n, max(speed) AS top FROM cars GROUP BY id
  WINDOW SESSION(ts, 400 ms) INTO two;
CREATE QUERY tens AS SELECT road, min(speed) AS least, count(*) AS n FROM cars GROUP BY road
  WINDOW COUNT(10, 5) INTO three;
"""
PAIRS = """
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one;
CREATE QUERY wetter AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road
  WINDOW TUMBLING(500 ms) INTO two;
"""


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[StateReplay]:
    """All that were made."""
    found: list[StateReplay] = []
    start = StateReplay.start

    def noted(replay: StateReplay) -> None:
        start(replay)
        found.append(replay)

    monkeypatch.setattr(StateReplay, "start", noted)
    return found


def _stateful(plane: MovingPlane) -> list[OperatorId]:
    return [o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, STATEFUL)]


@pytest.mark.parametrize("text", [WINDOWS, PAIRS], ids=["windows", "pairs"])
@pytest.mark.parametrize("seed", range(3))
def test_state_goes_from_node_to_node_by_replay_and_nothing_is_lost_or_double(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, replays: list[StateReplay], seed: int, text: str
) -> None:
    rng = np.random.default_rng(seed)
    plane = MovingPlane(tmp_path, spark, runner, text, disorder_ms=300, strategy="replay")
    for moment in range(14):
        plane.feed(rng, moment * 500)
        plane.clock.now_ms += int(rng.integers(0, 2_500))  # a base every 5 s
        if moment % 3 == 2:
            moved = _stateful(plane)
            plane.apply(*(PlacementChanged(0, o, f"e{rng.integers(EDGES)}") for o in moved))
        plane.step()
        plane.poll()
        if moment % 5 == 4:
            plane.crash()
    plane.finish()
    assert not plane.loop.deployer.failures
    assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
    plane.check_deployment()
    assert sum(replay.tuples for replay in replays) > 0
    assert all(replay.done for replay in replays)
    assert not [c for c in plane.host.store.exchange.channels() if c >= 1 << 40]


def _away_and_back(
    spark: SparkSession, runner: PreparedRunner, directory: Path, seed: int, strategy: str
) -> tuple[dict[str, pa.Table], int]:
    """A sensor is cut off for longer than time waits for it, while operators move; results and what was late."""
    rng = np.random.default_rng(seed)
    plane = MovingPlane(
        directory, spark, runner, WINDOWS, disorder_ms=0, idle_timeout_ms=900, replicas=seed % 2, strategy=strategy
    )
    plane.apply(*(PlacementChanged(0, o, "cloud") for o in _stateful(plane)))
    for moment in range(16):
        plane.feed(rng, moment * 500)
        plane.clock.now_ms += 600
        if moment == 3:
            plane.apply(LinkRemoved(0, "s1", "e1"))
        if moment == 11:
            plane.apply(LinkAdded(0, Link("s1", "e2", 1)))
        for _ in range(2):
            plane.step()
            plane.poll()
        if moment in (5, 7, 9, 12):
            plane.apply(*(PlacementChanged(0, o, "cloud" if moment % 2 else "e0") for o in _stateful(plane)))
        if moment in (6, 8, 10, 13):
            plane.apply(*(PlacementChanged(0, o, "e2") for o in _stateful(plane)))
    plane.finish()
    assert plane.outcomes
    return plane.results(), plane.late


@pytest.mark.parametrize("seed", range(4))
def test_windows_that_closed_without_a_missing_input_stay_closed_when_their_state_is_replayed(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, replays: list[StateReplay], seed: int
) -> None:
    usual, late = _away_and_back(spark, runner, tmp_path / "usual", seed, "migration_query")
    assert not replays
    replayed, late_then = _away_and_back(spark, runner, tmp_path / "replayed", seed, "replay")
    assert sum(replay.tuples for replay in replays) > 0

    for name, table in usual.items():
        assert sorted(map(repr, replayed[name].to_pylist())) == sorted(map(repr, table.to_pylist())), name
    assert late_then == late
