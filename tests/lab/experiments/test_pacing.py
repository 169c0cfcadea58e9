"""Nodes of limited capacity: one that is given too much takes what it can, one that is given less all of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lab.experiments.pacing import PacedExchange
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.store.commit import Commit
from meander.run.store.store import Store
from tests.run.harness import VirtualClock

SCHEMA = pa.schema([("v", pa.int64())])
ONE, OTHER = ChannelId(1), ChannelId(2)
TICK_MS = 20


def taken(directory: Path, rates_tps: dict[ChannelId, int], capacity_tps: float, ticks: int = 100) -> int:
    """Tuples that a node takes from its channels in so many ticks."""
    clock = VirtualClock()
    store = Store.open(directory, clock=clock)
    exchange = PacedExchange(store, lambda: clock.now_ms / 1000)
    store.commit(Commit(add=tuple(ChannelSpec(c, SCHEMA) for c in rates_tps)))
    exchange.pace(dict.fromkeys(rates_tps, 7), {7: capacity_tps})
    for _ in range(ticks):
        clock.now_ms += TICK_MS
        rows = {c: pa.table({"v": range(rate * TICK_MS // 1000)}, schema=SCHEMA) for c, rate in rates_tps.items()}
        store.commit(Commit(appends=tuple(ChannelAppend.one(c, table, clock.now_ms) for c, table in rows.items())))
        channels = list(rates_tps)
        starts, ends = exchange.bounds(channels)
        again = exchange.bounds(channels)
        assert (again[1] == ends).all()
        consumed = {c: int(e) for c, s, e in zip(channels, starts, ends, strict=True) if e > s}
        if consumed:
            store.commit(Commit(consumed=consumed))
    total = sum(exchange.counters(c).consumed_tuples for c in rates_tps)
    store.close()
    return total


@pytest.mark.parametrize(("capacity_tps", "wanted"), [(1000.0, 2000), (3001.0, 6000), (10_000.0, 6000)])
def test_a_node_takes_what_it_can(tmp_path: Path, capacity_tps: float, wanted: int) -> None:
    found = taken(tmp_path, {ONE: 2000, OTHER: 1000}, capacity_tps)
    assert wanted * 0.97 <= found <= wanted


def test_time_is_not_saved_up_while_nothing_waits(tmp_path: Path) -> None:
    clock = VirtualClock()
    store = Store.open(tmp_path, clock=clock)
    exchange = PacedExchange(store, lambda: clock.now_ms / 1000)
    store.commit(Commit(add=(ChannelSpec(ONE, SCHEMA),)))
    exchange.pace({ONE: 7}, {7: 100.0})
    for _ in range(50):
        clock.now_ms += TICK_MS
        exchange.bounds([ONE])
    store.commit(Commit(appends=(ChannelAppend.one(ONE, pa.table({"v": range(1000)}, schema=SCHEMA)),)))
    clock.now_ms += TICK_MS
    assert exchange.bounds([ONE])[1][0] <= 2 * 100 * TICK_MS / 1000
    assert not exchange.is_passable(ONE)
    store.close()
