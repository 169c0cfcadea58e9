"""`steady`: moves while one pays, whatever else cannot be moved, and then lets everything be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.run.channels.base import Int64s
from meander.run.fragments.loads import Loads
from meander.run.rebinding.policies import policy
from meander.run.rebinding.policies.steady import Steady, share_of

STEADY = Steady()
RNG = np.random.default_rng(0)


def loads_of(
    bound: list[int], work_s: list[float], templates: list[int] | None = None, below: list[int] | None = None
) -> Loads:
    rows = np.arange(len(bound))
    one = np.ones(len(bound), np.int64)
    numbers = np.zeros(len(bound), np.int64) if templates is None else np.array(templates)
    reads = None if below is None else np.array(below)
    return Loads(rows, np.array(bound, np.int64), 0 * one, one, np.array(work_s, np.float64), numbers, reads)


def of_slots(loads: Loads, slots: int, bound: Int64s | None = None) -> list[float]:
    found = np.bincount(loads.bound if bound is None else bound, loads.coming_s, minlength=slots)
    return [float(load) for load in found]


def settled(loads: Loads, slots: int, looks: int = 200) -> Loads:
    """As it is after many looks at the same loads; it has to come to rest."""
    for _ in range(looks):
        found = STEADY.decide(loads, slots, RNG)
        if (found == loads.bound).all():
            return loads
        loads = replace(loads, bound=found)
    raise AssertionError(f"moves did not end within {looks} looks")


# ---------------------------------------------------------------- one that is too big


@pytest.mark.parametrize("templates", [[0] * 9, list(range(9)), [0] + [1] * 8])
def test_a_fragment_too_big_for_any_move_stopped_the_balancing_of_all_others(templates: list[int]) -> None:
    loads = loads_of([0] + [1] * 8, [10.0] + [1.0] * 8, templates)
    found = STEADY.decide(loads, 4, RNG)
    assert found[0] == 0
    assert sorted(of_slots(loads, 4, found)) == [2.0, 3.0, 3.0, 10.0]


def test_a_slot_far_above_all_others_hid_how_uneven_they_are() -> None:
    loads = loads_of([0] + [1] * 8, [1000.0] + [1.0] * 8)
    assert sorted(of_slots(loads, 4, STEADY.decide(loads, 4, RNG))) == [2.0, 3.0, 3.0, 1000.0]


def test_several_too_big_ones_are_set_aside_one_after_the_other() -> None:
    loads = loads_of([0, 1, 2, *[3] * 6], [100.0, 50.0, 20.0, *[1.0] * 6])
    assert sorted(of_slots(loads, 6, STEADY.decide(loads, 6, RNG))) == [2.0, 2.0, 2.0, 20.0, 50.0, 100.0]


def test_a_big_one_that_shares_its_slot_is_left_alone_there() -> None:
    loads = loads_of([0] * 9, [10.0] + [1.0] * 8)
    assert sorted(of_slots(settled(loads, 4), 4)) == [2.0, 3.0, 3.0, 10.0]


def test_a_template_is_not_gathered_where_that_would_be_undone() -> None:
    """By the average of all slots there would be room for everything in one slot beside the big one."""
    loads = loads_of([0, 1, 2, 3], [100.0, 3.0, 3.0, 3.0], [0, 1, 1, 1])
    assert STEADY.decide(loads, 4, RNG).tolist() == [0, 1, 2, 3]


def test_another_fragment_is_tried_when_the_best_one_would_begin_a_frame_that_costs_too_much() -> None:
    """The best one runs as a template of its own; the least loaded slot runs the other one's already."""
    loads = loads_of([0, 0, 0, 1], [0.05, 0.05, 0.03, 0.0], [0, 0, 1, 1])
    assert STEADY.decide(loads, 2, RNG).tolist() == [0, 0, 1, 1]


def test_greedy_does_not_stop_at_a_fragment_that_is_too_big() -> None:
    loads = loads_of([0] + [1] * 8, [10.0] + [1.0] * 8)
    pending = replace(loads, pending=np.ones(9, np.int64))
    found = policy("greedy").decide(pending, 4, np.random.default_rng(0))
    assert (found[1:] != 1).sum() == 4


# ---------------------------------------------------------------- light fragments


def test_a_reader_held_all_its_light_writers_in_one_slot() -> None:
    """Forty fragments of 1 write to one reader: they stayed with it, however uneven the slots were."""
    writers = 40
    loads = loads_of([0] * (writers + 1), [1.0] * (writers + 1), None, [writers] * writers + [-1])
    after = of_slots(settled(loads, 4), 4)
    assert max(after) <= STEADY.begin * 41 / 4 + STEADY.move_s


