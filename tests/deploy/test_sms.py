"""Where old operators end and new ones begin: results from that time on are complete, and no later time would do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest

from lab.workloads import tcep as road
from meander.deploy.protocols.sms import complete_from, limits, obstacle, split
from meander.deploy.protocols.transitions import TRANSITIONS, transition_protocol
from meander.model.errors import InputError
from meander.model.events import QueryAdded
from meander.model.expressions.tree import Named, literal
from meander.model.ids import OperatorId
from meander.model.operators import Conjunction, Filter, Operator, Sequence, Source, WindowAggregate, WindowJoin
from meander.model.windows import Count, Session, Sliding, Tumbling, Within
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

KEYS = (Named("k", literal(1)),)
SPAN = 44
"""Times of tuples in these tests are below this."""


@cache
def windows(spec: Operator, time: int) -> list[int]:
    window = getattr(spec, "window", None)
    assert isinstance(window, Tumbling | Sliding)
    slide = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    return [w for w in range(-window.size_ms, time + 1) if w % slide == 0 and w <= time < w + window.size_ms]


def results(spec: Operator, times: Iterable[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Time of each result, and the tuples in it, by definition."""
    known = sorted(times)
    if isinstance(spec, WindowAggregate):
        assert isinstance(spec.window, Tumbling | Sliding)
        starts = {w for t in known for w in windows(spec, t)}
        inside = {w: tuple(t for t in known if w <= t < w + spec.window.size_ms) for w in starts}
        return [(w + spec.window.size_ms, members) for w, members in inside.items()]
    pairs = [(a, b) for a in known for b in known]
    if isinstance(spec, Sequence):
        return [(b, (a, b)) for a, b in pairs if 0 < b - a <= spec.within_ms]
    assert isinstance(spec, Conjunction | WindowJoin)
    if isinstance(spec.window, Within):
        return [(max(p), p) for p in pairs if abs(p[0] - p[1]) <= spec.window.ms]
    return [(max(p), p) for p in pairs for w in windows(spec, p[0]) if w in windows(spec, p[1])]


SPECS: tuple[Operator, ...] = (
    WindowAggregate(Tumbling(7), KEYS, ()),
    WindowAggregate(Sliding(9, 4), KEYS, ()),
    WindowAggregate(Sliding(8, 4), KEYS, ()),
    Conjunction(Tumbling(6)),
    Conjunction(Sliding(10, 3)),
    Conjunction(Within(5)),
    WindowJoin(Within(5), (("a", "b"),)),
    WindowJoin(Sliding(6, 2), (("a", "b"),)),
    Sequence(within_ms=4),
)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_from_that_time_on_nothing_is_missing_and_from_no_earlier_time(spec: Operator) -> None:
    everything = range(SPAN)
    for since in range(12, 22):
        complete = complete_from(spec, since)
        assert complete is not None
        whole, young = results(spec, everything), results(spec, range(since, SPAN))

        def later(found: list[tuple[int, tuple[int, ...]]], start: int) -> list[tuple[int, tuple[int, ...]]]:
            return sorted(r for r in found if r[0] >= start)

        assert later(whole, complete) == later(young, complete)
        earlier = max((t for t, _ in whole if t < complete), default=complete)
        assert later(whole, earlier) != later(young, earlier), (since, complete, earlier)


def test_operators_without_state_pass_time_on_and_endless_windows_have_none() -> None:
    assert complete_from(Filter(literal(True)), 17) == 17
    assert complete_from(WindowAggregate(Session(5), KEYS, ()), 17) is None
    assert complete_from(WindowAggregate(Count(4, 2), KEYS, ()), 17) is None
    assert "session" in (obstacle(WindowAggregate(Session(5), KEYS, ())) or "")
    assert "count" in (obstacle(WindowAggregate(Count(4, 2), KEYS, ())) or "")
    assert obstacle(Sequence(within_ms=4)) is None


def congestion() -> Catalog:
    catalog = Catalog(road.topology(), road.streams(), dict(road.SINKS))
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, road.query("congestion", within="3 s"))])
    return catalog


def test_windows_that_are_aligned_wait_once_however_many_follow_each_other() -> None:
    plan = congestion().plan
    moving = [o for o, r in plan.operators.items() if r.pin is None]
    beside, at_marker, reasons = split(plan, moving)
    assert set(beside) == set(moving)
    assert not at_marker
    assert not reasons
    seen: dict[OperatorId, int] = dict.fromkeys(moving, 10_300)
    entered = dict.fromkeys(plan.operators, 0)
    found = limits(plan, moving, seen, entered)
    (sequence,) = (o for o, r in plan.operators.items() if isinstance(r.spec, Sequence))
    assert found[sequence] == 12_000 + 3_000  # windows of a second to 11 s, their means at 11 s, one window more
    entered[next(o for o, r in plan.operators.items() if isinstance(r.spec, Source))] = 99_500
    assert limits(plan, moving, seen, entered)[sequence] == 101_000 + 3_000


def test_what_has_no_window_before_it_moves_at_a_marker() -> None:
    catalog = Catalog(road.topology(), road.streams(), dict(road.SINKS))
    Engine(catalog, mechanism("bottom_up")).run([QueryAdded(0, road.query(kind)) for kind in ("filter", "join")])
    plan = catalog.plan
    moving = [o for o, r in plan.operators.items() if r.pin is None]
    beside, at_marker, _ = split(plan, moving)
    assert {type(plan[o].spec) for o in at_marker} == {Filter}
    assert any(isinstance(plan[o].spec, WindowJoin) for o in beside)
    join = next(o for o in beside if isinstance(plan[o].spec, WindowJoin))
    rest = [o for o in moving if o != join]
    assert split(plan, rest)[0] == []  # what the join gives passes through as it is


@pytest.mark.parametrize("protocol", TRANSITIONS, ids=lambda p: p.name)
def test_every_protocol_moves_every_operator_once(protocol: object) -> None:
    plan = congestion().plan
    rng = np.random.default_rng(3)
    free = [o for o, r in plan.operators.items() if r.pin is None]
    moving = [OperatorId(int(o)) for o in rng.choice(free, 12, replace=False)]
    found = transition_protocol(getattr(protocol, "name", "")).plan(plan, moving)
    assert sorted(o for step in found.steps for o in step.operators) == sorted(moving)
    assert set(found.apart) == {o for s in found.steps for o in s.operators if s.protocol and s.protocol.overlaps}


def test_an_unknown_protocol_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="sms_concurrent"):
        transition_protocol("sms")
