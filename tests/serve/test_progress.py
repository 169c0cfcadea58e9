"""Time that stands still because one source gives nothing is seen; time that has no reason to move is not."""

from __future__ import annotations

from collections.abc import Sequence

from meander.model.ids import OperatorId, QueryId
from meander.serve.progress import QUIET_MS, Marks, Progress

Q = QueryId("q")
A, B, SINK = OperatorId(1), OperatorId(2), OperatorId(3)


def held(seconds: Sequence[tuple[int, int, int]]) -> list[int]:
    """For how long the query stands still, second by second, of the watermarks of two sources and the sink."""
    progress = Progress()
    found = []
    for second, (a, b, sink) in enumerate(seconds):
        found.append(progress.read(1_000 * second, {Q: Marks({A: a, B: b}, {SINK: sink})}).get(Q, (0, A))[0])
    return found


def test_windows_that_wait_for_one_source_are_held_for_as_long_as_the_other_goes_on() -> None:
    assert held([(t, 5, 5) for t in range(5, 9)]) == [0, 0, 1_000, 2_000]
    progress = Progress()
    for t in range(3):
        told = progress.read(1_000 * t, {Q: Marks({A: 10 + t, B: 5}, {SINK: 5})})
    assert told == {Q: (1_000, B)}


def test_time_that_moves_is_not_held_however_far_a_source_is_ahead() -> None:
    assert held([(10**9 + t, t, t) for t in range(60)]) == [0] * 60


def test_a_query_whose_sources_are_quiet_is_not_held() -> None:
    """The last tuple of one of them, before all fell silent, would otherwise count for ever."""
    quiet = [(7, 5, 5)] * (QUIET_MS // 1_000 + 5)
    assert held([(5, 5, 5), *quiet])[-5:] == [0] * 5


def test_sources_with_coarse_times_hold_nobody() -> None:
    assert held([(86_400_000, 86_400_000, 86_399_000)] * 60) == [0] * 60


def test_what_was_held_goes_on_when_the_source_is_back() -> None:
    assert held([(5, 5, 5), (6, 5, 5), (9, 5, 5), (10, 10, 10), (11, 11, 10), (12, 12, 12)])[-3:] == [0, 0, 0]
