"""Schedules: the next tuple comes when it was said to come, and not before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meander.run.connectors.schedule import Schedule

schedules = st.builds(
    lambda epoch, rate, phases, tuples: Schedule(
        epoch, rate, np.array(phases), np.zeros(len(phases), np.uint64), tuples
    ),
    st.integers(0, 10_000),
    st.sampled_from([0.3, 1.0, 7.0, 333.0, 2_000.0, 50_000.0]),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5),
    st.none() | st.integers(1, 40),
)


@given(schedules, st.integers(-50, 20_000))
def test_nothing_is_due_before_the_time_that_was_said_and_something_at_it(schedule: Schedule, after: int) -> None:
    after_ms = schedule.epoch_ms + after
    next_ms = schedule.next_ms(after_ms)
    if next_ms is None:
        assert schedule.last_ms is not None
        assert after_ms >= schedule.last_ms
        return
    assert next_ms > after_ms
    before = schedule.due_before(after_ms)
    assert (schedule.due_before(next_ms - 1) == before).all()
    assert (schedule.due_before(next_ms) > before).any() or next_ms == schedule.last_ms
