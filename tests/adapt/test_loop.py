"""The MAPE-K loop on a world without placement: triggers, violated_rounds, hysteresis, quarantine, and no thrashing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.adapt.decisions import DecisionAction, Transition, TransitionOutcome, Trigger
from meander.adapt.knowledge import Knowledge
from meander.adapt.loop import AdaptationLoop
from meander.adapt.measures import EnvironmentMeasures
from meander.adapt.selection.ranking import LinearRanking
from meander.lang.demands import parse_demands
from meander.model.errors import InputError
from meander.model.ids import QueryId
from tests.adapt.fakes import ROUND_MS, SETTINGS, FakeWorld, Play, Q

FAST = "latency < 100 ms"


def two() -> FakeWorld:
    return FakeWorld({"plain": 200.0, "fast": 50.0}, forecast_ms={"plain": 200.0, "fast": 50.0})


def test_a_violated_demand_starts_a_transition_and_the_log_says_why() -> None:
    play = Play.of(two(), FAST)
    play.run(10)
    (switch,) = play.made(DecisionAction.SWITCH)
    assert (switch.trigger, switch.mechanism, switch.target) == (Trigger.VIOLATED, "plain", "fast")
    assert switch.readings == {"latency": 200.0}
    assert switch.forecasts["fast"] == {"latency": 50.0}
    assert switch.expected["fast"] > 0.9 > 0.5 > switch.expected["plain"]
    assert "forecast latency 50 ms" in switch.reason
    assert play.world.running[Q] == "fast"
    assert play.made(DecisionAction.ARRIVED)[0].reason == "3 operators moved by auto in 0.50 s with 100 bytes"


def test_a_query_that_gives_nothing_while_its_input_waits_is_moved() -> None:
    """It was silent for ten minutes under `latency < 100 ms`, and nothing was done about it."""
    world = two()
    world.silent["plain"] = "waits"
    play = Play.of(world, FAST)
    play.run(60)
    (switch,) = play.made(DecisionAction.SWITCH)
    assert (switch.trigger, switch.target) == (Trigger.VIOLATED, "fast")
    assert switch.readings["latency"] > 1_000
    assert not play.made(DecisionAction.INFEASIBLE)


def test_a_query_whose_sources_are_quiet_violates_nothing() -> None:
    world = two()
    world.silent["plain"] = "quiet"
    play = Play.of(world, FAST)
    play.run(60)
    assert not [d for d in play.decisions if d.trigger is Trigger.VIOLATED]


def test_a_query_whose_windows_wait_for_a_silent_source_is_not_moved_in_vain() -> None:
    """It went through all mechanisms, with its state, and each was held to be bad."""
    world = two()
    world.silent["plain"] = "windows"
    play = Play.of(world, FAST)
    play.run(60)
    assert play.made(DecisionAction.SWITCH) == []
    (wait, *_) = play.made(DecisionAction.WAIT)
    assert "another placement would not help: its windows have waited for source s1" in wait.reason
    assert play.loop.knowledge.queries[Q].fitness.tallies == {}


def test_a_query_that_is_paused_is_not_moved_in_vain() -> None:
    world = two()
    world.silent["plain"] = "paused"
    play = Play.of(world, FAST)
    play.run(25)
    assert not play.made(DecisionAction.SWITCH)
    assert "another placement would not help: its sink is down" in {d.reason for d in play.made(DecisionAction.WAIT)}


def test_nothing_is_done_before_the_minimum_stay() -> None:
    play = Play.of(two(), FAST, settings=replace(SETTINGS, stay_ms=100_000))
    play.run(9)
    assert not play.made(DecisionAction.SWITCH)
    assert [d.reason for d in play.made(DecisionAction.WAIT)] == ["plain has not run for 100 s yet"]
    play.run(2)
    assert play.made(DecisionAction.SWITCH)


def test_one_violation_is_not_enough() -> None:
    world = two()
    play = Play.of(world, FAST, settings=replace(SETTINGS, violated_rounds=12, period_ms=10**9))
    play.run(11)
    assert not play.made(DecisionAction.SWITCH)


def test_met_demands_keep_the_mechanism() -> None:
    world = FakeWorld({"plain": 90.0, "fast": 5.0}, forecast_ms={"plain": 90.0, "fast": 5.0})
    play = Play.of(world, FAST)
    play.run(60)
    assert not play.world.started


def test_a_small_gain_does_not_pay_for_a_switch() -> None:
    world = FakeWorld({"plain": 95.0, "fast": 94.0}, forecast_ms={"plain": 95.0, "fast": 94.0})
    play = Play.of(world, "WHEN hour < 1 THEN latency < 96 ms OTHERWISE latency < 97 ms", start_ms=3_000_000)
    play.run(90)
    assert any(d.trigger is Trigger.DEMAND for d in play.decisions)
    assert not world.started


def test_a_condition_that_begins_to_hold_is_a_changed_demand() -> None:
    """At one o'clock latency begins to matter."""
    world = two()
    play = Play.of(world, "WHEN hour = 0 THEN hops <= 3 OTHERWISE latency < 100 ms", start_ms=3_500_000)
    play.run(20)
    (switch,) = play.made(DecisionAction.SWITCH)
    assert switch.trigger is Trigger.DEMAND
    assert 3_600_000 <= switch.at_ms < 3_600_000 + ROUND_MS


