"""Prepared plans give what plans built anew give, also when a large batch is partitioned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.run.execution.prepared import MOST_FAILURES, UNUSED_S, PreparedRunner
from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.late_materialisation import LateColumns
from meander.run.execution.runner import PlainRunner
from meander.run.execution.stage_use import in_words
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.template import bind
from meander.run.frames import FRAGMENT, TS
from meander.run.host import Host, HostOptions
from tests.run.execution.tasks import ROW_BY_ROW, given, stages_of
from tests.run.harness import Plane, queries


@pytest.mark.parametrize("text", ROW_BY_ROW)
@pytest.mark.parametrize("rows", [0, 7, 90])
def test_prepared_equals_plain(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, rows: int) -> None:
    monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 20)
    (query,) = queries(text)
    bound = bind(query.plan.operators, query.plan.inputs)
    (stage,) = bound.template.stages
    assert LateColumns.of(stage)
    streams = [query.plan.operators[o].stream for o in bound.ports]  # type: ignore[union-attr]
    tables = [given(stream, rows + i) for i, stream in enumerate(streams)]
    runner = PreparedRunner(spark, cores=3)
    found = stage.split(runner.run(stage, tables)).output
    wanted = stage.split(PlainRunner(spark).run(stage, tables)).output
    assert runner.refused == {}
    assert runner.failures == 0
    runner.close()
    order = [(name, "ascending") for name in (TS, FRAGMENT)]
    order += [(name, "ascending") for name in found.column_names if name.startswith("c")]
    assert found.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist()
    assert len(found) == len(wanted)


def files_of(runner: PreparedRunner) -> set[Path]:
    return {path for plans in runner._idle.values() for plan in plans for path in plan._paths}


def test_plans_of_queries_that_were_gone_were_kept_for_ever(spark: SparkSession) -> None:
    now = [0.0]
    stays, goes = stages_of(
        "SELECT id + 71 AS a FROM cars WHERE speed > 71 INTO one", "SELECT id + 72 AS a FROM cars INTO one"
    )
    tiered = TieredRunner(runner := PreparedRunner(spark, clock=lambda: now[0]))
    tiered.warm_up([stays, goes])
    tiered.settle()
    assert tiered.is_warm([stays, goes])
    before = files_of(runner)
    now[0] = UNUSED_S - 1
    tiered.evict([stays])
    assert tiered.is_warm([stays, goes])  # it may come back
    now[0] = UNUSED_S
    tiered.evict([stays])
    assert tiered.is_warm([stays])
    assert not tiered.is_warm([goes])
    assert files_of(runner) < before
    assert not any(path.exists() for path in before - files_of(runner))
    assert (runner.evicted, tiered.use([stays]).evicted) == (1, 1)
    tiered.warm_up([goes])
    tiered.settle()
    assert tiered.is_warm([goes])
    tiered.close()


def test_how_stages_run_is_said_with_the_reason_of_those_that_go_the_slow_way(spark: SparkSession) -> None:
    passes, maps, calls, later = stages_of(
        "SELECT road, id FROM cars INTO one",
        "SELECT id + 73 AS a FROM cars INTO one",
        "SELECT * FROM APPLY('tests.run.user_functions:dies', cars) RETURNS (ts bigint, id bigint) INTO one",
        "SELECT id + 74 AS a FROM cars INTO one",
    )
    tiered = TieredRunner(PreparedRunner(spark))
    stages = [passes, maps, maps, calls]
    assert tiered.use([later]).stages == {"prepared": 0, "operator_at_a_time": 0, "plain": 1, "refused": 0}
    tiered.warm_up(stages)
    tiered.settle()
    use = tiered.use(stages)
    assert use.stages == {"prepared": 2, "operator_at_a_time": 0, "plain": 0, "refused": 1}
    ((reason, count),) = use.refused.items()
    assert (reason, count) == ("its physical plan has MapInArrow", 1)
    assert in_words(use.stages, use.refused) == f"stages: 2 prepared, 1 refused ({reason})"
    before = tiered.use(stages).runs
    tiered.run(maps, [given("cars", 9)])
    assert Counter(tiered.use(stages).runs) - Counter(before) == {"prepared": 1}
    tiered.close()


@pytest.mark.usefixtures("unguarded_round")
def test_values_that_break_an_expression_made_its_stage_go_the_slow_way_for_good(spark: SparkSession) -> None:
    (stage,) = stages_of("SELECT round(id + 76, -1) AS tens FROM cars INTO one")
    tiered = TieredRunner(runner := PreparedRunner(spark))
    tiered.warm_up([stage])
    good = given("cars", 9)
    largest = pa.array([2**63 - 77] * 9)
    bad = good.set_column(good.column_names.index("c1"), "c1", largest)
    for _ in range(MOST_FAILURES + 1):
        with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
            tiered.run(stage, [bad])
    assert (runner.refused, runner.failures) == ({}, 0)
    before = runner.runs["prepared"]
    assert len(tiered.run(stage, [good])) == 9
    assert runner.runs["prepared"] == before + 1
    tiered.close()


def test_a_host_says_how_its_stages_run(spark: SparkSession, tmp_path: Path) -> None:
    wanted = queries("SELECT id + 75 AS a FROM cars WHERE speed > 10 INTO one")
    plane = Plane(tmp_path / "plan", PlainRunner(spark), wanted)
    plane.store.close()
    host = Host(HostOptions(tmp_path / "host"), spark)
    host.install(plane.installation)
    before, stages = host.status().stages, host.plans.stages()
    host.warm_up()
    after = host.status().stages
    assert before is not None
    assert after is not None
    assert sum(before.stages.values()) == sum(after.stages.values()) == len(stages)
    assert (before.stages["plain"] > 0, after.stages["plain"]) == (True, 0)
    host.routing.remove(list(host.routing.fragments))
    assert host.plans.stages() == ()
    host.stop()
