"""The report of an experiment: figures with their spread over repeats, and whether each target holds."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity, once per repeat. With a goal it is a target: the median must not exceed the goal.

    With `at_least`, it must not fall below the goal instead.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    goal: float | None = None
    at_least: bool = False

    @staticmethod
    def of(
        name: str, unit: str, values: Sequence[float], goal: float | None = None, *, at_least: bool = False
    ) -> Figure:
        return Figure(name, unit, tuple(float(v) for v in values), goal, at_least)

    @property
    def measured(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        if self.goal is None:
            return True
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    @property
    def wanted(self) -> str:
        """The goal in short; empty without one."""
        return "" if self.goal is None else f"{'>=' if self.at_least else '<='} {self.goal:g}"

    def as_json(self) -> dict[str, Any]:
        shown = {
            "name": self.name,
            "measured": rounded(self.measured),
            "lowest": rounded(min(self.values)),
            "highest": rounded(max(self.values)),
            "unit": self.unit,
        }
        if self.goal is None:
            return shown
        kind = {"goal_is": "at least"} if self.at_least else {}
        return shown | {"goal": self.goal} | kind | {"holds": self.holds}


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one experiment. `data` names the data sets, `notes` explain the figures."""

    bench: str
    data: str
    repeats: int
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[Figure, ...]:
        return tuple(figure for figure in self.figures if figure.goal is not None)

    @property
    def holds(self) -> bool:
        return all(target.holds for target in self.targets)

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "data": self.data,
            "repeats": self.repeats,
            "holds": self.holds,
            "targets": [target.as_json() for target in self.targets],
            "figures": [figure.as_json() for figure in self.figures if figure.goal is None],
            "notes": list(self.notes),
            "machine": machine(),
        }


def machine() -> dict[str, Any]:
    """The machine that the figures depend on."""
    return {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def rounded(value: float) -> float:
    """Four significant digits, as more would only be noise; counts are kept as they are."""
    return value if float(value).is_integer() else float(f"{value:.4g}")
