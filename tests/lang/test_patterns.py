"""Regular expressions that could keep a slot busy for ever are refused; usual ones are not."""

from __future__ import annotations

import pytest

from meander.lang.patterns import LONGEST, check_pattern
from meander.model.errors import InputError


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(a|a?)+",
        "([a-z]+)*@",
        "(a*)*b",
        "(x+x+)+y",
        "(.*a){25}",
        "((a|b)*c*)*",
        r"(\d+\w*)+!",
        "(?:a+){10,}",
        "^(?=(a+)+$)",
        "x" * (LONGEST + 1),
        r"(\p{L}+)+$",
        r"(\p{Alpha}|a)*b",
        "([ab]|a)*c",
        "([a-z&&[a-z]]+)*b",
        r"\Q(\E(a+)+b",
        "((a+)+b)*+",
        "(?>(a+)+b)",
        "((?i)a+)+",
        "a*a*a*a*b",
        ".*a.*a.*a.*b",
    ],
)
def test_a_pattern_that_a_row_could_make_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match=r"write it without|at most|more simply"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^ICE-[0-9]+$",
        r"(\d+,)*\d+",
        "(foo|bar)*",
        r"^\w+@\w+\.com$",
        ".*error.*",
        "(ab)+",
        "[a-z]{2,8}",
        "a+b+",
        "(?i)x",
        "[^,]*,[^,]*,[^,]*,[^,]*,[^,]*",
        r"\p{L}+\s\d+",
        r"(?<a>\d+)-(?<b>\d+)\k<a>",
        "(a|b)*c",
        "(a*)*+b",
        "[[:alpha:]]+",
        "(",
    ],
)
def test_usual_patterns_are_taken(pattern: str) -> None:
    check_pattern(pattern)
