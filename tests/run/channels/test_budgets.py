"""Budgets of channels: what one of them does not get rid of concerns those that feed it, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from meander.deploy.markers import Marker, MarkerAction
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.channels.budgets import DROPPED, LOOK_S, ChannelBudget, ChannelBudgets, Overflow
from meander.run.store.commit import Commit
from meander.run.store.store import Store, StoreOptions

SCHEMA = pa.schema([("id", pa.int64())])
FILTER, ELSEWHERE, HERE = FragmentId(1), FragmentId(2), FragmentId(3)
SOURCE, AWAY, OTHER, OWN = ChannelId(1), ChannelId(2), ChannelId(3), ChannelId(4)
"""A source feeds a filter, which sends to a site that is away; another source feeds a fragment of this host."""
SPECS = (
    ChannelSpec(SOURCE, SCHEMA, None, FILTER),
    ChannelSpec(AWAY, SCHEMA, FILTER, ELSEWHERE),
    ChannelSpec(OTHER, SCHEMA, None, HERE),
    ChannelSpec(OWN, SCHEMA, HERE, None),
)


class Rig:
    """A store whose budgets can be looked at, one look after the other."""

    def __init__(self, directory: Path, budget: ChannelBudget, disk_bytes: int = 4_000_000_000) -> None:
        self.store = Store.open(directory, StoreOptions(disk_budget_bytes=disk_bytes))
        self.store.commit(Commit(add=SPECS))
        self.now_s = 0.0
        self.budgets = ChannelBudgets(self.store, budget, {FILTER, HERE}.__contains__, lambda: self.now_s)

    def append(self, channel: ChannelId, first: int, count: int, marker: Marker | None = None) -> None:
        table = pa.table({"id": range(first, first + count)}, SCHEMA)
        self.store.commit(Commit(appends=(ChannelAppend.one(channel, table, marker=marker),)))

    def held(self) -> set[ChannelId]:
        self.now_s += LOOK_S
        return set(self.budgets.held())

    def waiting(self, channel: ChannelId) -> list[int]:
        exchange = self.store.exchange
        found = exchange.read(channel, exchange.start(channel), exchange.tail(channel)).table
        return [int(i) for i in found.column("id").to_pylist()]


def test_a_channel_beyond_its_budget_holds_what_feeds_it_and_nothing_else(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ChannelBudget(20_000))
    rig.append(OTHER, 0, 100)
    rig.append(AWAY, 0, 100)
    assert rig.held() == set()
    rig.append(AWAY, 100, 5_000)
    assert rig.held() == {AWAY, SOURCE}
    assert len(rig.budgets.problems()) == 1
    assert "channel 2 holds 0.0 MB" in rig.budgets.problems()[0]
    rig.store.commit(Commit(consumed={AWAY: 5_000}))
    assert rig.held() == set()
    assert rig.budgets.problems() == []


def test_a_channel_of_this_host_that_nobody_takes_holds_its_own_stream_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ChannelBudget(20_000, Overflow.DROP_OLDEST))
    rig.append(OWN, 0, 5_000)
    assert rig.held() == {OWN, OTHER}
    assert len(rig.waiting(OWN)) == 5_000, "tuples that a sink of this host has to get are never dropped"


def test_the_oldest_tuples_for_a_site_that_is_away_are_dropped_and_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ChannelBudget(20_000, Overflow.DROP_OLDEST))
    for first in range(0, 10_000, 500):
        rig.append(AWAY, first, 500)
        assert rig.held() == set()
    left = rig.waiting(AWAY)
    assert left == list(range(10_000 - len(left), 10_000))
    assert 0 < len(left) < 5_000
    assert rig.budgets.dropped == rig.store.counter(FILTER, DROPPED) == 10_000 - len(left)


def test_what_lies_behind_a_marker_is_not_dropped(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ChannelBudget(20_000, Overflow.DROP_OLDEST))
    rig.append(AWAY, 0, 10, Marker.of(1, {(ELSEWHERE, 1): MarkerAction.UPDATE}))
    rig.append(AWAY, 10, 9_990)
    assert rig.held() == {AWAY, SOURCE}
    assert rig.waiting(AWAY) == list(range(10, 10_000))


def test_with_spill_a_channel_may_have_the_disk_until_most_of_it_is_used(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ChannelBudget(20_000, Overflow.SPILL), disk_bytes=2_000_000)
    rig.append(OTHER, 0, 100)
    rig.append(AWAY, 0, 100_000)
    assert rig.held() == set()
    rig.append(AWAY, 100_000, 100_000)
    assert rig.held() == {AWAY, SOURCE}


@pytest.mark.parametrize(
    ("size", "overflow", "says"),
    [("0MB", None, "gives it none"), ("much", None, "much"), (None, "drop", "drop_oldest")],
)
def test_settings_that_are_not_allowed_are_named(size: str | None, overflow: str | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ChannelBudget.of(size, overflow)
