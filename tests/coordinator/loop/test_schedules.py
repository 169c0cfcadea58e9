"""A thousand schedules of everything that can happen to a loop, or as many as `MEANDER_SCHEDULES` says: what runs is
what the catalog says, all the time.

A schedule that fails says what happened in it; `Schedule.drawn(directory, seed)` plays it again. Seeds of faults that
are mended are named in `test_faults.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.loop.schedules import ALL_MECHANISMS, Schedule

SCHEDULES, TOGETHER = int(os.environ.get("MEANDER_SCHEDULES", 1_000)), 50
WIDE, WIDE_TOGETHER = 200, 25
PARTED, PARTED_TOGETHER = 60, 20
UNSOLVED = {1524}
"""Schedules of which one is known in which an operator waits until the next change although there is room for it."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SCHEDULES, TOGETHER))
def test_what_runs_is_what_the_catalog_says_whatever_happens(tmp_path: Path, first: int) -> None:
    played = [Schedule.drawn(tmp_path / str(seed), seed) for seed in range(first, first + TOGETHER)]
    assert sum(s.crashes for s in played) > TOGETHER / 2
    assert sum(s.waited > 0 for s in played) > TOGETHER / 5, "room is to be short"
    assert sum(s.exact for s in played) > TOGETHER / 2, "results are to be compared"
    found = {seed: s.stuck for seed, s in enumerate(played, first) if s.stuck and seed not in UNSOLVED}
    assert found == {}, "what fits is to run"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, WIDE, WIDE_TOGETHER))
def test_so_it_is_with_every_mechanism_and_several_amenders_where_memory_is_short(tmp_path: Path, first: int) -> None:
    played = [Schedule.wide(tmp_path / str(seed), seed) for seed in range(first, first + WIDE_TOGETHER)]
    assert len({s.world.setting.mechanism for s in played}) > len(ALL_MECHANISMS) / 2
    assert sum(s.waited > 0 for s in played) > WIDE_TOGETHER / 5, "room is to be short"
    assert sum(s.exact for s in played) > WIDE_TOGETHER / 2, "results are to be compared"
    assert [s.stuck for s in played if s.stuck] == [], "what fits is to run"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PARTED, PARTED_TOGETHER))
def test_so_it_is_with_joins_that_nova_cuts_and_cuts_anew(tmp_path: Path, first: int) -> None:
    played = [Schedule.parted(tmp_path / str(seed), seed) for seed in range(first, first + PARTED_TOGETHER)]
    assert sum(s.crashes for s in played) > PARTED_TOGETHER / 2
    assert sum(s.exact for s in played) > PARTED_TOGETHER / 2, "results are to be compared"
