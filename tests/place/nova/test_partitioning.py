"""Cuts as fine as they must be: the grid that takes in least, and the piece that fills a room."""

from hypothesis import given
from hypothesis import strategies as st

from meander.place.nova.partitioning import grid, least_extra

rate = st.floats(1, 200)


@given(rate, rate, st.floats(5, 300))
def test_the_grid_takes_in_least_of_all_whose_pieces_fit(left: float, right: float, room: float) -> None:
    a, b = grid(left, right, room, 12, 12)
    fits = [
        (j * left + i * right, i, j)
        for i in range(1, 13)
        for j in range(1, 13)
        if left / i + right / j <= room * (1 + 1e-9)
    ]
    assert (a == 0) == (not fits)
    if fits:
        assert left / a + right / b <= room * (1 + 1e-5)
        assert b * left + a * right <= min(fits)[0] * (1 + 1e-5)


def test_what_fits_whole_is_not_cut() -> None:
    assert grid(30.0, 40.0, 70.0, 8, 8) == (1, 1)
    assert least_extra(30.0, 40.0, 70.0) == 0.0


def test_the_side_that_brings_less_is_sent_twice() -> None:
    assert grid(100.0, 10.0, 60.0, 8, 8) == (2, 1)
    assert least_extra(100.0, 10.0, 60.0) == 10.0
