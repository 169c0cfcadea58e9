"""Mobility: where mobile nodes go next. Predictors stand in one table, by name."""

from __future__ import annotations

from collections.abc import Mapping

from meander.adapt.mobility.markov import MarkovPredictor
from meander.adapt.mobility.predictor import Predictor
from meander.adapt.mobility.timetable import TimetablePredictor
from meander.model.errors import unknown

PREDICTORS: Mapping[str, type[Predictor] | None] = {
    "off": None,
    MarkovPredictor.NAME: MarkovPredictor,
    TimetablePredictor.NAME: TimetablePredictor,
}


def check_predictor(name: str) -> None:
    """Refuses a name that is none of the table."""
    if name not in PREDICTORS:
        raise unknown("prediction", name, PREDICTORS)