def test_demands_changed_by_the_user_are_looked_at_at_once() -> None:
    play = Play.of(two(), "hops <= 3")
    play.run(10)
    play.loop.change_demands(Q, parse_demands(FAST))
    (switch,) = [d for d in play.run(1) if d.action is DecisionAction.SWITCH]
    assert switch.trigger is Trigger.DEMAND


def test_a_changed_environment_is_a_reason_to_look() -> None:
    world = FakeWorld({"plain": 90.0, "fast": 50.0})
    play = Play.of(world, FAST)
    play.run(8)
    world.around = EnvironmentMeasures(changes=500)
    (decision,) = [d for d in play.run(8) if d.trigger is Trigger.ENVIRONMENT]
    assert decision.action is DecisionAction.KEEP
    assert play.loop.knowledge.queries[Q].context == "churn 1"


def test_an_infeasible_demand_is_reported_once_with_the_best_value_and_nothing_thrashes() -> None:
    world = FakeWorld(
        {"plain": 200.0, "fast": 190.0, "frugal": 300.0}, forecast_ms={"plain": 200.0, "fast": 190.0, "frugal": 300.0}
    )
    play = Play.of(world, "latency < 10 ms")
    play.run(300)
    (report,) = play.made(DecisionAction.INFEASIBLE)
    assert report.reason == "no mechanism meets latency < 10 ms; the best is 190 ms by fast"
    assert len(world.started) <= 1
    assert world.asked < 100, "looks are spaced out"


def test_a_much_better_value_is_worth_a_switch_even_if_the_demand_stays_violated() -> None:
    world = FakeWorld({"plain": 2000.0, "fast": 20.0}, forecast_ms={"plain": 2000.0, "fast": 20.0})
    play = Play.of(world, "latency < 10 ms")
    play.run(50)
    assert world.running[Q] == "fast"
    assert len(world.started) == 1


def test_violations_without_forecasts_end_after_every_mechanism_had_its_turn() -> None:
    world = FakeWorld({"plain": 200.0, "fast": 190.0, "frugal": 300.0})
    play = Play.of(world, "latency < 10 ms")
    play.run(600)
    assert len(world.started) <= 6
    (report,) = play.made(DecisionAction.INFEASIBLE)
    assert report.reason == "no mechanism meets latency < 10 ms; the best is 190 ms by fast"


def test_a_forecast_that_is_wrong_is_corrected_by_samples() -> None:
    world = FakeWorld(
        {"plain": 200.0, "fast": 500.0, "frugal": 50.0}, forecast_ms={"plain": 200.0, "fast": 50.0, "frugal": 70.0}
    )
    play = Play.of(world, FAST)
    play.run(60)
    assert [t.target for t in world.started] == ["fast", "frugal"]


def test_what_forecasts_leave_out_is_added() -> None:
    """Predicted 60 and read 160: processing takes 100 ms, which fast will not save either."""
    world = FakeWorld({"plain": 160.0, "fast": 120.0}, forecast_ms={"plain": 60.0, "fast": 20.0})
    play = Play.of(world, FAST)
    play.run(30)
    assert (
        play.made(DecisionAction.INFEASIBLE)[0].reason
        == "no mechanism meets latency < 100 ms; the best is 120 ms by fast"
    )


