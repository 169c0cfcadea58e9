"""What a function remembers is told by who its arguments are, and forgotten in time."""

from __future__ import annotations

import pytest

from meander.run import memoised as module
from meander.run.memoised import memoised


def test_the_same_objects_are_asked_about_once_and_equal_ones_again() -> None:
    asked: list[tuple[int, ...]] = []

    @memoised
    def total(numbers: list[int], start: int = 0) -> int:
        asked.append((*numbers, start))
        return sum(numbers) + start

    one, other = [1, 2], [1, 2]
    assert [total(one), total(one), total(other), total(one, 1), total(one, start=1)] == [3, 3, 3, 4, 4]
    assert asked == [(1, 2, 0), (1, 2, 0), (1, 2, 1), (1, 2, 1)]


def test_arguments_live_as_long_as_their_answers() -> None:
    @memoised
    def first(numbers: list[int]) -> int:
        return numbers[0]

    assert [first([n]) for n in range(1_000)] == list(range(1_000))


def test_it_begins_anew_when_it_knows_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    asked: list[int] = []

    @memoised
    def first(numbers: list[int]) -> int:
        asked.append(numbers[0])
        return numbers[0]

    lists = [[n] for n in range(4)]
    for _ in range(2):
        assert [first(each) for each in lists] == [0, 1, 2, 3]
    assert len(asked) > 4
