"""The settings of prediction: what is read, and what is refused with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meander.adapt.mobility.markov import MarkovPredictor
from meander.adapt.mobility.settings import PredictionSettings
from meander.adapt.mobility.timetable import TimetablePredictor
from meander.model.errors import InputError


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    assert PredictionSettings.of({}, tmp_path) == PredictionSettings()
    assert PredictionSettings().predictor() is None
    found = PredictionSettings.of({"mode": "markov", "max_bytes": "2MB", "lead": "5s", "keep": "1min"}, tmp_path)
    assert (found.most_bytes, found.lead_ms, found.keep_ms) == (2_000_000, 5_000, 60_000)
    assert isinstance(found.predictor(), MarkovPredictor)


def test_moves_of_named_nodes_only_are_prepared_for(tmp_path: Path) -> None:
    found = PredictionSettings.of({"mode": "markov", "nodes": "train-*, bus-7"}, tmp_path)
    assert [found.covers(node) for node in ("train-1", "bus-7", "bus-71", "tram-1")] == [True, True, False, False]
    assert PredictionSettings().covers("tram-1")


def test_a_timetable_is_enough_to_ask_it(tmp_path: Path) -> None:
    (tmp_path / "trains.csv").write_text("train-1,08:00:00,base-1\n")
    found = PredictionSettings.of({"timetable": "trains.csv"}, tmp_path)
    assert found.mode == "timetable"
    assert isinstance(found.predictor(), TimetablePredictor)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"modus": "markov"}, "no setting of prediction 'modus'; known settings of prediction: mode, nodes, keep"),
        ({"mode": "oracle"}, "no prediction 'oracle'"),
        ({"mode": "timetable"}, 'prediction by timetable needs the file: timetable = "trains.csv"'),
        ({"min_probability": 1.5}, "prediction.min_probability is 1.5; it must be above 0 and at most 1"),
        ({"min_probability": "high"}, "prediction.min_probability must be a number, not 'high'"),
        ({"nodes": " , "}, "prediction.nodes names no node"),
        ({"lead": "soon"}, "'soon' is not a duration"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        PredictionSettings.of(table, tmp_path)
    assert message in str(refused.value)
