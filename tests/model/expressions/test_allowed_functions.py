"""User functions: only those that are allowed are imported."""

from __future__ import annotations

import pytest

from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import ANY, NONE, allowed


@pytest.mark.parametrize(
    ("pattern", "function", "fits"),
    [
        ("fleet.rules:enrich", "fleet.rules:enrich", True),
        ("fleet.rules:enrich", "fleet.rules:other", False),
        ("fleet.rules", "fleet.rules:enrich", True),
        ("fleet.rules", "fleet.rules.more:enrich", False),
        ("fleet", "fleets:enrich", False),
        ("fleet.*", "fleet.rules.more:enrich", True),
        ("fleet.*", "fleetx.rules:enrich", False),
        ("*", "os:system", True),
    ],
)
def test_a_pattern_allows_what_it_names(pattern: str, function: str, fits: bool) -> None:
    if fits:
        allowed([pattern]).check(function)
    else:
        with pytest.raises(InputError, match=f"allowed are {pattern}".replace("*", r"\*")):
            allowed([pattern]).check(function)


def test_where_nothing_is_said_nothing_is_imported_and_the_remedy_is_named() -> None:
    with pytest.raises(InputError, match=r'functions = \["os"\] in meander.toml'):
        NONE.check("os:system")
    ANY.check("os:system")


@pytest.mark.parametrize("pattern", ["", "a b", "os:", "../x", "os:system:x", "a..b"])
def test_patterns_that_name_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="names no function"):
        allowed([pattern])
