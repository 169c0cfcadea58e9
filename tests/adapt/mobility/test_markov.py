"""Where nodes go next, learned from their moves: habits, lines, directions, new routes, and what survives a restart."""

from __future__ import annotations

import json

import pytest

from meander.adapt.mobility.markov import MarkovPredictor
from meander.adapt.mobility.predictor import Attachment
from meander.model.errors import InputError


def drive(predictor: MarkovPredictor, node: str, stations: str, start_ms: int = 0, stay_ms: int = 1_000) -> int:
    """A node at one station after the other; the time of its last arrival."""
    for number, station in enumerate(stations):
        predictor.moved(Attachment(node, "train-#", station, start_ms + number * stay_ms))
    return start_ms + (len(stations) - 1) * stay_ms


def test_a_node_goes_where_it_went_before_after_as_long_a_stay() -> None:
    predictor = MarkovPredictor()
    now = drive(predictor, "train-1", "ABCDABCDABCDA", stay_ms=4_000)
    found = predictor.next("train-1", now + 1_000)
    assert found is not None
    assert (found.attachment, found.in_ms) == ("B", 3_000)
    assert found.probability > 0.9


def test_nothing_is_expected_of_a_node_that_was_never_seen_to_move() -> None:
    predictor = MarkovPredictor()
    assert predictor.next("train-1", 0) is None
    drive(predictor, "train-1", "A")
    assert predictor.next("train-1", 5_000) is None


def test_the_moves_of_a_line_are_a_prior_for_a_node_that_is_new_on_it() -> None:
    predictor = MarkovPredictor()
    drive(predictor, "train-1", "ABCABCABC")
    drive(predictor, "train-9", "B", start_ms=50_000)
    found = predictor.next("train-9", 50_400)
    assert found is not None
    assert (found.attachment, found.in_ms) == ("C", 600)
    assert 0.7 < found.probability < 1
    predictor.moved(Attachment("bus-1", "bus-#", "B", 50_000))
    assert predictor.next("bus-1", 50_400) is None


def test_where_it_came_from_says_where_it_goes() -> None:
    predictor = MarkovPredictor()
    there_and_back = "ABCDCB" * 8
    for end, expected in (("ABC", "D"), ("ABCDC", "B")):
        node = f"train-{expected}"
        drive(predictor, node, there_and_back + end)
        found = predictor.next(node, 10**6)
        assert found is not None
        assert found.attachment == expected
        assert found.probability > 0.8


def test_a_habit_of_its_own_counts_more_than_that_of_the_line() -> None:
    predictor = MarkovPredictor()
    for number in range(5):
        drive(predictor, f"train-{number}", "ABCABCABC")
    drive(predictor, "train-7", "ABXABXABXAB")
    found = predictor.next("train-7", 10**6)
    assert found is not None
    assert found.attachment == "X"


def test_a_new_route_is_learned_although_the_old_one_was_driven_for_long() -> None:
    predictor = MarkovPredictor()
    drive(predictor, "train-1", "ABC" * 300)
    drive(predictor, "train-1", "ABX" * 40 + "AB", start_ms=10**7)
    found = predictor.next("train-1", 10**9)
    assert found is not None
    assert found.attachment == "X"
    assert found.in_ms is None  # it has stayed far longer than ever


def test_what_was_never_seen_has_a_share() -> None:
    predictor = MarkovPredictor()
    drive(predictor, "train-1", "AB")
    drive(predictor, "train-2", "A")
    found = predictor.next("train-2", 1_000)
    assert found is not None
    assert found.probability == 0.5


def test_what_was_learned_survives_a_restart() -> None:
    predictor, again = MarkovPredictor(), MarkovPredictor()
    now = drive(predictor, "train-1", "ABCDABCDAB")
    drive(predictor, "train-2", "BCD")
    again.learn(json.loads(json.dumps(predictor.as_json())))
    for node in ("train-1", "train-2"):
        assert again.next(node, now) == predictor.next(node, now) is not None
    with pytest.raises(InputError, match="only version 1 can be read"):
        again.learn({"version": 7})
