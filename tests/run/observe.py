"""Everything a store shows, as plain data, so that two stores, or a store and a model, can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from meander.model.ids import ChannelId
from meander.run.channels.base import NO_WATERMARK, ChannelSpec
from meander.run.store.records.record import Record
from meander.run.store.store import Store

SCHEMA = pa.schema([("v", pa.int64()), ("s", pa.string())])
STATE = pa.schema([("k", pa.int64())])


def rows(*values: int) -> pa.Table:
    """A table of SCHEMA that can be told apart by its values."""
    return pa.table({"v": pa.array(values, pa.int64()), "s": pa.array([f"s{v}" for v in values], pa.string())})


def state_rows(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64())})


def channel(number: int, **options: Any) -> ChannelSpec:
    return ChannelSpec(ChannelId(number), SCHEMA, **options)


def records(store: Store, number: int) -> list[tuple[int, str, Any]]:
    """(position, kind, value) of everything a channel holds, in order."""
    exchange, id_ = store.exchange, ChannelId(number)
    tail = store.views.channels[number].tail
    chunk = exchange.read(id_, exchange.start(id_), tail)
    values = chunk.table.column("v").to_pylist()
    assert chunk.table.column("s").to_pylist() == [f"s{v}" for v in values]
    control: list[tuple[int, str, Any]] = [(p, "watermark", w) for p, w in chunk.watermarks]
    control += [(p, "marker", m.reconfiguration) for p, m in chunk.markers]
    tuples = sorted(set(range(chunk.start, chunk.stop)) - {p for p, _, _ in control})
    return sorted([*control, *((p, "row", v) for p, v in zip(tuples, values, strict=True))])


def partitions(store: Store) -> dict[tuple[int, int, int], list[int]]:
    """Values of each state partition, oldest first."""
    found = {}
    for fragment in store.state.fragments():
        for operator in store.state.operators(fragment):
            reading = store.state.read([fragment], operator)
            assert reading.table is not None
            values = np.asarray(reading.table.column("k"))
            for index, bucket in enumerate(reading.buckets.tolist()):
                mine = values[reading.owners == index].tolist()
                assert len(mine) == reading.rows[index]
                found[int(fragment), operator, bucket] = mine
            assert store.state.size(fragment).rows == reading.rows.sum() or len(store.state.operators(fragment)) > 1
    return found


def remembered(store: Store) -> dict[tuple[str, Any], Record[Any]]:
    """All records, by kind and key."""
    return {(r.kind, r.key): r for found in store.views.records.by_kind.values() for r in found.values()}


def observed(store: Store) -> dict[str, Any]:
    """All views."""
    views, shown = store.views, {}
    for number in sorted(views.channels.by_id):
        spec, view = store.exchange.spec(ChannelId(number)), views.channels[number]
        counters = store.exchange.counters(ChannelId(number))
        shown[number] = {
            "ends": (spec.sender, spec.receiver, spec.delay_ms),
            "bounds": (view.head, view.tail),
            "watermarks": [
                None if w == NO_WATERMARK else w
                for w in (view.watermark, int(store.exchange.watermarks([ChannelId(number)])[0]))
            ],
            "records": records(store, number),
            "tuples": (counters.appended_tuples, counters.consumed_tuples, counters.pending_tuples),
        }
    return {
        "channels": shown,
        "state": partitions(store),
        "batches": {w: last.batch_id for w, last in views.writers.items()},
        "versions": dict(views.versions),
        "counters": dict(views.counters),
        "acknowledged": dict(views.acknowledged),
        "records": remembered(store),
    }


def check_accounts(store: Store) -> None:
    """What is counted as it changes equals what is there: uses, sizes and live segments."""
    payloads = store.payloads
    uses: dict[int, int] = {}
    live: dict[int, int] = {}
    slices = [(e.payload, e.rows) for c in store.views.channels.by_id.values() for e in c.overlapping(0, c.tail)]
    state = [(p.payload, p.rows) for key, _ in store.views.state.all() for p in store.views.state.pieces(*key)]
    for number, count in [s for s in slices if s[0] >= 0] + state:
        uses[number] = uses.get(number, 0) + 1
        live[number] = live.get(number, 0) + count
    assert uses == {n: p.uses for n, p in payloads.by_number.items()}
    assert live == {n: p.live_rows for n, p in payloads.by_number.items()}
    assert payloads.memory_bytes == sum(p.place.length for p in payloads.by_number.values() if p.batch is not None)
    assert payloads.memory_bytes <= payloads.memory_budget_bytes
    total = sum(payloads.by_number[n].row_bytes * r for n, r in live.items())
    assert abs(payloads.slice_bytes - total) < 1
    in_state = sum(payloads.by_number[n].row_bytes * r for n, r in state)
    assert abs(store.views.state.bytes - in_state) < 1
