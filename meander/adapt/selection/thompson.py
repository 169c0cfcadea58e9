"""Thompson sampling: draw how often each mechanism meets each demand from its samples, and run the best draw.

A contextual bandit: samples are kept per environment, and those of other environments are the prior. Exploration fades
by itself as samples gather, and comes back when a tally forgets.
"""

from __future__ import annotations

from random import Random

from meander.adapt.selection.base import Choice, Question, Selector, best, expected

PRIOR_SAMPLES = 2.0


class Thompson(Selector):
    """Beta posteriors, one draw per mechanism and demand."""

    name = "thompson"

    def choose(self, question: Question, rng: Random) -> Choice:
        means = expected(question)
        top = best(question, means)
        if not question.may_explore:
            return Choice(question.candidates[top].mechanism, f"best mean, {means[top]:.2f}")
        total = sum(question.weights) or 1.0
        drawn = []
        for number, candidate in enumerate(question.candidates):
            if not candidate.may_try and number != top:
                drawn.append(-1.0)
                continue
            value = 0.0
            for demand, weight in enumerate(question.weights):
                size = candidate.samples[demand] + PRIOR_SAMPLES
                mean = min(max(candidate.estimates[demand], 0.01), 0.99)
                value += weight / total * rng.betavariate(mean * size, (1 - mean) * size)
            drawn.append(value if question.weights else means[number])
        chosen = best(question, drawn)
        reason = f"best draw, {drawn[chosen]:.2f} at a mean of {means[chosen]:.2f}"
        return Choice(question.candidates[chosen].mechanism, reason, exploring=chosen != top)
