"""Compaction: whenever it happens, and whatever stops it, results are the oracle's and state stays in few pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.model.ids import FragmentId
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Runner
from meander.run.fragments.routing import Routing
from meander.run.step.compaction import Compaction, CompactionOptions
from meander.run.store.commit import Commit
from meander.run.store.partitions import PartitionKey
from meander.run.store.state import Crowd
from meander.run.store.store import Store
from tests.run.harness import STREAMS, Plane, queries, rows_of
from tests.run.observe import check_accounts

QUERIES = """
CREATE QUERY slide AS SELECT road, count(*) AS n, avg(speed) AS v, stddev(speed) AS s, first(id) AS f,
  top_k(speed, 2) AS t, approx_count_distinct(id) AS d FROM cars
  GROUP BY road WINDOW SLIDING(ts, 4 s, 1 s) ALLOW LATENESS 300 ms INTO one;
CREATE QUERY burst AS SELECT id, sum(speed) AS v, max(speed) AS top FROM cars
  GROUP BY id WINDOW SESSION(ts, 400 ms) INTO two;
CREATE QUERY tens AS SELECT road, min(speed) AS least FROM cars GROUP BY road WINDOW COUNT(10, 5) INTO two;
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO three;
"""
EAGER = CompactionOptions(merged_pieces=2, joined_pieces=2, most_rows=200)


class CrashError(Exception):
    """The process dies here."""


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


def feed(plane: Plane, rng: np.random.Generator, at_ms: int) -> None:
    for stream, description in STREAMS.items():
        for node in description.nodes:
            count = int(rng.integers(0, 10))
            times = at_ms + rng.integers(0, 500, count) - rng.integers(0, 900, count)
            plane.enter(stream, node, rows_of(stream, rng, times))


def compaction(plane: Plane, options: CompactionOptions = EAGER) -> Compaction:
    return Compaction(plane.store, plane.routing, plane.runner, options)


@pytest.mark.parametrize(("seed", "slots"), [(1, 1), (2, 2), (3, 1)])
def test_compaction_at_any_moment_changes_no_result(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, slots: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=slots, disorder_ms=400)
    commit, merged = Store.commit, 0
    for moment in range(10):
        feed(plane, rng, moment * 400)
        for slot in range(slots):
            if rng.random() < 0.8:
                plane.step(slot)
        match rng.choice(["nothing", "compact", "crash before", "crash after"], p=[0.2, 0.4, 0.2, 0.2]):
            case "compact":
                merged += compaction(plane).tick()
                check_accounts(plane.store)
            case "crash before" | "crash after" as when:

                def dies(store: Store, change: Commit, when: str = str(when)) -> Any:
                    if when == "crash after":
                        commit(store, change)
                    raise CrashError

                with monkeypatch.context() as patch, contextlib.suppress(CrashError):
                    patch.setattr(Store, "commit", dies)
                    assert compaction(plane).tick() == 0, "nothing to merge, or it crashes"
                plane.crash()
    assert merged > 3
    plane.finish()
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}


def most_pieces(plane: Plane, fragments: Iterable[FragmentId] | None = None) -> int:
    """Pieces of the most crowded partition."""
    wanted = set(plane.routing.fragments if fragments is None else fragments)
    return max((crowd.pieces for crowd in plane.store.state.crowds(1) if crowd.key.fragment in wanted), default=0)


def test_the_state_of_a_long_window_stays_in_few_pieces(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    text = """
    CREATE QUERY day AS SELECT road, count(*) AS n, avg(speed) AS v FROM cars
      GROUP BY road WINDOW TUMBLING(ts, 1 day) INTO one;
    CREATE QUERY wet AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND b.mm > 100
      WITHIN 1 hour INTO two;
    """
    options = CompactionOptions(merged_pieces=5, joined_pieces=8, most_pieces=30)
    rng = np.random.default_rng(0)
    plane = Plane(tmp_path, runner, queries(text))
    keeping = compaction(plane, options)
    most = most_partials = most_rows = 0
    aggregates = [f for f, i in plane.routing.fragments.items() if any(s.watermark for s in i.bound.template.stages)]
    for moment in range(60):
        plane.enter("cars", "s0", rows_of("cars", rng, np.arange(moment * 100, moment * 100 + 10)))
        plane.step()
        keeping.tick()
        most = max(most, most_pieces(plane))
        most_partials = max(most_partials, most_pieces(plane, aggregates))
        most_rows = max(most_rows, *(plane.store.state.size(f).rows for f in aggregates))
    assert most_partials < options.merged_pieces
    assert most < options.most_pieces
    assert most_rows <= options.merged_pieces * 3  # so many rows for each of the three roads
    assert keeping.metrics.partitions > 10
    plane.finish()
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}


def test_rows_that_cannot_be_merged_are_written_again_only_when_they_have_doubled(
    runner: PreparedRunner, tmp_path: Path
) -> None:
    text = "CREATE QUERY wet AS SELECT a.id FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 hour INTO one;"
    plane = Plane(tmp_path, runner, queries(text))
    keeping = compaction(plane, CompactionOptions(joined_pieces=3, most_pieces=1000))
    rng, entered = np.random.default_rng(0), 0
    for moment in range(40):
        plane.enter("cars", "s0", rows_of("cars", rng, np.arange(moment * 10, moment * 10 + 5)))
        entered += 5
        plane.step()
        keeping.tick()
    assert keeping.metrics.rows <= 3 * entered
    assert most_pieces(plane) <= 21


def test_state_of_a_fragment_that_runs_elsewhere_is_left_alone(runner: PreparedRunner, tmp_path: Path) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES))
    for moment in range(3):
        feed(plane, np.random.default_rng(moment), moment * 10)
        plane.step()
    crowded = plane.store.state.crowds(2)
    assert crowded
    plane.routing.remove(list(plane.routing.fragments))
    assert compaction(plane).tick() == 0
    assert plane.store.state.crowds(2) == crowded


def test_a_large_partition_is_not_written_anew_for_a_few_rows(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    options = CompactionOptions(joined_pieces=4, most_pieces=6, large_rows=10)
    compaction = Compaction(store, Routing(1), cast(Runner, None), options)
    key = PartitionKey(FragmentId(1), 0, 0)
    assert compaction.is_crowded(Crowd(key, pieces=6, rows=9, first_rows=5), merges=False)
    assert not compaction.is_crowded(Crowd(key, pieces=6, rows=45, first_rows=40), merges=False)
    assert compaction.is_crowded(Crowd(key, pieces=30, rows=70, first_rows=40), merges=False)
    assert compaction.is_crowded(Crowd(key, pieces=4, rows=80, first_rows=40), merges=False)
    store.close()
