"""Where nodes are to be next, as a timetable says."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.adapt.mobility import PREDICTORS, check_predictor
from meander.adapt.mobility.predictor import Attachment, ExpectedMove, line_of
from meander.adapt.mobility.timetable import DAY_MS, TimetablePredictor
from meander.model.errors import InputError

TABLE = """node,time,attachment
train-1,08:00:00,A
train-1,08:10:00,B
train-1,08:20:00,C
train-1,08:30:00,A

bus-1,1970-01-02T00:00:10Z,X
bus-1,1970-01-02T00:00:20+00:00,Y
"""
EIGHT = 8 * 3_600_000
MINUTE = 60_000


def table(tmp_path: Path, text: str = TABLE) -> TimetablePredictor:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return TimetablePredictor.load(path)


def at(predictor: TimetablePredictor, node: str, attachment: str, at_ms: int) -> None:
    predictor.moved(Attachment(node, "line", attachment, at_ms))


def test_a_node_is_expected_at_its_next_place_when_the_table_says(tmp_path: Path) -> None:
    predictor, day = table(tmp_path), 20_000 * DAY_MS
    at(predictor, "train-1", "A", day + EIGHT + 500)
    assert predictor.next("train-1", day + EIGHT + 4 * MINUTE) == ExpectedMove("train-1", "B", 1.0, 6 * MINUTE)
    assert predictor.next("train-1", day + EIGHT + 13 * MINUTE) == ExpectedMove("train-1", "B", 1.0, 0.0)  # it is late
    at(predictor, "train-1", "B", day + EIGHT + 13 * MINUTE)
    assert predictor.next("train-1", day + EIGHT + 13 * MINUTE) == ExpectedMove("train-1", "C", 1.0, 7 * MINUTE)
    at(predictor, "train-1", "A", day + EIGHT + 30 * MINUTE)
    found = predictor.next("train-1", day + EIGHT + 40 * MINUTE)
    assert found is not None
    assert (found.attachment, found.in_ms) == ("B", DAY_MS - 30 * MINUTE)  # tomorrow


def test_one_that_is_elsewhere_is_expected_where_it_is_to_be_next_by_the_clock(tmp_path: Path) -> None:
    predictor = table(tmp_path)
    at(predictor, "train-1", "depot", EIGHT)
    assert predictor.next("train-1", EIGHT + 11 * MINUTE) == ExpectedMove("train-1", "C", 1.0, 9 * MINUTE)


def test_moments_hold_once(tmp_path: Path) -> None:
    predictor = table(tmp_path)
    at(predictor, "bus-1", "X", DAY_MS + 10_000)
    assert predictor.next("bus-1", DAY_MS + 12_000) == ExpectedMove("bus-1", "Y", 1.0, 8_000)
    at(predictor, "bus-1", "Y", DAY_MS + 20_000)
    assert predictor.next("bus-1", DAY_MS + 20_000) is None
    assert predictor.next("bus-2", 0) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train-1,noon,A\n", "line 1: 'noon' is no time; write 2026-05-01T08:00:00Z, or 08:00:00 for every day"),
        ("node,time,attachment\ntrain-1,08:00\n", "line 2: write node,time,attachment, not 'train-1,08:00'"),
        ("train-1,25:00:00,A\n", "line 1: '25:00:00' is no time"),
    ],
)
def test_bad_tables_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        table(tmp_path, text)
    assert message in str(refused.value)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the timetable cannot be read: No such file"):
        TimetablePredictor.load(tmp_path / "missing.csv")


def test_predictors_are_known_by_name() -> None:
    assert list(PREDICTORS) == ["off", "markov", "timetable"]
    check_predictor("markov")
    with pytest.raises(InputError, match="no prediction 'oracle'; known prediction"):
        check_predictor("oracle")


def test_nodes_whose_names_differ_in_numbers_are_one_line() -> None:
    assert line_of("sensor", "train-1") == line_of("sensor", "train-27") != line_of("edge", "train-1")
