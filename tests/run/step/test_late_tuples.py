"""Late tuples as a side output: each exactly once, whatever the cuts, slots and crashes, as the operator reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang import sql
from meander.lang.topology.reader import TopologyFile
from meander.local.run_plan import plan_queries
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.delivery.delivery import Delivery
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import OneByOne
from meander.run.fragments.template import Stage
from meander.run.oracle.batch import answer
from meander.run.step.late_tuples import COUNTER, late_schema
from tests.run.harness import STREAMS, Plane, catalog, queries, rows_of

QUERIES = """
CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one;
CREATE QUERY slow AS SELECT road, max(kmh) AS top FROM (SELECT ts, road, speed * 3.6 AS kmh FROM cars WHERE speed < 30)
  GROUP BY road WINDOW SESSION(ts, 200 ms) ALLOW LATENESS 100 ms INTO two;
CREATE QUERY wet AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 300 ms INTO three;
"""


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


def feed(plane: Plane, rng: np.random.Generator, at_ms: int) -> None:
    for stream, description in STREAMS.items():
        for node in description.nodes:
            count = int(rng.integers(1, 15))
            times = at_ms + rng.integers(0, 700, count) - rng.integers(0, 2, count) * rng.integers(0, 3000, count)
            plane.enter(stream, node, rows_of(stream, rng, times))


def expected(spark: SparkSession, plane: Plane) -> dict[str, int]:
    inputs = {name: pa.concat_tables(plane.entered[name]) for name in STREAMS}
    return {q.id: sum(answer(spark, q.plan, inputs, plane.disorder_ms).late.values()) for q in plane.queries}


def emit_late(plane: Plane) -> dict[str, list[pa.Table]]:
    """Late tuples by query, a table for each input of each operator."""
    sinks = {sink: name for name, running in plane.catalog.plan.queries.items() for sink in running.sinks}
    found: dict[str, list[pa.Table]] = {}
    for output in plane.installation.late:
        exchange = plane.store.exchange
        table = exchange.read(output.channel, exchange.start(output.channel), exchange.end(output.channel)).table
        found.setdefault(sinks[output.sink], []).append(table)
    return found


@pytest.mark.parametrize(("seed", "slots"), [(1, 1), (2, 2), (3, 2)])
def test_every_late_tuple_is_put_aside_once(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path, seed: int, slots: int
) -> None:
    rng = np.random.default_rng(seed)
    plane = Plane(tmp_path, runner, queries(QUERIES), slots=slots, disorder_ms=100, late=True)
    for moment in range(5):
        feed(plane, rng, moment * 700)
        if rng.random() < 0.8:
            plane.step(int(rng.integers(slots)))
        if rng.random() < 0.5:
            plane.crash()
            plane.batch -= 1  # Spark calls again for a batch that it does not know to be done
    plane.finish()
    found = emit_late(plane)
    assert {name: sum(map(len, tables)) for name, tables in found.items()} == expected(spark, plane)
    assert all(sum(map(len, tables)) > 5 for tables in found.values())
    counted = sum(plane.store.counter(f, COUNTER) for f in plane.routing.fragments)
    assert counted == sum(len(t) for tables in found.values() for t in tables)
    assert {name: c for name, c in plane.compare(spark).items() if not c.equal} == {}


def test_late_tuples_have_the_columns_that_the_operator_reads(runner: PreparedRunner, tmp_path: Path) -> None:
    plane = Plane(tmp_path, runner, queries(QUERIES), late=True)
    cars = pa.table(
        {"ts": [5000, 10, 20], "id": [1, 2, 3], "road": ["a1", "b2", "a1"], "speed": [10.0, 20.0, 35.0]},
        schema=rows_of("cars", np.random.default_rng(0), np.arange(0)).schema,
    )
    plane.enter("cars", "s0", cars)
    plane.finish()
    (load,), (slow,), (left, right) = emit_late(plane).values()
    assert load.drop_columns(["_operator"]).to_pylist() == [
        {"_event_time": 10, "_watermark": 5000, "ts": 10, "id": 2, "road": "b2", "speed": 20.0},
        {"_event_time": 20, "_watermark": 5000, "ts": 20, "id": 3, "road": "a1", "speed": 35.0},
    ]
    assert slow.num_rows == 1
    assert slow.column("kmh").to_pylist() == [72.0]
    assert "id" not in slow.column_names
    assert slow.column("_operator").to_pylist()[0].startswith("window aggregate max(kmh) AS top")
    assert left.column("id").to_pylist() == [2, 3]
    assert len(right) == 0


class Counting(OneByOne):
    """Counts how often late tuples are asked for on Spark."""

    def __init__(self, runner: PreparedRunner) -> None:
        self.runner, self.asked = runner, 0
        self.warm_up, self.is_warm = runner.warm_up, runner.is_warm

    def run(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        return self.runner.run(stage, tables)

    def late(self, stage: Stage, tables: Sequence[pa.Table]) -> pa.Table:
        self.asked += 1
        return self.runner.late(stage, tables)


def test_late_tuples_of_an_operator_that_reads_channels_cost_no_job(runner: PreparedRunner, tmp_path: Path) -> None:
    counting = Counting(runner)
    text = "CREATE QUERY load AS SELECT count(*) AS n FROM cars WINDOW TUMBLING(ts, 1 s) INTO one;"
    plane = Plane(tmp_path, counting, queries(text))
    plane.enter("cars", "s0", rows_of("cars", np.random.default_rng(0), np.array([5000, 10, 20])))
    plane.finish()
    assert sum(plane.store.counter(f, COUNTER) for f in plane.routing.fragments) == 2
    assert counting.asked == 0
    assert plane.installation.late == ()


def test_delivery_hands_late_tuples_to_their_sink_once(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    plane = Plane(tmp_path / "store", runner, queries(QUERIES), late=True, slots=2)
    rng = np.random.default_rng(4)
    around = Surroundings(tmp_path, tmp_path)

    def delivery() -> Delivery:
        sink_bindings = [
            SinkBinding("q", SinkTarget(f"late-{o.label}", "cloud"), o.channel) for o in plane.installation.late
        ]
        return Delivery(plane.store, sink_bindings, surroundings=around)

    running = delivery()
    for moment in range(4):
        feed(plane, rng, moment * 700)
        plane.step()
        running.tick()
        if moment == 1:
            plane.crash()
            running = delivery()
    plane.finish()
    running.tick()
    running.stop()
    lines = [json.loads(line) for path in tmp_path.glob("q-late-*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == sum(expected(spark, plane).values()) > 10
    assert Counter(line["_event_time"] < line["_watermark"] for line in lines) == {True: len(lines)}


def world(**options: str) -> tuple[TopologyFile, Any]:
    sinks = {
        "one": SinkTarget("one", "cloud", options),
        "aside": SinkTarget("aside", "cloud", {"connector": "parquet"}),
    }
    text = """
    CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO one;
    CREATE QUERY wet AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO one;
    """
    return TopologyFile(catalog().topology, dict(STREAMS), sinks), sql(text, STREAMS, sinks).queries


def test_a_sink_names_another_one_for_late_tuples() -> None:
    plan = plan_queries(*world(late="aside"), "bottom_up")
    assert [o.query for o in plan.late] == ["load", "wet", "wet"]
    assert {o.target.options["connector"] for o in plan.late} == {"parquet"}
    assert len({o.name for o in plan.late}) == 3
    assert plan.late[1].target.name.endswith("-left")
    assert all(o.channel > ChannelId(1 << 62) for o in plan.late)
    assert plan_queries(*world(), "bottom_up").late == ()


def test_a_folder_for_late_tuples_serves_every_query(tmp_path: Path) -> None:
    plan = plan_queries(*world(), "bottom_up", late=tmp_path)
    assert {o.target.options["path"] for o in plan.late} == {f"{tmp_path}/{{query}}-{{sink}}.jsonl"}


def test_a_sink_for_late_tuples_that_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match="sink 'one': option 'late': no sink 'asid'; known sinks: aside, one"):
        plan_queries(*world(late="asid"), "bottom_up")


def test_columns_of_the_user_keep_their_names() -> None:
    stream = Stream("s", Schema.of(ts="bigint", _operator="string"), "ts")
    assert late_schema(stream.schema).names == ["__operator", "_event_time", "_watermark", "ts", "_operator"]
