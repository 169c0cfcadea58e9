"""Selectors, one file each, in the order people should try them."""

from __future__ import annotations

from meander.adapt.selection.base import Candidate, Choice, Question, Selector
from meander.adapt.selection.ranking import LinearRanking
from meander.adapt.selection.requirement import Requirement
from meander.adapt.selection.thompson import Thompson
from meander.adapt.settings import AdaptationSettings
from meander.model.errors import unknown

SELECTORS: tuple[type[Selector], ...] = (LinearRanking, Thompson, Requirement)


def selector(name: str) -> Selector:
    """A selector by its name."""
    table = {s.name: s for s in SELECTORS}
    if name not in table:
        raise unknown("selector", name, table)
    return table[name]()


def selector_of(settings: AdaptationSettings) -> Selector:
    """The selector that the settings name, with their share of exploration."""
    if settings.selector == LinearRanking.name:
        return LinearRanking(settings.exploration)
    return selector(settings.selector)


__all__ = ["SELECTORS", "Candidate", "Choice", "Question", "Selector", "selector", "selector_of"]
