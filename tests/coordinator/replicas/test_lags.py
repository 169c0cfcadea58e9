"""How replicas are said to do, from what sites and keepers tell; what they tell may be anything."""

from __future__ import annotations

from typing import Any

import pytest

from meander.coordinator.replicas.lags import KeeperLag, ReplicaState, lagging, lags_of, refusal_of
from meander.run.store.records.replicas import KeepersRecord

RECORD = KeepersRecord("west", {"hub": 3, "east": 2})
IN_SYNC = {"in_sync": True, "behind_bytes": 5, "behind_ms": 10}


def test_replicas_are_in_step_behind_or_incomplete_as_their_site_says() -> None:
    told = {"hub": {**IN_SYNC, "term": 3}, "east": {**IN_SYNC, "behind_ms": 2_500, "term": 2}}
    east, hub = lags_of(RECORD, told, {})
    assert (hub.keeper, hub.state, hub.behind_bytes) == ("hub", ReplicaState.IN_STEP, 5)
    assert (east.state, east.behind_ms) == (ReplicaState.BEHIND, 2_500)
    assert lagging("west", [hub, east]).startswith("the replica of site west at east is 2 s behind")
    assert lagging("west", [hub]) == ""


def test_a_replica_of_a_former_term_or_that_nobody_has_told_of_is_incomplete() -> None:
    states = [lag.state for lag in lags_of(RECORD, {"hub": {**IN_SYNC, "term": 2}}, {})]
    assert states == [ReplicaState.INCOMPLETE, ReplicaState.INCOMPLETE]


def test_a_replica_that_runs_is_serving_once_its_keeper_says_so() -> None:
    record = KeepersRecord("west", {}, 3, stands_in="hub")
    assert lags_of(record, {}, {})[0].state is ReplicaState.INCOMPLETE
    running = {"hub": {"west": {"stands_in": "grpc://hub:1"}}}
    assert lags_of(record, {}, running) == [KeeperLag("hub", ReplicaState.SERVING)]


@pytest.mark.parametrize("junk", [None, [], "x", 7, {"in_sync": True, "behind_ms": "long", "behind_bytes": None}])
def test_what_a_site_says_that_makes_no_sense_breaks_nothing(junk: Any) -> None:
    assert len(lags_of(RECORD, {"hub": junk}, {"hub": {"west": junk}})) == 2
    assert refusal_of(junk, junk) is None


def test_a_keeper_in_sync_that_is_far_behind_is_not_waited_for_any_more() -> None:
    assert refusal_of({}, {**IN_SYNC, "behind_ms": 119_000}) is None
    assert refusal_of({}, {**IN_SYNC, "behind_ms": 120_000}) == "it has been behind for more than 120 s"
    assert refusal_of({}, {"in_sync": False, "behind_ms": 500_000}) is None
