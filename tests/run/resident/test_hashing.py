"""Hashes of keys: what Spark calls equal has equal hashes, whatever lies around it in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.run.resident.hashing import can_hash, key_hashes, owned

OWNERS = np.array([3, 3, 3, 3], np.int64)


def hashes(*keys: pa.Array, owners: np.ndarray | None = None) -> list[int]:
    columns = [pa.chunked_array([key]) for key in keys]
    found: list[int] = owned(key_hashes(columns), np.full(len(keys[0]), 3) if owners is None else owners).tolist()
    return found


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=20))
def test_texts_have_equal_hashes_exactly_if_they_are_equal(texts: list[str | None]) -> None:
    column = pa.array([*texts, "x", *texts], pa.string())
    found = hashes(column)
    assert found[: len(texts)] == found[len(texts) + 1 :]
    assert hashes(column.slice(len(texts) + 1)) == found[len(texts) + 1 :]
    assert len(set(found)) == len(set(column.to_pylist()))


def test_numbers_of_any_type_follow_sparks_equality() -> None:
    zero, other_zero, nan, one = hashes(pa.array([0.0, -0.0, float("nan"), 1.0]))
    assert zero == other_zero
    assert len({zero, nan, one}) == 3
    assert hashes(pa.array([-float("nan")])) == [nan]
    for type_ in (pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us", "UTC")):
        first, second, again, _ = hashes(pa.array([0, 1, 0, None], type_))
        assert first == again != second
    assert len(set(hashes(pa.array([True, False])))) == 2


def test_rows_of_other_owners_and_keys_in_another_order_differ() -> None:
    key, other = pa.array([1, 2, 1, 1]), pa.array(["a", "a", "b", "a"])
    found = hashes(key, other)
    assert found[0] == found[3]
    assert len(set(found)) == 3
    assert not set(hashes(key, other, owners=OWNERS + 1)) & set(found)
    assert hashes(pa.array([1]), pa.array([2])) != hashes(pa.array([2]), pa.array([1]))


@pytest.mark.parametrize(
    ("type_", "can"),
    [(pa.int32(), True), (pa.string(), True), (pa.float32(), True), (pa.list_(pa.int64()), False)],
)
def test_lists_are_no_keys(type_: pa.DataType, can: bool) -> None:
    assert can_hash(type_) is can
