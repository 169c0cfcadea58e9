"""Random states, and what two places hold of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from meander.model.ids import FragmentId
from meander.run.store.commit import Commit, StateAppend
from meander.run.store.store import Store, StoreOptions

F, G, OTHER = FragmentId(1), FragmentId(8), FragmentId(3)
KEYS = (0, 1, 17)
Append = tuple[int, list[tuple[int, int]]]
"""A state key, and how many rows its buckets get."""

appends: st.SearchStrategy[list[Append]] = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.lists(st.tuples(st.integers(-3, 6), st.integers(0, 30)), min_size=1, max_size=4),
    ),
    max_size=12,
)


def table(key: int, rows: int, seed: int) -> pa.Table:
    """Rows of a schema that depends on the key: numbers, text, lists, nulls, bits."""
    rng = np.random.default_rng(seed)
    numbers = pa.array(rng.integers(-(2**60), 2**60, rows), pa.int64(), mask=rng.random(rows) < 0.2)
    text = pa.array([None if rng.random() < 0.2 else "x" * int(n) for n in rng.integers(0, 9, rows)], pa.string())
    bits = pa.array(rng.random(rows) < 0.5, pa.bool_())
    lists = pa.array([rng.random(int(n)).tolist() for n in rng.integers(0, 3, rows)], pa.list_(pa.float64()))
    columns = {0: {"n": numbers}, 1: {"n": numbers, "s": text}, 17: {"b": bits, "l": lists, "s": text}}[key]
    return pa.table(columns)


def filled(directory: Path, wanted: Sequence[Append], fragment: FragmentId = F) -> Store:
    """A store with this state, and some of another fragment."""
    store = Store.open(directory, StoreOptions(segment_bytes=20_000))
    for seed, (key, buckets) in enumerate(wanted):
        sizes = [rows for _, rows in buckets]
        body = table(key, sum(sizes), seed)
        append = StateAppend.sliced(body, key, [fragment] * len(sizes), [b for b, _ in buckets], sizes)
        store.commit(Commit(state_appends=(append,)))
    other = StateAppend.sliced(table(0, 3, 99), 0, [OTHER], [5], [3])
    store.commit(Commit(state_appends=(other,)))
    return store


def held(store: Store, fragment: FragmentId) -> dict[tuple[int, int], Counter[str]]:
    """The rows of each (state key, bucket) of a fragment, as a multiset."""
    found: dict[tuple[int, int], Counter[str]] = {}
    for key in store.state.operators(fragment):
        reading = store.state.read([fragment], key)
        assert reading.table is not None
        rows: list[dict[str, Any]] = reading.table.to_pylist()
        for owner, row in zip(reading.owners.tolist(), rows, strict=True):
            found.setdefault((key, int(reading.buckets[owner])), Counter())[repr(row)] += 1
    return found


def renamed(
    state: Mapping[tuple[int, int], Counter[str]], keys: Mapping[int, int] | None
) -> dict[tuple[int, int], Counter[str]]:
    """What should be at the target."""
    if keys is None:
        return dict(state)
    return {(keys[key], bucket): rows for (key, bucket), rows in state.items() if key in keys}