def test_a_light_fragment_still_goes_where_its_reader_is() -> None:
    loads = loads_of([1, 0, 1], [0.05, 5.0, 5.0], None, [1, -1, -1])
    assert STEADY.decide(loads, 2, RNG).tolist() == [0, 0, 1]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0]), max_size=12), st.integers(1, 5))
def test_the_share_of_a_slot_is_what_slots_without_a_bigger_fragment_have_on_average(
    work: list[float], slots: int
) -> None:
    share = share_of(np.array(work), slots)
    bigger = [w for w in sorted(work, reverse=True) if w > share][: slots - 1]
    assert share == pytest.approx((sum(work) - sum(bigger)) / (slots - len(bigger)))


# ---------------------------------------------------------------- properties


@st.composite
def some_loads(draw: st.DrawFn) -> tuple[Loads, int]:
    """Few or many fragments, some of them far too big, some far too small to be worth a move."""
    slots, count = draw(st.integers(2, 6)), draw(st.integers(0, 24))
    weights = st.sampled_from([0.0, 0.001, 0.01, 0.04, 0.13, 0.3, 1.0, 1.0, 1.1, 2.0, 7.0, 10.0, 100.0])
    bound = draw(st.lists(st.integers(0, slots - 1), min_size=count, max_size=count))
    work = draw(st.lists(weights, min_size=count, max_size=count))
    templates = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return loads_of(bound, work, templates), slots


@st.composite
def with_readers(draw: st.DrawFn) -> tuple[Loads, int]:
    loads, slots = draw(some_loads())
    rows = loads.bound.size
    below = [draw(st.integers(-1, rows - 1)) for _ in range(rows)]
    return replace(loads, below=np.array([b if b != i else -1 for i, b in enumerate(below)], np.int64)), slots


def a_move_pays(loads: Loads, slots: int) -> bool:
    """Whether a single move lowers the load of the busiest slot that any single move can lower, by enough."""
    work, bound = loads.coming_s.tolist(), loads.bound.tolist()
    load = of_slots(loads, slots)
    left = list(range(slots))
    while len(left) > 1:
        top = max(left, key=lambda s: load[s])
        if load[top] <= STEADY.begin * sum(load[s] for s in left) / len(left) + STEADY.move_s:
            return False
        for fragment, weight in enumerate(work):
            for slot in left:
                if bound[fragment] != top or slot == top:
                    continue
                runs = {int(loads.templates[f]) for f in range(len(work)) if bound[f] == slot}
                opening = 0.0 if int(loads.templates[fragment]) in runs else STEADY.opening_s
                gap = load[top] - load[slot]
                if gap > 2 * opening and min(weight, gap - weight - opening) > STEADY.move_s + 1e-9:
                    return True
        left.remove(top)
    return False


def frames(loads: Loads, bound: Int64s) -> int:
    return len(set(zip(loads.templates.tolist(), bound.tolist(), strict=True)))


@settings(max_examples=150, deadline=None)
@given(some_loads())
def test_a_move_is_made_whenever_one_pays(given_loads: tuple[Loads, int]) -> None:
    loads, slots = given_loads
    found = STEADY.decide(loads, slots, RNG)
    before, after = np.array(of_slots(loads, slots)), np.array(of_slots(loads, slots, found))
    if a_move_pays(loads, slots):
        assert (found != loads.bound).any()
        assert (after**2).sum() < (before**2).sum()
        assert after.max() <= before.max() + 1e-9
    elif (found != loads.bound).any():  # a template was gathered, or given away as a whole
        assert frames(loads, found) < frames(loads, loads.bound) or (after**2).sum() < (before**2).sum()


@settings(max_examples=150, deadline=None)
@given(with_readers())
def test_moves_end_when_light_fragments_follow_their_readers(given_loads: tuple[Loads, int]) -> None:
    loads, slots = given_loads
    settled(loads, slots, looks=10 + 4 * loads.bound.size)


@settings(max_examples=150, deadline=None)
@given(some_loads())
def test_moves_end_when_loads_stay_as_they_are(given_loads: tuple[Loads, int]) -> None:
    loads, slots = given_loads
    squares, gathered = float("inf"), False
    for _ in range(10 + 4 * loads.bound.size):
        found = STEADY.decide(loads, slots, RNG)
        if (found == loads.bound).all():
            return
        now = float((np.array(of_slots(loads, slots, found)) ** 2).sum())
        if gathered:  # once templates are gathered, that is all that goes on
            assert frames(loads, found) < frames(loads, loads.bound)
        gathered = now >= squares
        squares = now
        loads = replace(loads, bound=found)
    raise AssertionError("moves did not end")


@settings(max_examples=100, deadline=None)
@given(some_loads())
def test_nothing_that_pays_is_left_when_moves_have_ended(given_loads: tuple[Loads, int]) -> None:
    loads, slots = given_loads
    assert not a_move_pays(settled(loads, slots), slots)
