"""State that is built anew from tuples equals the state that was there, however windows fire on the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.bench.isqd.state import START_MS, WINDOW_MS, join, windowful
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.state.hops import Hop
from meander.reconfigure.state.job import Job, MoveState
from meander.reconfigure.state.replay import ReplayInput, StateReplay, Triggering
from meander.reconfigure.state.strategies import state_strategy
from meander.run.execution.prepared import PreparedRunner
from meander.run.fragments.routing import Installed
from meander.run.store.store import Store
from tests.reconfigure.state.states import held

NEW = FragmentId(7)
ROWS = 4000


@pytest.mark.parametrize("triggering", list(Triggering))
def test_replayed_state_is_that_of_the_open_window(spark: SparkSession, tmp_path: Path, triggering: Triggering) -> None:
    bound, runner, store, now = join(), PreparedRunner(spark), Store.open(tmp_path), [0.0]
    installed = Installed(NEW, 1, 0, bound, tuple(map(ChannelId, range(2))), ((),) * len(bound.outputs))
    closed, opened = list(windowful(0, int(ROWS * triggering.value), 1000)), list(windowful(1, ROWS, 1000))
    expected: dict[tuple[int, int], Counter[str]] = {}
    for buffer in opened:
        names = bound.template.stages[0].states[buffer.port].names
        rows = expected.setdefault((buffer.port, START_MS + WINDOW_MS), Counter())
        rows.update(map(repr, buffer.table.rename_columns(names).to_pylist()))
    job = Job(store, NEW, store, NEW, "again", hops=[Hop(10.0, 8.0)])
    given = ReplayInput(installed, [*closed, *opened], runner, triggering)
    replay = StateReplay(job, given, clock_ms=lambda: now[0], background=False)
    replay.start()
    while (wait_ms := replay.poll()) is not None:
        assert not replay.done
        now[0] += wait_ms
    assert (replay.state, replay.error, replay.progress) == (MoveState.DONE, None, 1.0)
    assert replay.seconds > replay.bytes / 1e6
    assert (replay.steps > 2) == (triggering is not Triggering.BEST)
    assert held(store, NEW) == expected
    assert not store.views.channels.by_id
    runner.close()


def test_a_cancelled_replay_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    bound, store, runner = join(), Store.open(tmp_path), PreparedRunner(spark)
    installed = Installed(NEW, 1, 0, bound, tuple(map(ChannelId, range(2))), ((),) * len(bound.outputs))
    buffers = [*windowful(0, 1000, 100), *windowful(1, 1000, 100)]
    given = ReplayInput(installed, buffers, runner, Triggering.WORST)
    job = Job(store, NEW, store, NEW, "again", hops=[Hop(0.0, 1.0)], replay=given)
    now = [0.0]
    move = state_strategy("replay").begin(job, clock_ms=lambda: now[0], background=False)
    move.start()
    for _ in range(3):
        now[0] += move.poll() or 0.0
    assert store.state.size(NEW).rows > 0
    assert move.cancel()
    assert move.state is MoveState.CANCELLED
    assert move.poll() is None
    assert store.state.size(NEW).rows == 0
    assert not store.views.channels.by_id
    with pytest.raises(InputError, match="give the tuples that upstream has kept"):
        state_strategy("replay").begin(Job(store, NEW, store, NEW, "again"))
    with pytest.raises(InputError, match="no state strategy 'rpelay'; known state strategies: replay"):
        state_strategy("rpelay")
    runner.close()
