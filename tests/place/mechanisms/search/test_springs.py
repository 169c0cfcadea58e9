"""`mopa` and `relaxation` before they go to real nodes: they reach the optimum of what they minimise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from meander.model.ids import OperatorId
from meander.place.mechanisms.search.springs import FORCE, Springs, energy, length, rest, weber
from tests.place.mechanisms.problems import points


@st.composite
def systems(draw: st.DrawFn, most: int = 4) -> Springs:
    """A random tree of operators with extra springs, each leaf nailed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, most))
    edges = [(int(rng.integers(0, i)), i) for i in range(1, count)]
    edges += [(a, b) for a, b in rng.integers(0, count, (draw(st.integers(0, 2)), 2)).tolist() if a < b]
    nailed = np.concatenate((np.arange(count), rng.integers(0, count, draw(st.integers(1, 4))))).astype(np.int64)
    return Springs(
        [OperatorId(i) for i in range(count)],
        np.array(edges, dtype=np.int64).reshape(len(edges), 2),
        rng.integers(1, 9, len(edges)) / 8,
        nailed,
        points(rng, len(nailed)),
        rng.integers(1, 9, len(nailed)) / 8,
    )


def laplacian(system: Springs) -> tuple[np.ndarray, np.ndarray]:
    count = len(system.operators)
    matrix, pulled = np.zeros((count, count)), np.zeros((count, 2))
    for (a, b), k in zip(system.edges, system.stiffness, strict=True):
        matrix[[a, b], [a, b]] += k
        matrix[[a, b], [b, a]] -= k
    for o, nail, k in zip(system.nailed, system.nails, system.hold, strict=True):
        matrix[o, o] += k
        pulled[o] += k * nail
    return matrix, pulled


@given(systems(12))
def test_springs_come_to_rest_where_the_linear_system_says(system: Springs) -> None:
    exact = np.linalg.solve(*laplacian(system))
    np.testing.assert_allclose(rest(system, force=1e-10), exact, atol=1e-6)
    usual = rest(system)
    matrix, pulled = laplacian(system)
    assert np.abs(matrix @ usual - pulled).max() < FORCE
    assert energy(system, usual) <= energy(system, exact) * 1.001


@given(systems())
@settings(max_examples=30)
def test_weber_points_are_the_optimum(system: Springs) -> None:
    """Compared with a general optimiser from several starts; the objective is convex."""
    found = length(system, weber(system))
    rng = np.random.default_rng(0)

    def rounded(flat: np.ndarray, rounding: float) -> float:
        at = flat.reshape(-1, 2)
        inner = ((at[system.edges[:, 0]] - at[system.edges[:, 1]]) ** 2).sum(axis=1)
        outer = ((at[system.nailed] - system.nails) ** 2).sum(axis=1)
        return float(system.stiffness @ np.sqrt(inner + rounding**2) + system.hold @ np.sqrt(outer + rounding**2))

    best = np.inf
    for start in (rest(system), points(rng, len(system.operators))):
        flat = start.ravel()
        for rounding in (10.0, 1.0, 0.1, 0.01, 1e-3):
            flat = minimize(rounded, flat, args=(rounding,), method="BFGS").x
        best = min(best, length(system, flat.reshape(-1, 2)))
    assert found <= best * (1 + 1e-4)


def one(nails: list[tuple[float, float]], hold: list[float]) -> Springs:
    none = np.zeros((0, 2), dtype=np.int64)
    nailed = np.zeros(len(nails), dtype=np.int64)
    return Springs(
        [OperatorId(1)], none, np.zeros(0), nailed, np.array(nails, dtype=float), np.array(hold, dtype=float)
    )


def test_the_fermat_point_of_a_right_angle() -> None:
    (found,) = weber(one([(0, 0), (1, 0), (0, 1)], [1, 1, 1]))
    np.testing.assert_allclose(found, (3 - np.sqrt(3)) / 6, atol=1e-4)


def test_a_nail_that_outweighs_the_others_holds_the_operator() -> None:
    (found,) = weber(one([(0, 0), (50, 0), (0, 80)], [3, 1, 1]))
    np.testing.assert_array_equal(found, (0, 0))


def test_the_mean_is_not_the_weber_point() -> None:
    system = one([(0, 0), (10, 0), (100, 0)], [1, 1, 1])
    assert rest(system, 1e-9)[0, 0] == pytest.approx(110 / 3)
    assert weber(system)[0, 0] == pytest.approx(10, abs=1e-4)


def test_a_long_chain_is_solved_sparsely() -> None:
    count = 300
    edges = np.column_stack((np.arange(count - 1), np.arange(1, count)))
    nails = np.array([[0.0, 0.0], [100.0, 40.0]])
    system = Springs(
        [OperatorId(i) for i in range(count)], edges, np.ones(count - 1), np.array([0, count - 1]), nails, np.ones(2)
    )
    assert length(system, weber(system)) == pytest.approx(np.hypot(100, 40), rel=1e-6)
