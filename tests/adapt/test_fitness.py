"""Fitness: estimates from samples, forgetting, and normalised scores."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.adapt.fitness import Fitness, Tally, scores, tallies_json, tallies_of
from meander.model.errors import InputError

DEMAND = "latency < 100 ms"
SAMPLES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.booleans(), st.sampled_from(["", "calm", "rush"])),
    max_size=60,
)


def fitness_of(samples: list[tuple[str, str, bool, str]]) -> Fitness:
    fitness = Fitness()
    for sample in samples:
        fitness.learn(*sample)
    return fitness


@given(samples=SAMPLES, prior=st.floats(0, 1))
def test_estimates_are_shares(samples: list[tuple[str, str, bool, str]], prior: float) -> None:
    fitness = fitness_of(samples)
    for context in ("", "calm", "storm"):
        assert 0 <= fitness.estimate("a", "x", context, prior) <= 1


@given(samples=SAMPLES)
def test_tallies_survive_a_file(samples: list[tuple[str, str, bool, str]]) -> None:
    fitness = fitness_of(samples)
    again = Fitness(tallies_of(json.loads(json.dumps(tallies_json(fitness.tallies)))))
    assert again.tallies == fitness.tallies
    for sample in (("a", "x", True, "calm"), ("b", "x", False, "")):
        fitness.learn(*sample)
        again.learn(*sample)
    assert again.estimate("a", "x", "calm") == fitness.estimate("a", "x", "calm")


def test_a_tally_with_missing_numbers_is_refused() -> None:
    with pytest.raises(InputError, match="a tally has 6 numbers, but m, d has 2"):
        tallies_of({"": {"m": {"d": [1.0, 2.0]}}})


def test_nothing_seen_leaves_the_prior() -> None:
    assert Fitness().estimate("m", DEMAND, prior=0.8) == 0.8


def test_many_samples_leave_little_of_the_prior() -> None:
    fitness = fitness_of([("m", DEMAND, True, "")] * 30)
    assert fitness.estimate("m", DEMAND, prior=0.0) > 0.9


def test_another_environment_is_only_a_prior() -> None:
    fitness = fitness_of([("m", DEMAND, True, "calm")] * 30)
    assert fitness.estimate("m", DEMAND, "rush") > 0.9
    fitness.learn("m", DEMAND, False, "rush")
    fitness.learn("m", DEMAND, False, "rush")
    assert fitness.estimate("m", DEMAND, "rush") < 0.4
    assert fitness.estimate("m", DEMAND, "calm") > 0.9


def test_a_run_of_surprises_outweighs_a_long_memory() -> None:
    tally = Tally()
    for number in range(100):
        tally.add(number % 20 != 0)
    assert tally.estimate() > 0.9
    for _ in range(4):
        tally.add(False)
    assert tally.estimate() < 0.2


def test_single_violations_do_not_wipe_the_memory() -> None:
    tally = Tally()
    for number in range(200):
        tally.add(number % 5 != 0)
    assert 0.7 < tally.estimate() < 0.9


def test_what_does_not_run_fades_towards_the_prior() -> None:
    fitness = fitness_of([("old", DEMAND, False, "")] * 5)
    before = fitness.estimate("old", DEMAND)
    for _ in range(500):
        fitness.learn("new", DEMAND, True)
    assert before < 0.2 < 0.3 < fitness.estimate("old", DEMAND) <= 0.5


@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.1, 9), min_size=2, max_size=2),
)
def test_scores_are_centred_and_grow_with_estimates(rows: list[list[float]], weights: list[float]) -> None:
    found = scores(rows, weights)
    assert sum(found) == pytest.approx(0, abs=1e-9)
    for row, score in zip(rows, found, strict=True):
        for other, lower in zip(rows, found, strict=True):
            if all(a >= b for a, b in zip(row, other, strict=True)):
                assert score >= lower - 1e-9


def test_noise_in_one_demand_does_not_outweigh_a_real_difference_in_another() -> None:
    """Scaling by the range alone would count 0.96 against 0.95 as much as 0.9 against 0.1."""
    good, bad = [0.95, 0.9], [0.96, 0.1]
    first, second = scores([good, bad], [1.0, 1.0])
    assert first > second + 0.4


def test_weights_decide_when_demands_conflict() -> None:
    fast, frugal = [1.0, 0.0], [0.0, 1.0]
    first, second = scores([fast, frugal], [2.0, 1.0])
    assert first > second
