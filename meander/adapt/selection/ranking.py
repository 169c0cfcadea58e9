"""Linear ranking with a bounded share of exploration: the best runs, and now and then another one is drawn by rank.

Drawing every time by rank, as published, leaves the best of five mechanisms more than half of the time. Here a draw
happens with probability `explore`, so the best runs at least 1 - `explore` of the time.
"""

from __future__ import annotations

from random import Random

from meander.adapt.fitness import scores
from meander.adapt.selection.base import Choice, Question, Selector, best, untried
from meander.adapt.selection.rank_probabilities import linear_ranking
from meander.model.errors import InputError

EXPLORE = 0.05


class LinearRanking(Selector):
    """Warm-up round first, then the best by score; `eta_minus` fixes the pressure of exploration."""

    name = "linear_ranking"

    def __init__(self, explore: float = EXPLORE, eta_minus: float | None = None, *, warm_up: bool = True) -> None:
        if not 0 <= explore <= 0.5:
            raise InputError(f"the share of exploration must lie between 0 and 0.5, not {explore}")
        self.explore, self.eta_minus, self.warm_up = explore, eta_minus, warm_up

    def choose(self, question: Question, rng: Random) -> Choice:
        fresh = untried(question) if self.warm_up else None
        if fresh is not None:
            since = "since the world changed" if fresh.tried else "yet"
            return Choice(fresh.mechanism, f"warm-up: it has not been tried {since}", exploring=True)
        found = scores([c.estimates for c in question.candidates], question.weights)
        top = best(question, found)
        if question.may_explore and rng.random() < self.explore:
            odds = linear_ranking(found, self.eta_minus)
            (drawn,) = rng.choices(range(len(odds)), odds)
            if drawn != top and question.candidates[drawn].may_try:
                reason = f"exploration: drawn by rank with probability {odds[drawn]:.2f}"
                return Choice(question.candidates[drawn].mechanism, reason, exploring=True)
        return Choice(question.candidates[top].mechanism, f"best score, {found[top]:+.2f}")
