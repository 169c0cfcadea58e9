"""Bad input is refused with the entries named, and repaired where that is wanted."""

from typing import Any

import numpy as np
import pytest

from meander.model.errors import InputError
from meander.place.nova.place import place
from meander.place.nova.problem import Columns, JoinProblem, all_pairs, pairs_by_key
from meander.place.nova.problem_repair import repaired
from meander.place.nova.settings import NovaSettings
from tests.place.nova.problems import paired


def broken(**changes: Any) -> dict[str, Any]:
    """The fields of a good problem with some entries replaced: field=(index, value)."""
    good = paired(12, 0, matrix_ms=matrix(12))
    fields = {name: np.array(getattr(good, name)) for name in JoinProblem.__dataclass_fields__ if name.endswith(
        ("points", "heights", "_tps", "_node", "_left", "_right", "_sink", "matrix_ms")
    ) and np.ndim(getattr(good, name))}  # fmt: skip
    for name, (index, value) in changes.items():
        fields[name][index] = value
    return fields


def matrix(nodes: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    away = np.random.default_rng(1).uniform(1, 100, (nodes, nodes))
    return np.asarray(np.triu(away, 1) + np.triu(away, 1).T)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source_tps": (2, 0.0)}, "source 2 at node 3 has no positive rate; remove such sources (--repair does)"),
        ({"source_tps": ([1, 3], -5.0)}, "source 1 at node 2, source 3 at node 4 have no positive rate; "),
        ({"join_right": (1, 77)}, "join 1 has no right source; remove joins without partner (--repair does)"),
        ({"join_right": (1, 2)}, "join 1 joins a source with itself; give it two sources"),
        ({"join_sink": (0, -1)}, "join 0 has no sink; remove joins without partner (--repair does)"),
        ({"capacity_tps": (4, np.nan)}, "node 4 has no capacity; give a number of tuples per second"),
        ({"points": (3, np.nan)}, "source 2 at node 3 is unreachable: it has no place in the cost space; measure it"),
        ({"matrix_ms": ((2, 5), np.nan)}, "node 2 to node 5 is not measured; --repair fills such entries"),
        ({"matrix_ms": ((2, 5), -1.0)}, "node 2 to node 5 has a negative latency; --repair fills such entries"),
        ({"matrix_ms": ((5, 2), 999.0)}, "node 2 to node 5 has another latency back; --repair takes the mean of both"),
        (
            {"capacity_tps": (slice(None), 1.0)},
            "tuples per second, but all nodes together have 12 (the largest 1); add",
        ),
    ],
)
def test_bad_entries_are_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as raised:
        JoinProblem(**broken(**changes))
    assert complaint in str(raised.value)


def test_repair_leaves_out_what_cannot_be_used_and_says_so() -> None:
    fields = broken(
        source_tps=(0, 0.0), join_right=(2, 99), capacity_tps=(4, -3.0), matrix_ms=((2, 5), np.nan), points=(11, np.nan)
    )
    problem, notes = repaired(Columns(**fields))
    assert notes == [
        "1 nodes without a usable capacity take no joins",
        "1 sources without a positive rate or a place were left out",
        "2 joins without partner or sink were left out",
        "1 latencies were missing or negative and were filled in",
    ]
    assert problem.joins == 1
    assert problem.matrix_ms[2, 5] == problem.matrix_ms[5, 2] > 0
    assert len(place(problem).unplaced) == 0


def test_columns_must_fit_together() -> None:
    with pytest.raises(InputError, match="11 capacities where 12 are needed; give one for each"):
        paired(12, 0, capacity_tps=np.ones(11))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [({"sigma": 1.5}, "sigma must lie between 0"), ({"improve_s": -1.0}, "improve_s must not be negative, but is -1")],
)
def test_bad_settings_are_refused(fields: dict[str, float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        NovaSettings(**fields)  # type: ignore[arg-type]


def test_join_matrices_by_key_and_dense() -> None:
    left, right = pairs_by_key(["a", "b", "b"], ["b", "c", "a"])
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 2), (1, 0), (2, 0)]
    assert [side.tolist() for side in all_pairs(2, 2)] == [[0, 0, 1, 1], [0, 1, 0, 1]]
