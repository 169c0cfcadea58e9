"""Prepared plans give what plans built anew give, also when a large batch is cut and its hidden columns stay behind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.run.execution.prepared import MOST_FAILURES, UNUSED_S, PreparedRunner
from meander.run.execution.rewrites import partitioning
from meander.run.execution.rewrites.late_materialisation import LateColumns
from meander.run.execution.rewrites.operator_at_a_time import OFTEN
from meander.run.execution.runner import PlainRunner
from meander.run.execution.stage_use import in_words
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.template import Stage, bind
from meander.run.frames import AFTER, FRAGMENT, HIDDEN, TS, frame_schema
from meander.run.host import Host, HostOptions
from tests.run.harness import STREAMS, Plane, queries, rows_of

TEXTS = (
    "SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one",
    "SELECT road, speed AS v FROM cars WHERE id < 2 UNION ALL SELECT road, mm AS v FROM rain INTO one",
    "SELECT * FROM cars UNION ALL SELECT ts, id + 1 AS id, road, speed FROM cars WHERE id < 2 INTO one",
    "SELECT a.id, a.speed * 2 AS w, b.mm FROM cars AS a, rain AS b MATCH a OR b INTO one",
)


def given(stream: str, rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    table = rows_of(stream, rng, rng.integers(0, 1000, rows))
    hidden = {name: pa.array(rng.integers(0, 10**12, rows)) for name in HIDDEN}
    columns = {FRAGMENT: pa.array(rng.integers(0, 5, rows), pa.int32()), **hidden}
    body = {f"c{i}": table.column(i) for i in range(table.num_columns)}
    return pa.table({**columns, **body}, schema=frame_schema(STREAMS[stream].schema))


@pytest.mark.parametrize("text", TEXTS)
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


def late_of(text: str) -> LateColumns:
    (query,) = queries(text)
    (stage,) = bind(query.plan.operators, query.plan.inputs).template.stages
    late = LateColumns.of(stage)
    assert late is not None
    return late


@pytest.mark.parametrize(
    ("text", "needed", "handed_on"),
    [
        (TEXTS[0], [{"c3"}], {"c0": ("c1",), "c2": ("c2",)}),
        (TEXTS[1], [{"c1"}, set()], {"c0": ("c2", "c1"), "c1": ("c3", "c2")}),
        (TEXTS[2], [{"c1"}], {"c0": ("c0",), "c2": ("c2",), "c3": ("c3",)}),
        ("SELECT road, id FROM cars INTO one", [set()], {"c0": ("c2",), "c1": ("c1",)}),
        (
            "SELECT speed AS a, id AS b FROM cars UNION ALL SELECT speed, id + 1 FROM cars INTO one",
            [{"c1"}],
            {"c0": ("c3",)},
        ),
        ("SELECT id AS a FROM cars UNION ALL SELECT id * 2 FROM cars WHERE speed > 1 INTO one", [{"c1", "c3"}], {}),
    ],
)
def test_only_what_is_read_travels(text: str, needed: list[set[str]], handed_on: dict[str, tuple[str, ...]]) -> None:
    late = late_of(text)
    assert [set(n) for n in late.needed] == needed
    assert dict(late.handed_on) == handed_on


def test_numbers_stand_for_rows_of_all_tables() -> None:
    late = late_of(TEXTS[1])
    tables = [given("cars", 3), given("rain", 2)]
    first, second = late.numbered(tables)
    assert first.column(FRAGMENT).to_pylist() == [0, 1, 2]
    assert second.column(FRAGMENT).to_pylist() == [3, 4]
    assert second.column_names == [FRAGMENT]
    back = late.materialised(tables, pa.table({FRAGMENT: pa.array([4, 0], pa.int32())}))
    assert back.column(TS).to_pylist() == [tables[1].column(TS)[1].as_py(), tables[0].column(TS)[0].as_py()]
    assert back.column("c1").to_pylist() == [tables[1].column("c2")[1].as_py(), tables[0].column("c3")[0].as_py()]
    assert back.column_names == [FRAGMENT, *HIDDEN, "c0", "c1"]
    assert back.schema.field(FRAGMENT).type == pa.int32()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT road, count(*) AS n FROM cars WHERE id < 3 GROUP BY road WINDOW SESSION(ts, 1 s) INTO one", 1),
        ("SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one", 2),
        ("SELECT count(*) AS n FROM cars WINDOW SESSION(ts, 1 s) INTO one", 0),
        ("SELECT speed, count(*) AS n FROM cars GROUP BY speed WINDOW SESSION(ts, 1 s) INTO one", 0),
        ("SELECT upper(road) AS r, count(*) AS n FROM cars GROUP BY upper(road) WINDOW SESSION(ts, 1 s) INTO one", 0),
    ],
)
def test_equal_keys_are_in_one_part(monkeypatch: pytest.MonkeyPatch, text: str, columns: int) -> None:
    """Rows and state are cut by the same key; where there is none, the batch stays whole."""
    monkeypatch.setattr(partitioning, "LEAST_PARTITION_ROWS", 20)
    (query,) = queries(text)
    (stage,) = bind(query.plan.operators, query.plan.inputs).template.stages
    inputs = [given(stream, 300) for stream in ("cars", "rain")[: len(stage.reads)]]
    inputs = [t.append_column(AFTER, pa.array([0] * 300)) if stage.watermark else t for t in inputs]
    states = [spec.frame_schema.empty_table() for spec in stage.states]
    parts = partitioning.partitioned(stage, [*inputs, *states], 3)
    if not columns:
        assert parts is None
        return
    assert parts is not None
    assert len(parts) == 3
    assert sum(len(t) for part in parts for t in part) == 300 * len(inputs)
    roads = [
        {
            r
            for t in part
            for n in ("c1", "c2")
            if n in t.column_names
            for r in t.column(n).to_pylist()
            if isinstance(r, str)
        }
        for part in parts
    ]
    assert sum(map(len, roads)) == len(set().union(*roads)) == 2


def test_a_stage_of_known_operators_runs_at_once_and_gets_its_own_plan_later(spark: SparkSession) -> None:
    """Operators that were apart come together: nobody waits for a new plan."""
    apart = [
        "SELECT id, road, speed FROM cars WHERE speed > 10 INTO one",
        "SELECT road, max(speed) AS top FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one",
    ]
    together = (
        "SELECT road, max(speed) AS top FROM cars WHERE speed > 10 GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one"
    )
    known = [s for text in apart for q in queries(text) for s in bind(q.plan.operators, q.plan.inputs).template.stages]
    (query,) = queries(together)
    (stage,) = bind(query.plan.operators, query.plan.inputs).template.stages
    runner = TieredRunner(PreparedRunner(spark))
    assert not runner.is_warm([stage])
    runner.warm_up(known)
    runner.settle()
    assert runner.is_warm([stage])
    assert not runner.prepared.is_warm([stage])
    rows = given("cars", 90)
    after = np.arange(5)[rows.column(FRAGMENT).to_numpy()] * 10**11
    table = rows.add_column(4, AFTER, pa.array(after))
    tables = [table, *(spec.frame_schema.empty_table() for spec in stage.states)]
    wanted = stage.split(PlainRunner(spark).run(stage, tables))
    for _ in range(OFTEN):
        found = stage.split(runner.run(stage, tables))
        for mine, theirs in zip((found.output, *found.states), (wanted.output, *wanted.states), strict=True):
            assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, theirs.to_pylist()))
            assert mine.schema.types == theirs.schema.types
        assert len(found.output) > 0
        assert len(found.states[0]) > 0
    runner.settle()
    assert runner.prepared.is_warm([stage])
    runner.close()


def stages_of(*texts: str) -> list[Stage]:
    plans = [query.plan for text in texts for query in queries(text)]
    return [s for p in plans for s in bind(p.operators, p.inputs).template.stages]


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
    before, stages = host.status().stages, host.stages()
    host.warm_up()
    after = host.status().stages
    assert before is not None
    assert after is not None
    assert sum(before.stages.values()) == sum(after.stages.values()) == len(stages)
    assert (before.stages["plain"] > 0, after.stages["plain"]) == (True, 0)
    host.remove(list(host.routing.fragments))
    assert host.stages() == ()
    host.stop()
