"""`meander bench latency` in miniature: taps are even, every part runs, and every figure with a goal is a target."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from lab.baselines.real_time import Trigger, applies
from lab.bench.latency import bench
from lab.bench.latency.bench import LatencyExtent
from lab.bench.latency.cases import AGGREGATE, JOIN, MAP, RAIN, Case, world
from lab.bench.latency.cpu import cpu_s
from lab.bench.latency.hop import hop_ms
from lab.bench.latency.tap import Tap
from meander.model.streams import Stream


def tap(keys: int = 100) -> Tap:
    return Tap(Stream("rain_x", RAIN, "ts", ("here",), 50.0, {}), keys)


def test_a_tap_gives_its_past_in_portions_and_nothing_twice() -> None:
    source, calls = tap(), list[int]()
    assert source.poll(0, 10) is None
    assert source.next_ms() is None
    source.announce(lambda: calls.append(1))
    now_s = time.time()
    source.turn_on(50.0, 2.0, now_s)
    assert calls == [1]
    first, second = source.poll(0, 60), source.poll(0, 1000)
    assert first is not None
    assert second is not None
    assert (len(first.table), first.more, second.more) == (60, True, False)
    times = np.concatenate([p.table.column("ts").cast("int64").to_numpy() for p in (first, second)])
    assert (np.diff(times) == 20_000).all()
    assert abs(times[0] / 1e6 - (now_s - 2)) < 0.05
    assert set(first.table.column("id").to_pylist()) <= set(range(100))
    due_ms = source.next_ms()
    assert due_ms is not None
    assert due_ms > times[-1] / 1000
    source.turn_off()
    assert source.poll(0, 10) is None


def test_a_case_remembers_what_its_span_holds() -> None:
    case = Case.remembering(30_000, 2_000)
    assert (case.kind, case.span_s, case.stream_tps, case.keys) == (JOIN, 15.0, 1_000.0, 15_000)
    assert case.title == "window join of 30,000 rows at 2,000/s"
    assert len({c.slug for c in (case, Case(JOIN, 2_000), Case(MAP, 2_000))}) == 3


def test_every_case_is_a_query_of_its_own() -> None:
    cases = [Case(MAP, 200), Case(AGGREGATE, 200), Case(JOIN, 200)]
    built = world(cases)
    assert len(built.plan.sink_bindings) == 3
    assert set(built.file.streams) == {name for case in cases for name in case.streams}


def test_joins_do_not_run_in_real_time_mode() -> None:
    assert [applies(Case(kind, 1), Trigger.REAL_TIME) for kind in (MAP, AGGREGATE, JOIN)] == [True, True, False]


def test_the_time_of_processors_grows_with_work() -> None:
    before = cpu_s()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert cpu_s() > before


def test_a_hop_brings_every_batch(tmp_path: Path) -> None:
    assert (hop_ms(tmp_path, 3, 5, 0.0) > 0).all()


@pytest.mark.slow
def test_every_part_reports_its_targets(spark: SparkSession, tmp_path: Path) -> None:
    brief = {"begin_s": 0.2, "warm_s": 0.2, "seconds": 1.0, "peer_warm_s": 4.0}
    extent = LatencyExtent((200,), (200,), (600, 2_000), 200, **brief, hop_batches=20)
    figures = bench.measure(spark, tmp_path, extent, lambda text: None)
    wanted = {f.name: f.wanted for f in figures if f.goal is not None}
    assert wanted["window join at 200/s: p50"] == "<= 12"
    assert wanted["window aggregate at 200/s: p95"] == "<= 20"
    assert wanted["filter+map at 200/s: processors"] == "<= 0.2"
    assert wanted["p50 of a join of 2,000 rows, to 600"] == "<= 1.5"
    assert wanted["a hop between two sites: p50"] == "<= 5"
    by_name = {f.name: f.measured for f in figures}
    assert by_name["window join of 2,000 rows at 200/s: rows of state"] >= 2_000
    for title in ("filter+map at 200/s, plain Spark", "filter+map at 200/s, Spark's real-time mode"):
        assert 0 < by_name[f"{title}: p50"] < float("inf")
