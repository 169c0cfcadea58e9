"""Requirement-based selection: the mechanism whose aims are the demanded qualities. Learns nothing.

It also orders the candidates of the other selectors, so that their first choice is sensible when nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from meander.adapt.selection.base import Choice, Question, Selector
from meander.model.demands import Demand
from meander.place.mechanisms.base import Metadata


class Requirement(Selector):
    """The first candidate. They come ordered by how well their metadata match the demands."""

    name = "requirement"

    def choose(self, question: Question, rng: Random) -> Choice:
        return Choice(question.candidates[0].mechanism, "its metadata match the demands best")


def match(metadata: Metadata, demands: Sequence[Demand]) -> float:
    """The match of a mechanism's aims and the demands: its first aim counts 1, its second 1/2, and so on, by weight."""
    total = 0.0
    for demand in demands:
        if demand.metric in metadata.optimises:
            total += demand.weight / (1 + metadata.optimises.index(demand.metric))
    return total


def by_requirement(known: Mapping[str, Metadata], demands: Sequence[Demand]) -> list[str]:
    """Mechanisms by how well they match, best first; equal ones in the order of the table."""
    return sorted(known, key=lambda name: -match(known[name], demands))


def prior(metadata: Metadata, demand: Demand) -> float:
    """The belief about a mechanism and a demand before there are samples or forecasts."""
    if demand.metric not in metadata.optimises:
        return 0.4
    return 0.5 + 0.1 / (1 + metadata.optimises.index(demand.metric))
