"""The oracle: small inputs whose results can be worked out by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.lang import sql
from meander.model.errors import InputError
from meander.model.plan import QueryPlan
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.run.oracle.batch import PRODUCER, answer, oracle

STREAMS = {
    "train": Stream("train", Schema.of(ts="bigint", id="int", speed="double"), "ts"),
    "alarm": Stream("alarm", Schema.of(ts="timestamp", id="int"), "ts"),
}


def plan_of(text: str) -> QueryPlan:
    (query,) = sql(text, STREAMS).queries
    return query.plan


def trains(*rows: tuple[int, int, float]) -> pa.Table:
    ts, ids, speeds = zip(*rows, strict=True)
    return pa.table({"ts": pa.array(ts), "id": pa.array(ids, pa.int32()), "speed": pa.array(speeds)})


def test_a_tumbling_average(spark: SparkSession) -> None:
    plan = plan_of("SELECT id, avg(speed) AS mean FROM train WINDOW TUMBLING(1 s) GROUP BY id INTO out")
    found = oracle(spark, plan, {"train": trains((0, 1, 10.0), (999, 1, 20.0), (1000, 1, 5.0), (10, 2, 7.0))}, 5000)
    assert found["out"].sort_by([("id", "ascending"), ("mean", "ascending")]).to_pylist() == [
        {"id": 1, "mean": 5.0},
        {"id": 1, "mean": 15.0},
        {"id": 2, "mean": 7.0},
    ]


def test_lateness_goes_by_the_producers_own_watermark(spark: SparkSession) -> None:
    """The second tuple at 100 is late when one producer sent both, and in time when another one did."""
    plan = plan_of("SELECT count(*) AS c FROM train WINDOW TUMBLING(1 s) INTO out")
    table = trains((100, 1, 1.0), (5000, 1, 1.0), (100, 2, 1.0))
    one = answer(spark, plan, {"train": table})
    assert sorted(one.sinks["out"]["c"].to_pylist()) == [1, 1]
    assert sum(one.late.values()) == 1
    two = answer(spark, plan, {"train": table.append_column(PRODUCER, pa.array(["north", "north", "south"]))})
    assert sorted(two.sinks["out"]["c"].to_pylist()) == [1, 2]
    assert sum(two.late.values()) == 0


def test_disorder_of_a_stream_keeps_its_tuples_in_time(spark: SparkSession) -> None:
    plan = plan_of("SELECT count(*) AS c FROM train WINDOW TUMBLING(1 s) INTO out")
    table = trains((1500, 1, 1.0), (900, 1, 1.0))
    assert answer(spark, plan, {"train": table}, {"train": 0}).sinks["out"].num_rows == 1
    assert answer(spark, plan, {"train": table}, {"train": 600}).sinks["out"].num_rows == 2


def test_results_carry_event_time_and_newest_input(spark: SparkSession) -> None:
    plan = plan_of("SELECT count(*) AS c FROM train WINDOW TUMBLING(1 s) INTO out")
    (row,) = answer(spark, plan, {"train": trains((100, 1, 1.0), (400, 1, 1.0))}).sinks["out"].to_pylist()
    assert row == {"_ts": 1000, "_wm": 999, "_newest": 400, "c": 2}


def test_two_streams_and_two_sinks(spark: SparkSession) -> None:
    plan = plan_of("SELECT train.id, speed FROM train JOIN alarm ON train.id = alarm.id WITHIN 10 ms INTO one, two")
    alarms = pa.table({"ts": pa.array([12_000], pa.timestamp("us", "UTC")), "id": pa.array([1], pa.int32())})
    found = oracle(
        spark, plan, {"train": trains((2, 1, 3.0), (1, 1, 4.0), (22, 1, 5.0), (12, 2, 6.0)), "alarm": alarms}, 100
    )
    assert found.keys() == {"one", "two"}
    for table in found.values():
        assert table.sort_by("speed").to_pylist() == [{"id": 1, "speed": 3.0}, {"id": 1, "speed": 5.0}]


def test_an_empty_input_gives_empty_sinks(spark: SparkSession) -> None:
    plan = plan_of("SELECT id, count(*) AS c FROM train WINDOW SESSION(1 s) GROUP BY id INTO out")
    found = oracle(spark, plan, {"train": trains((0, 0, 0.0)).slice(1)})
    assert (found["out"].num_rows, found["out"].column_names) == (0, ["id", "c"])


def test_a_missing_input_is_named(spark: SparkSession) -> None:
    plan = plan_of("SELECT * FROM train INTO out")
    with pytest.raises(InputError, match="no input for stream 'train'; inputs: alarm"):
        oracle(spark, plan, {"alarm": trains((0, 0, 0.0))})


def test_null_keys_are_one_group_and_never_meet_in_a_join(spark: SparkSession) -> None:
    tuples = pa.table(
        {"ts": [0, 1, 2], "id": pa.array([None, 7, None], pa.int32()), "speed": [1.0, 2.0, 4.0]},
        schema=trains((0, 0, 0.0)).schema,
    )
    grouped = plan_of("SELECT id, sum(speed) AS s FROM train WINDOW TUMBLING(1 s) GROUP BY id INTO out")
    found = oracle(spark, grouped, {"train": tuples})["out"].to_pylist()
    assert sorted(found, key=lambda row: row["s"]) == [{"id": 7, "s": 2.0}, {"id": None, "s": 5.0}]
    joined = plan_of("SELECT a.speed FROM train AS a JOIN alarm AS b ON a.id = b.id WITHIN 1 s INTO out")
    alarms = pa.table({"ts": pa.array([0, 0], pa.timestamp("us", "UTC")), "id": pa.array([None, 7], pa.int32())})
    assert oracle(spark, joined, {"train": tuples, "alarm": alarms})["out"].to_pylist() == [{"speed": 2.0}]
