"""The settings of prediction, as `[prediction]` in `meander.toml` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from meander.adapt.mobility import PREDICTORS, check_predictor
from meander.adapt.mobility.predictor import Predictor
from meander.adapt.mobility.timetable import TimetablePredictor
from meander.model.errors import InputError, unknown
from meander.model.units import duration_ms, size_bytes


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """The prediction of mobile nodes' moves, and its bounds."""

    mode: str = "off"
    """The predictor, or `off`."""
    timetable: Path | None = None
    least_probability: float = 0.6
    """Less likely moves are not prepared for."""
    most_bytes: int = 64_000_000
    """How much state waits at one node for moves that may never be."""
    lead_ms: int = 20_000
    """How long before a move its preparation begins."""
    keep_ms: int = 60_000
    """How long what was prepared is kept beyond the moment at which the move was expected."""
    nodes: tuple[str, ...] = ("*",)
    """The mobile nodes whose moves are prepared for: names, and patterns with `*` and `?`."""

    def covers(self, node: str) -> bool:
        """Whether the moves of a node are prepared for."""
        return any(fnmatchcase(node, pattern) for pattern in self.nodes)

    @staticmethod
    def of(table: Mapping[str, Any], base: Path) -> PredictionSettings:
        """Reads and checks a table of settings; relative paths begin at `base`."""
        for key, value in table.items():
            if key not in KEYS:
                raise unknown("setting of prediction", key, KEYS, plural="settings of prediction")
            if not isinstance(value, KEYS[key]) or isinstance(value, bool):
                kind = "number" if KEYS[key] is not str else "str"
                raise InputError(f"prediction.{key} must be a {kind}, not {value!r}")
        usual = PredictionSettings()
        probability = float(table.get("min_probability", usual.least_probability))
        if not 0 < probability <= 1:
            raise InputError(f"prediction.min_probability is {probability:g}; it must be above 0 and at most 1")
        path = base / table["timetable"] if "timetable" in table else None
        found = PredictionSettings(
            table.get("mode", usual.mode if path is None else TimetablePredictor.NAME),
            path,
            probability,
            size_bytes(table["max_bytes"]) if "max_bytes" in table else usual.most_bytes,
            duration_ms(table["lead"]) if "lead" in table else usual.lead_ms,
            duration_ms(table["keep"]) if "keep" in table else usual.keep_ms,
            _patterns(table["nodes"]) if "nodes" in table else usual.nodes,
        )
        check_predictor(found.mode)
        found.predictor()
        return found

    def predictor(self) -> Predictor | None:
        """A new predictor; None if nothing is to be expected."""
        if self.mode == TimetablePredictor.NAME:
            if self.timetable is None:
                raise InputError('prediction by timetable needs the file: timetable = "trains.csv"')
            return TimetablePredictor.load(self.timetable)
        made = PREDICTORS[self.mode]
        return None if made is None else made()


def _patterns(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise InputError('prediction.nodes names no node; write names or patterns, such as "train-*", or leave it out')
    return found


KEYS: dict[str, Any] = {
    "mode": str,
    "timetable": str,
    "min_probability": (int, float),
    "max_bytes": str,
    "lead": str,
    "keep": str,
    "nodes": str,
}
"""Settings, with their types."""
