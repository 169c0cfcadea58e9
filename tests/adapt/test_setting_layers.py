"""Settings as users write them: their layers, checks that name the setting, and their effect on the loop."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.adapt.decision_log import entry, told
from meander.adapt.decisions import DecisionAction
from meander.adapt.loop import AdaptationLoop
from meander.adapt.selection.ranking import LinearRanking
from meander.adapt.setting_layers import DEFAULTS, SETTINGS, AdaptationPolicy, checked
from meander.adapt.transition_prediction import TransitionPrediction
from meander.lang.demands import parse_demands
from meander.model.errors import InputError
from meander.model.ids import QueryId
from tests.adapt.fakes import SETTINGS as SLOW
from tests.adapt.fakes import FakeWorld, Play, Q

SLOW_QUERY = QueryId("slow")


def test_every_default_reads_back_as_itself() -> None:
    for setting in SETTINGS:
        assert setting.checked(setting.default) == getattr(DEFAULTS, setting.field), setting.name


def test_later_layers_win_and_one_query_wins_over_all() -> None:
    policy = AdaptationPolicy(file={"margin": 0.2, "stay": "20s"}, of_queries={"slow": {"margin": 0.3}})
    assert (policy.of().margin, policy.of(SLOW_QUERY).margin) == (0.2, 0.3)
    policy.change("", {"margin": "0.4", "selector": "thompson"})
    assert (policy.of().margin, policy.of(SLOW_QUERY).margin, policy.of(SLOW_QUERY).selector) == (0.4, 0.3, "thompson")
    policy.change("slow", {"margin": 0.5})
    sources = {each.setting.name: (each.value, each.source) for each in policy.shown("slow")}
    assert sources["margin"] == (0.5, "set for this query")
    assert sources["selector"] == ("thompson", "set at run time")
    assert sources["stay"] == ("20s", "meander.toml")
    assert sources["period"] == ("30s", "default")
    assert policy.reset("slow") == ["margin"]
    assert policy.reset("", ["margin"]) == ["margin"]
    assert (policy.of().margin, policy.of(SLOW_QUERY).margin, policy.of().selector) == (0.2, 0.3, "thompson")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"margin": 1}, "margin must be a number from 0 to less than 1, not 1"),
        ({"exploration": "much"}, "exploration must be a number from 0 to 0.5, not 'much'"),
        ({"stay": 5}, "stay must be a duration such as 30s or 5min, at most 365d, not 5"),
        ({"selector": "best"}, "selector must be one of linear_ranking, thompson, requirement, not 'best'"),
        ({"mechanisms": "ilp, best"}, "mechanisms must be all, or a list from bottom_up, "),
        ({"churn_levels": [3, 2]}, "churn_levels must be up to 20 increasing numbers above 0, such as 1, 10, not"),
        ({"act": "maybe"}, "act must be true or false, not 'maybe'"),
        ({"violated_rounds": 0}, "violated_rounds must be a whole number from 1 to 1,000,000, not 0"),
        ({"zone": "Mars/Olympus"}, "zone must be a time zone such as UTC or Europe/Berlin, not 'Mars/Olympus'"),
        ({"churn_levels": "nan"}, "churn_levels must be up to 20 increasing numbers above 0, such as 1, 10, not 'nan'"),
        ({"workload_levels": [1, 10**400]}, "workload_levels must be up to 20 increasing numbers above 0"),
        ({"mobility_levels": list(range(1, 9_999))}, "mobility_levels must be up to 20 increasing numbers above 0"),
        ({"plans_per_round": "inf"}, "plans_per_round must be a whole number from 1 to 1,000,000, not 'inf'"),
        ({"violated_rounds": 1e308}, "violated_rounds must be a whole number from 1 to 1,000,000, not 1e+308"),
        ({"margin": 10**400}, "margin must be a number from 0 to less than 1, not 1000"),
        ({"stay": "1e30 s"}, "stay must be a duration such as 30s or 5min, at most 365d, not '1e30 s'"),
        ({"zone": "Europe"}, "zone must be a time zone such as UTC or Europe/Berlin, not 'Europe'"),
        ({"zone": "../../etc/passwd"}, "zone must be a time zone such as UTC or Europe/Berlin, not '../"),
        ({"stays": "5s"}, "no adaptation setting 'stays'; did you mean 'stay'?"),
    ],
)
def test_a_bad_value_is_refused_by_name_with_what_is_allowed_and_changes_nothing(
    values: dict[str, Any], message: str
) -> None:
    policy = AdaptationPolicy()
    with pytest.raises(InputError) as refused:
        policy.change("", {"period": "1min", **values})
    assert str(refused.value).startswith(message.split(";")[0])
    assert policy.of() == DEFAULTS


def test_an_error_does_not_repeat_all_of_a_huge_value() -> None:
    for setting in SETTINGS:
        with pytest.raises(InputError) as refused:
            setting.checked(["x" * 10_000])
        assert len(str(refused.value)) < 400


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_value_is_kept_as_json_or_refused(value: Any) -> None:
    for setting in SETTINGS:
        try:
            kept = checked({setting.name: value})
        except InputError:
            continue
        assert checked(json.loads(json.dumps(kept, allow_nan=False))) == kept


def test_every_choice_that_is_listed_is_allowed_and_no_other_is() -> None:
    for setting in SETTINGS:
        for choice in setting.choices:
            setting.checked(choice)
            assert choice in setting.allowed
    assert checked({"mechanisms": "all"}) == {"mechanisms": []}


CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts" / "adaptation.md"
USUAL = re.compile(r"`(\w+)` \((?:usually )?([\d.]+) ?(%|s|min)?\)")


def test_the_page_about_adaptation_names_the_values_that_apply() -> None:
    shown = USUAL.findall(CONCEPTS.read_text(encoding="utf-8"))
    for name, number, unit in shown:
        setting = next(s for s in SETTINGS if s.name == name)
        value = float(number) / 100 if unit == "%" else f"{number}{unit}" if unit else number
        assert setting.checked(value) == getattr(DEFAULTS, setting.field), f"{name} ({number} {unit})"
    named = {name for name, _, _ in shown}
    assert named == {"violated_rounds", "period", "stay", "margin", "payback", "exploration", "quarantine"}


def test_what_holds_for_all_queries_is_not_set_for_one() -> None:
    with pytest.raises(InputError, match="zone holds for all queries; leave the query out to set it"):
        AdaptationPolicy().change("slow", {"zone": "UTC"})


def test_settings_of_before_that_are_not_allowed_any_more_are_left_out() -> None:
    policy = AdaptationPolicy()
    assert policy.restore("", {"margin": 0.2, "gone": 1, "selector": "best"}) == ["gone", "selector"]
    assert policy.of().margin == 0.2


# ---------------------------------------------------------------- what they do

FAST = "latency < 100 ms"


def play_with(policy: AdaptationPolicy, world: FakeWorld | None = None) -> Play:
    world = world or FakeWorld({"plain": 200.0, "fast": 50.0}, forecast_ms={"plain": 200.0, "fast": 50.0})
    loop = AdaptationLoop(world, policy=policy, seed=1)
    world.running[Q] = "plain"
    loop.watch(Q, parse_demands(FAST), "plain", 0)
    return Play(world, loop)


def test_a_query_that_may_not_act_only_gets_suggestions() -> None:
    policy = AdaptationPolicy(SLOW)
    policy.change("q", {"act": False})
    play = play_with(policy)
    play.run(20)
    assert play.made(DecisionAction.SWITCH)[0].dry_run
    assert not play.world.started
    policy.reset("q", ["act"])
    play.run(60)
    assert [t.target for t in play.world.started] == ["fast"]
    assert play.world.started[0].protocol == "auto"


def test_only_allowed_mechanisms_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"bottom_up": 200.0, "relaxation": 50.0, "ilp": 40.0}
    world = FakeWorld(values, forecast_ms=values)
    policy = AdaptationPolicy(SLOW)
    policy.change("", {"mechanisms": "bottom_up, relaxation", "protocol": "sms_concurrent"})
    loop = AdaptationLoop(world, policy=policy, seed=1)
    world.running[Q] = "bottom_up"
    loop.watch(Q, parse_demands(FAST), "bottom_up", 0)
    Play(world, loop).run(60)
    assert [(t.target, t.protocol) for t in world.started] == [("relaxation", "sms_concurrent")]


@pytest.mark.parametrize("payback", ["1s", "5min"])
def test_a_switch_has_to_make_up_for_what_its_transition_disturbs(payback: str) -> None:
    policy = AdaptationPolicy(SLOW)
    policy.change("", {"payback": payback, "protocol": "at_once"})
    play = play_with(policy)
    play.loop.planner.foresee = lambda protocol, nodes: TransitionPrediction(protocol, 9.0, 5_000, stop_s=8.0)
    play.run(20)
    if payback == "5min":
        switch = play.made(DecisionAction.SWITCH)[0]
        assert switch.predicted["stop_s"] == 8.0
        assert told(entry(switch)).endswith("; predicted: 9 s, 5,000 bytes by at_once")
    else:
        assert not play.world.started
        kept = next(d for d in play.made(DecisionAction.KEEP) if "disturbs for 8 s" in d.reason)
        assert kept.reason.startswith("fast would win 9")
        assert kept.predicted["seconds"] == 9.0


def test_a_longer_stay_of_one_query_makes_it_wait() -> None:
    policy = AdaptationPolicy(SLOW)
    policy.change("q", {"stay": "20min"})
    play = play_with(policy)
    play.run(100)
    assert not play.world.started
    assert play.made(DecisionAction.WAIT)[0].reason == "plain has not run for 1200 s yet"


def test_nothing_is_tried_out_before_the_first_result_unless_asked_for() -> None:
    def silent() -> FakeWorld:
        known = {"plain": 50.0, "fast": 50.0}
        return FakeWorld(known, forecast_ms=known, silent={"plain": "quiet"})

    careful = Play.of(silent(), FAST, selector=LinearRanking(explore=0.5))
    careful.run(200)
    assert not careful.world.started
    policy = AdaptationPolicy(SLOW)
    policy.change("", {"try_early": True, "exploration": 0.5})
    bold = play_with(policy, silent())
    bold.run(200)
    assert bold.world.started


def test_a_query_without_results_is_not_moved_because_it_gives_none_yet() -> None:
    known = {"plain": 50.0, "fast": 50.0}
    play = Play.of(FakeWorld(known, silent={"plain": "quiet"}), "frequency > 1 /s")
    play.run(50)
    assert not play.world.started
    assert "it has not given its first result yet" in play.made(DecisionAction.WAIT)[-1].reason
