"""Replays on a real host: Structured Streaming runs on while operators move with their state, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.experiments.local_dry_run import LocalDryRun
from lab.workloads.isqd import DeviceShape, generated
from meander.deploy.protocols import PROTOCOLS
from meander.local.replay import replay_live
from meander.local.replay_options import ReplayOptions
from meander.model.operators import WindowJoin
from meander.reconfigure.state import STATE_STRATEGIES
from meander.reconfigure.state.replay import StateReplay

SHAPE = DeviceShape(queries=2, sources=4, mobile=2, stateful=True, period_s=0.5, changes=4, fogs=3, rate_tps=20)


@pytest.mark.parametrize("strategy", [s.name for s in STATE_STRATEGIES])
def test_joins_move_with_their_state_while_streaming_queries_run_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    dry_run = LocalDryRun(generated(SHAPE))
    before = {o: dry_run.node_of(o) for o in dry_run.operators(WindowJoin)}
    touched = [change.fragments for change in dry_run.changes()]
    moved = [o for o, node in before.items() if dry_run.node_of(o) != node]
    assert len(moved) == SHAPE.queries

    replayed: list[StateReplay] = []
    start = StateReplay.start

    def noted(replay: StateReplay) -> None:
        replayed.append(replay)
        start(replay)

    monkeypatch.setattr(StateReplay, "start", noted)
    options = ReplayOptions(strategy=strategy, quiet_s=1.0)
    report = replay_live(spark, generated(SHAPE), tmp_path / "host", tmp_path, options)
    assert (len(report.changes), report.unfinished, report.failures) == (SHAPE.changes, 0, ())
    assert report.same_queries
    assert report.status.problems == ()
    assert max(c.fragments for c in report.changes) >= min(touched)
    assert sum(c.state_bytes for c in report.changes) > 0
    assert {c.protocol for c in report.changes} == {"isqd"}
    assert report.drained
    assert report.unchecked is None
    assert set(report.checks) == {"query_1 > results", "query_2 > results"}
    assert (report.lost, report.double) == (0, 0)
    assert all(c.expected > 0 for c in report.checks.values())
    assert report.latency["during"].count > 0
    assert bool(replayed) == (strategy == "replay")
    assert all(each.done for each in replayed)
    assert (sum(each.tuples for each in replayed) > 0) == (strategy == "replay")


@pytest.mark.slow
def test_protocols_take_turns_and_agree_on_the_results(spark: SparkSession, tmp_path: Path) -> None:
    names = tuple(p.name for p in PROTOCOLS)
    setting = generated(replace(SHAPE, changes=3))
    options = ReplayOptions(quiet_s=0.5, in_turn=names)
    report = replay_live(spark, setting, tmp_path / "host", tmp_path, options)
    assert tuple(c.protocol for c in report.changes) == names
    fragments = {c.protocol: c.fragments for c in report.changes}
    assert fragments["isqd"] < min(fragments["restart_concurrent"], fragments["restart_serial"])
    assert (report.lost, report.double, report.unfinished) == (0, 0, 0)