def test_a_mechanism_that_raises_is_quarantined_and_the_next_best_used() -> None:
    world = FakeWorld(
        {"plain": 200.0, "fast": 50.0, "frugal": 80.0},
        forecast_ms={"plain": 200.0, "fast": 50.0, "frugal": 80.0},
        broken={"fast": "division by zero"},
    )
    play = Play.of(world, FAST)
    play.run(10)
    assert world.running[Q] == "frugal"
    (bar,) = play.made(DecisionAction.QUARANTINE)
    assert bar.reason == "mechanism fast failed: division by zero; not asked again for 100 s"
    play.loop.change_demands(Q, parse_demands("latency < 60 ms"))
    play.run(5)
    assert len(play.made(DecisionAction.QUARANTINE)) == 1, "not asked while in quarantine"
    world.broken.clear()
    play.run(40)
    assert world.running[Q] == "fast", "asked again when the quarantine is over"


def test_the_second_quarantine_is_twice_as_long() -> None:
    knowledge = Knowledge()
    assert knowledge.quarantine("m", None, 0, 100, "slow").until_ms == 100
    assert knowledge.quarantine("m", None, 200, 100, "slow").until_ms == 400
    knowledge.release("m")
    assert knowledge.quarantine("m", None, 500, 100, "slow").until_ms == 600


def test_a_mechanism_that_broke_while_placing_is_not_chosen() -> None:
    world = FakeWorld(
        {"plain": 200.0, "fast": 50.0, "frugal": 80.0}, forecast_ms={"plain": 200.0, "fast": 50.0, "frugal": 80.0}
    )
    play = Play.of(world, FAST)
    play.loop.broke(0, "fast", "index out of range")
    play.run(10)
    assert world.running[Q] == "frugal"


def test_when_all_mechanisms_break_the_query_stays_as_it_is() -> None:
    world = FakeWorld({"plain": 200.0, "fast": 50.0}, broken={"plain": "x", "fast": "y"})
    play = Play.of(world, FAST)
    play.run(10)
    assert "no mechanism can be asked" in play.made(DecisionAction.KEEP)[0].reason
    assert not world.started


@pytest.mark.parametrize("how", ["start", "a node left"])
def test_a_failed_transition_leaves_the_old_mechanism_and_avoids_the_target(how: str) -> None:
    world = two()
    world.fails = lambda t: how
    play = Play.of(world, FAST)
    play.run(8)
    (failed,) = play.made(DecisionAction.FAILED)
    assert failed.reason.endswith("plain keeps running")
    assert play.loop.knowledge.queries[Q].mechanism == "plain"
    play.run(100)
    attempts = len(play.made(DecisionAction.SWITCH))
    assert 2 <= attempts <= 6, "tried again, less and less often"


def test_never_two_transitions_of_queries_that_share_operators() -> None:
    both = frozenset({QueryId("a"), QueryId("b")})
    world = replace(two(), shared=both, rounds_per_transition=4)
    play = Play.of(world, FAST, queries=sorted(both))
    play.run(30)
    assert any("shares operators, is in a transition" in d.reason for d in play.made(DecisionAction.WAIT))
    assert set(world.running.values()) == {"fast"}


def test_a_dry_run_decides_and_starts_nothing() -> None:
    play = Play.of(two(), FAST, settings=replace(SETTINGS, act=False))
    play.run(10)
    switch = play.made(DecisionAction.SWITCH)[0]
    assert switch.dry_run
    assert switch.transition is None
    assert not play.world.started


def test_warm_up_tries_what_is_not_forecast_to_violate() -> None:
    world = FakeWorld(
        {"plain": 60.0, "fast": 50.0, "frugal": 500.0}, forecast_ms={"plain": 60.0, "fast": 50.0, "frugal": 500.0}
    )
    play = Play.of(world, FAST, selector=LinearRanking(explore=0))
    play.run(120)
    assert [t.target for t in world.started] == ["fast"]
    assert play.made(DecisionAction.SWITCH)[0].exploring


def test_knowledge_survives_a_restart(tmp_path: Path) -> None:
    world = FakeWorld({"plain": 200.0, "fast": 500.0, "frugal": 50.0}, broken={})
    play = Play.of(world, FAST)
    play.run(60)
    assert world.running[Q] == "frugal"
    path = tmp_path / "knowledge.json"
    play.loop.knowledge.save(path)
    again = Knowledge.load(path)
    assert again.as_json() == play.loop.knowledge.as_json()
    known = Play.of(FakeWorld(dict(world.latency_ms)), FAST, "plain", knowledge=again, start_ms=play.now_ms)
    known.run(20)
    assert [t.target for t in known.world.started] == ["frugal"], "what is slow is not tried again"


