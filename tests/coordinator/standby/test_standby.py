"""A standby has what anybody has heard of, and takes over only when nobody else can act."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from meander.api.models import FollowRequest
from meander.coordinator.problems import ServiceRefusedError
from meander.coordinator.standby.following import NoMajorityError
from meander.coordinator.standby.standby import Standby
from meander.membership.fence import FencedError
from meander.model.errors import InputError
from tests.coordinator.standby.fleet_of_three import SILENCE_S, Fleet, no_waiting, read

SCHEDULES = int(os.environ.get("MEANDER_STANDBY_SCHEDULES", "40"))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    found = Fleet(tmp_path, 1)
    with no_waiting(monkeypatch, found):
        yield found
    found.active.close()


def follow(fleet: Fleet, rounds: int = 4) -> None:
    for _ in range(rounds):
        fleet.standby.follow()
    fleet.beat()


def test_a_standby_has_everything_and_takes_over_from_one_that_died(fleet: Fleet) -> None:
    for _ in range(30):
        fleet.active.write()
    follow(fleet)
    assert fleet.standby.is_in_sync
    for _ in range(12):
        fleet.active.write()
    follow(fleet)
    assert fleet.active.left == 42
    fleet.now += SILENCE_S
    fleet.active.close()
    assert fleet.is_elected()
    assert read(fleet.standby._home) == (list(range(42)), 42, [str(n) for n in range(42)])
    with pytest.raises(FencedError):
        fleet.voters["site-0"].fence.accept(fleet.active.epoch)


def test_nothing_leaves_before_the_standby_has_it(fleet: Fleet) -> None:
    follow(fleet)
    for _ in range(5):
        fleet.active.write()
    assert fleet.active.left == 0
    with pytest.raises(NoMajorityError, match="nothing leaves the coordinator until one of both is back"):
        fleet.active.following.confirm()
    follow(fleet)
    assert fleet.active.left == 5


def test_a_round_that_was_cut_off_is_not_counted(fleet: Fleet) -> None:
    follow(fleet)
    for _ in range(3):
        fleet.active.write()
    follow(fleet)
    for _ in range(4):
        fleet.active.write()
    whole = fleet.standby._ask
    fleet.standby._ask = lambda asked: _cut(whole(asked))  # type: ignore[method-assign, assignment]
    with pytest.raises(InputError, match="ended before it was complete"):
        fleet.standby.follow()
    fleet.now += SILENCE_S
    assert fleet.is_elected()
    ids, batches, lines = read(fleet.standby._home)
    assert ids == [0, 1, 2]
    assert batches >= 3
    assert lines[:3] == ["0", "1", "2"]


def _cut(answer: object) -> object:
    assert isinstance(answer, io.BytesIO)
    pieces = answer.getvalue()
    return io.BytesIO(pieces[: pieces.rindex(b'{"round"')])


def test_while_a_site_hears_the_coordinator_nobody_takes_over(fleet: Fleet) -> None:
    follow(fleet)
    fleet.cut.add(frozenset(("active", "standby")))
    fleet.now += SILENCE_S
    fleet.beat()
    assert not fleet.is_elected()
    assert "it heard the coordinator" in str(fleet.standby.problem)


def test_a_standby_that_is_not_waited_for_any_more_is_not_elected_whatever_happens_later(fleet: Fleet) -> None:
    follow(fleet)
    fleet.cut.add(frozenset(("active", "standby")))
    fleet.active.write()
    fleet.now += SILENCE_S
    fleet.active.following.tick()
    assert fleet.active.left == 0  # until the site knows
    assert fleet.active.following.problems()
    fleet.beat()
    fleet.beat()
    fleet.active.following.tick()
    assert fleet.active.left == 1
    fleet.now += SILENCE_S
    fleet.voters["site-0"].start()
    assert not fleet.is_elected()
    assert "it was not in sync any more" in str(fleet.standby.problem)
    fleet.cut.clear()
    follow(fleet)
    assert fleet.standby.is_in_sync
    fleet.now += SILENCE_S
    assert fleet.is_elected()


def test_a_coordinator_that_is_cut_off_from_all_lets_nothing_leave(fleet: Fleet) -> None:
    follow(fleet)
    fleet.cut |= {frozenset(("active", "standby")), frozenset(("active", "site-0"))}
    fleet.active.write()
    fleet.now += SILENCE_S
    for _ in range(5):
        fleet.active.following.tick()
        fleet.beat()
    assert fleet.is_elected()
    fleet.cut.clear()  # and now it is back
    fleet.beat()
    for _ in range(5):
        fleet.active.following.tick()
    assert fleet.active.is_fenced
    assert fleet.active.left == 0


def test_one_standby_at_a_time(fleet: Fleet, tmp_path: Path) -> None:
    follow(fleet)
    second = fleet.joining(tmp_path / "second")
    with pytest.raises(ServiceRefusedError, match="another standby follows this coordinator"):
        second.follow()
    fleet.now += SILENCE_S  # the first one has gone
    with pytest.raises(ServiceRefusedError, match="is not waited for as soon as most sites know"):
        second.follow()
    fleet.active.following.tick()
    fleet.beat()
    fleet.beat()
    fleet.active.following.tick()
    for _ in range(3):
        second.follow()
    assert second.is_in_sync


def test_a_directory_of_a_coordinator_is_not_overwritten(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this directory is a coordinator's own"):
        Standby(fleet.active.home, "http://active", "token", "http://standby")


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_no_schedule_of_partitions_and_pauses_lets_something_be_known_that_the_next_one_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sites: int
) -> None:
    """Whatever has left the coordinator is in the copy that takes over, and it lets out nothing more afterwards."""
    elected = 0
    for seed in range(SCHEDULES):
        rng = Random(seed * 10 + sites)
        directory = tmp_path / str(seed)
        directory.mkdir()
        fleet = Fleet(directory, sites)
        ends = ["active", "standby", *fleet.voters]
        with no_waiting(monkeypatch, fleet):
            left, taken = 0, None
            for _ in range(80):
                match rng.randint(0, 9):
                    case 0 | 1:
                        fleet.active.write()
                    case 2 | 3:
                        _try_to_follow(fleet) if taken is None else None
                    case 4 | 5:
                        fleet.beat()
                    case 6:
                        fleet.active.following.tick()
                    case 7:
                        fleet.now += rng.choice([0.2, 1.0, SILENCE_S])
                    case 8:
                        pair = frozenset(rng.sample(ends, 2))
                        fleet.cut ^= {pair}
                    case 9 if taken is None and fleet.now - fleet.standby._heard > SILENCE_S and fleet.is_elected():
                        taken = read(fleet.standby._home)
                        elected += 1
                left = max(left, fleet.active.left)
                if taken is not None:
                    assert left <= len(taken[0]), f"seed {seed}"
            if taken is not None:
                ids, batches, lines = taken
                assert ids == list(range(len(ids)))
                assert batches >= len(ids)
                assert lines[: len(ids)] == [str(n) for n in ids]
        fleet.active.close()
    assert elected > SCHEDULES // 20


def _try_to_follow(fleet: Fleet) -> None:
    try:
        fleet.standby.follow()
    except (OSError, InputError):
        return


@pytest.mark.parametrize(
    "wrong",
    [
        {"store": {}},
        {"store": {"has": {"one": 1}}},
        {"store": {"has": {"1": -1}}},
        {"files": {"results/a.jsonl": [1]}},
        {"files": {"results/a.jsonl": [-1, 1]}},
    ],
)
def test_a_request_that_does_not_say_what_it_has_made_a_standby_of_whoever_sent_it(wrong: dict[str, Any]) -> None:
    right = {"name": "b", "address": "", "term": 0, "round": 0, "store": {"has": {}}, "files": {}, "ledger": 0}
    FollowRequest.model_validate(right)
    with pytest.raises(ValidationError):
        FollowRequest.model_validate(right | wrong)
