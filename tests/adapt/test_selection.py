"""Selection: warm-up, bounded exploration, the best runs, changes are learned, and everything repeats by its seed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.experiments.tcep_learning import STATIONARY, STAY, WARM_UP, Phase, play
from meander.adapt.fitness import Fitness
from meander.adapt.selection import SELECTORS, Candidate, Question, selector
from meander.adapt.selection.ranking import LinearRanking
from meander.adapt.selection.requirement import by_requirement, match, prior
from meander.model.demands import Demand, Metric
from meander.model.errors import InputError
from meander.place.mechanisms import MECHANISMS
from meander.place.mechanisms.base import Metadata

LEARNING = [s.name for s in SELECTORS if s.name != "requirement"]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    demands = draw(st.integers(0, 3))
    shares = st.lists(st.floats(0, 1), min_size=demands, max_size=demands)
    candidates = [
        Candidate(f"m{i}", draw(shares), draw(shares), *(draw(st.booleans()) for _ in range(3)))
        for i in range(draw(st.integers(1, 6)))
    ]
    weights = draw(st.lists(st.floats(0.1, 5), min_size=demands, max_size=demands))
    return Question(candidates, weights, draw(st.sampled_from([None, "m0", "gone"])), draw(st.booleans()))


@pytest.mark.parametrize("kind", SELECTORS, ids=lambda s: s.name)
@given(question=questions(), seed=st.integers(0, 99))
def test_every_question_has_an_answer_that_repeats(kind: type, question: Question, seed: int) -> None:
    first, second = kind().choose(question, Random(seed)), kind().choose(question, Random(seed))
    assert first == second
    assert first.mechanism in {c.mechanism for c in question.candidates}
    assert first.reason


def test_warm_up_tries_all_in_order_then_the_best_runs() -> None:
    outcome = play([Phase(30, (0.0, 1.0, 0.0))], LinearRanking(explore=0), 1)
    assert outcome.chosen[: 3 * STAY] == [0] * STAY + [1] * STAY + [2] * STAY
    assert set(outcome.chosen[3 * STAY :]) == {1}


def test_what_may_not_be_tried_is_not_tried() -> None:
    spared = Candidate("risky", (0.9,), (0.0,), tried=False, may_try=False)
    known = Candidate("known", (0.95,), (9.0,))
    for name in LEARNING:
        chosen = {
            selector(name).choose(Question([spared, known], (1.0,), "known"), Random(i)).mechanism for i in range(99)
        }
        assert chosen == {"known"}, name


@pytest.mark.parametrize("seed", range(5))
def test_the_best_runs_nine_of_ten_times_in_a_stationary_environment(seed: int) -> None:
    outcome = play([STATIONARY], selector("linear_ranking"), seed)
    assert outcome.share(STATIONARY.best, WARM_UP, STATIONARY.rounds) >= 0.9


@pytest.mark.parametrize("count", [3, 5, 9])
def test_a_broken_best_is_replaced_within_the_stated_rounds(count: int) -> None:
    """Docs: 10 rounds and two stays for each mechanism, in 95 of 100 worlds."""
    slow, worlds = 0, 200
    for seed in range(worlds):
        rng = Random(seed)
        broken, best = rng.sample(range(count), 2)
        before = [rng.uniform(0.05, 0.6) for _ in range(count)]
        after = [rng.uniform(0.0, 0.5) for _ in range(count)]
        before[broken], after[broken], after[best] = rng.uniform(0.9, 1), rng.uniform(0, 0.1), rng.uniform(0.9, 1)
        outcome = play([Phase(150, tuple(before)), Phase(100, tuple(after))], LinearRanking(), seed)
        slow += outcome.learned_after(best, 150, 250) > 10 + 2 * STAY * count
    assert slow <= 0.05 * worlds


def test_a_surprise_puts_what_is_known_of_others_in_doubt() -> None:
    fitness = Fitness()
    for _ in range(9):
        fitness.learn("other", "d", False)
    for _ in range(20):
        fitness.learn("best", "d", True)
    assert not fitness.beliefs("other", ("d",)).doubted
    for _ in range(4):
        fitness.learn("best", "d", False)
    other = fitness.beliefs("other", ("d",))
    assert other.doubted
    assert other.samples[0] <= 1
    assert fitness.beliefs("best", ("d",)).estimates[0] < other.estimates[0]
    fitness.learn("other", "d", True)
    assert not fitness.beliefs("other", ("d",)).doubted


def test_two_environments_are_remembered_apart() -> None:
    calm, rush = Phase(120, (0.95, 0.1), "calm"), Phase(120, (0.1, 0.95), "rush")
    outcome = play([calm, rush, calm, rush, calm], LinearRanking(explore=0.02), 7)
    for start, best in ((240, 0), (360, 1), (480, 0)):
        assert outcome.learned_after(best, start, start + 120) <= STAY


@pytest.mark.parametrize("name", LEARNING)
def test_seeded_runs_repeat(name: str) -> None:
    assert play([STATIONARY], selector(name), 3) == play([STATIONARY], selector(name), 3)


def test_requirements_order_mechanisms_by_what_they_optimise() -> None:
    known = {m.name: m.metadata for m in MECHANISMS}
    frugal = by_requirement(known, [Demand.of("overhead", "<", "1 MB")])
    fast = by_requirement(known, [Demand.of("latency", "<", "1 s")])
    assert frugal[0] == "mdcep"
    assert fast[0] == "relaxation"
    assert frugal[-1] == fast[-1] == "random"
    assert by_requirement(known, []) == list(known)


def test_the_first_aim_counts_most() -> None:
    metadata = Metadata((Metric.OVERHEAD, Metric.LATENCY), "")
    latency, overhead = Demand.of("latency", "<", "1 s"), Demand.of("overhead", "<", "1 B", 2)
    assert match(metadata, [latency, overhead]) == 2.5
    assert prior(metadata, overhead) > prior(metadata, latency) > prior(metadata, Demand.of("hops", "<", "3"))


def test_an_unknown_selector_is_named() -> None:
    with pytest.raises(InputError, match="no selector 'thomson'; known selectors: thompson"):
        selector("thomson")


def test_too_much_exploration_is_refused() -> None:
    with pytest.raises(InputError, match="share of exploration"):
        LinearRanking(explore=0.9)