def test_a_restarted_loop_decides_as_one_that_went_on(tmp_path: Path) -> None:
    def world() -> FakeWorld:
        return FakeWorld({"plain": 80.0, "fast": 70.0, "frugal": 60.0})

    straight = Play.of(world(), FAST, selector=LinearRanking(explore=0.3))
    straight.run(400)
    assert [d.at_ms for d in straight.decisions] == sorted(d.at_ms for d in straight.decisions)
    twin = Play.of(world(), FAST, selector=LinearRanking(explore=0.3))
    twin.run(400)
    assert twin.decisions == straight.decisions


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not the knowledge of an adaptation loop"),
        ('{"version": 9}', "knowledge of version 9, but only version 1"),
        ('{"version": 1, "round": "x", "levels": {}, "queries": {}, "quarantines": []}', "remove it to learn anew"),
    ],
)
def test_unreadable_knowledge_is_refused_with_a_remedy(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "knowledge.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=complaint):
        Knowledge.load(path)


def test_no_file_is_no_knowledge(tmp_path: Path) -> None:
    assert Knowledge.load(tmp_path / "none.json") == Knowledge()


def test_bad_calls_are_refused() -> None:
    loop = AdaptationLoop(two(), settings=SETTINGS)
    with pytest.raises(InputError, match="no watched query 'q'; there are no watched queries yet"):
        loop.change_demands(Q, ())
    with pytest.raises(InputError, match="contradicts"):
        loop.watch(Q, [*parse_demands("hops < 3"), *parse_demands("hops > 4")], "plain", 0)
    loop.watch(Q, (), "plain", 0)
    with pytest.raises(InputError, match="has no transition that could have ended"):
        loop.ended(0, Q, TransitionOutcome(True))


def _always(reason: str, _: Transition) -> str:
    return reason


@given(data=st.data())
@settings(max_examples=30)
def test_whatever_happens_transitions_respect_stay_and_never_overlap(data: st.DataObject) -> None:
    """Random worlds that change at random: the fake executor checks overlaps, here the stay is checked."""
    names = ["plain", "fast", "frugal"]
    numbers = st.sampled_from([10.0, 90.0, 110.0, 500.0])
    world = FakeWorld({n: data.draw(numbers) for n in names}, {n: data.draw(numbers) for n in names})
    if data.draw(st.booleans()):
        world.forecast_ms = {n: data.draw(numbers) for n in names}
    world.rounds_per_transition = data.draw(st.integers(1, 4))
    world.shared = data.draw(st.sampled_from([frozenset(), frozenset({QueryId("a"), QueryId("b")})]))
    play = Play.of(
        world,
        "latency < 100 ms, WHEN churn > 20 THEN overhead < 100 B",
        queries=[QueryId("a"), QueryId("b"), QueryId("c")],
        selector=LinearRanking(explore=0.2),
    )
    for _ in range(data.draw(st.integers(1, 6))):
        world.latency_ms[data.draw(st.sampled_from(names))] = data.draw(numbers)
        world.around = EnvironmentMeasures(changes=data.draw(st.sampled_from([0, 50])))
        world.broken = data.draw(st.sampled_from([{}, {"fast": "broken"}]))
        failing = data.draw(st.sampled_from(["", "", "start", "lost"]))
        world.fails = partial(_always, failing)
        play.run(data.draw(st.integers(1, 25)))
    arrived: dict[QueryId, int] = {}
    for decision in play.decisions:
        if decision.action is DecisionAction.ARRIVED:
            arrived[decision.query] = decision.at_ms
        if decision.action is DecisionAction.SWITCH:
            assert decision.at_ms - arrived.get(decision.query, 0) >= SETTINGS.stay_ms
        assert decision.reason
    for query, watched in play.loop.knowledge.queries.items():
        assert watched.transition is None or query in world.flying
        assert watched.mechanism == world.running[query] or query in world.flying


def test_a_transition_is_told_once() -> None:
    play = Play.of(two(), FAST)
    play.run(10)
    transition = play.world.started[0]
    assert isinstance(transition, Transition)
    assert len(play.made(DecisionAction.SWITCH)) == len(play.made(DecisionAction.ARRIVED)) == 1
