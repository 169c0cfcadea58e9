"""Settings of queries that Nova places: what users write, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from meander.model.errors import InputError
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.settings import Overload


def test_settings_are_those_of_the_file() -> None:
    found = NovaQuerySettings.of({"sigma": "auto", "overload": "refuse", "least_free_tps": 5, "bandwidth_tps": 12.5})
    assert (found.nova.sigma, found.nova.overload) == (None, Overload.REFUSE)
    assert (found.least_free_tps, found.bandwidth_tps) == (5.0, 12.5)
    assert NovaQuerySettings.of({}) == NovaQuerySettings()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"sigmas": 1}, "no setting of Nova 'sigmas'"),
        ({"overload": "spread"}, "spread"),
        ({"sigma": -1}, "sigma must be a number that is not negative"),
        ({"sigma": 2}, "sigma"),
        ({"ms_per_w": "1"}, "ms_per_w must be a number"),
        ({"bandwidth_tps": 0}, "bandwidth_tps must be more than 0"),
        ({"least_free_tps": "much"}, "least_free_tps must be a number"),
        ({"fan_in": 1}, "fan_in must be at least 2"),
        ([], "section of their own"),
    ],
)
def test_bad_settings_are_refused(values: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        NovaQuerySettings.of(values)


def test_a_query_has_limits_of_its_own_over_those_of_all() -> None:
    usual = NovaQuerySettings.of({"least_free_tps": 5, "bandwidth_tps": 100})
    found = usual.with_options([("mechanism", "nova"), ("bandwidth_tps", "20"), ("sigma", "auto")])
    assert (found.least_free_tps, found.bandwidth_tps, found.nova.sigma) == (5, 20, None)
    for name, text, complaint in (
        ("bandwith_tps", "20", "option of a query 'bandwith_tps'"),
        ("bandwidth_tps", "fast", "bandwidth_tps must be a number"),
        ("bandwidth_tps", "0", "more than 0"),
        ("least_free_tps", "-1", "not negative"),
        ("overload", "spread", "value of overload"),
    ):
        with pytest.raises(InputError, match=complaint):
            usual.with_options([(name, text)])
