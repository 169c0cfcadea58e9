"""Drills make each trouble alone, against each target that there is."""

from __future__ import annotations

from lab.testbed import drills, world
from lab.testbed.layout import HOME
from lab.testbed.links import Can
from lab.testbed.schedule import JUMP_MS, TroubleKind
from tests.lab.testbed.test_chaos import chances_here


def test_each_kind_is_drilled_as_often_as_asked_for_and_against_different_targets() -> None:
    chances = chances_here(Can.CUT | Can.BANDWIDTH, True, widely=True)
    found = list(drills.troubles(chances, list(TroubleKind), 8))
    assert found == list(drills.troubles(chances, list(TroubleKind), 8))
    assert {t.kind for t in found} == set(chances.kinds)
    assert len(found) == 8 * len(chances.kinds)
    assert {t.target for t in found if t.kind is TroubleKind.FULL} == {(h,) for h in (HOME, *world.SITES)}
    assert {abs(t.shift_ms) for t in found if t.kind is TroubleKind.JUMP} == {JUMP_MS}
    assert {t.lasts_s for t in found if t.kind in drills.MOMENTARY} == {0.0}


def test_without_a_network_of_its_own_only_processes_are_drilled() -> None:
    found = {t.kind for t in drills.troubles(chances_here(Can.NOTHING, False), list(TroubleKind), 1)}
    assert TroubleKind.MUTE not in found
    assert TroubleKind.KILL in found
