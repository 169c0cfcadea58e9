"""Regular expressions of queries: those that may take for ever on a row that somebody chose are refused.

Java's engine, which Spark uses, tries all ways to match. Where a repetition stands inside a repetition, or alternatives
that begin alike do, a row of thirty characters can have a billion of them, and the query's slot stands still.
"""

from __future__ import annotations

import re
import re._constants as codes
import re._parser as parser
from collections.abc import Callable, Sequence
from typing import Any

from meander.model.errors import InputError

LONGEST, MANY = 1_000, 3
"""Characters of a pattern; from so many repetitions on, how often something repeats is a matter of the row."""
_CHARACTERS = frozenset(range(256))
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def check_pattern(pattern: str) -> None:
    """Raises for a pattern that can take exponentially long.

    >>> check_pattern(r"(\\d+,)*x")
    """
    if len(pattern) > LONGEST:
        raise InputError(f"this pattern has {len(pattern):,} characters; at most {LONGEST:,} are taken")
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return  # Java's syntax where it differs, which the bounds below say nothing about
    _check(list(tree), pattern)


def _check(nodes: Sequence[Any], pattern: str) -> None:
    for code, value in nodes:
        if code in _REPEATS and _is_long(value):
            body = _plain(list(value[2]))
            if _is_ambiguous(body):
                raise InputError(
                    f"the pattern {pattern!r} can match one text in very many ways, which may take for ever: "
                    "a repetition stands inside a repetition; write it without, such as [a-z]+ for ([a-z]+)+"
                )
        for inner in _inside(code, value):
            _check(inner, pattern)


def _is_long(value: Any) -> bool:
    return bool(value[1] > MANY)


def _is_ambiguous(body: Sequence[Any]) -> bool:
    """Whether what is repeated can be cut in several ways where it is repeated."""
    loops = [_characters(list(value[2])) for code, value in _deep(body) if code in _REPEATS and value[0] != value[1]]
    if loops:
        last = _characters([body[-1]]) if body[-1][0] in (codes.LITERAL, codes.NOT_LITERAL, codes.IN) else _CHARACTERS
        if any(last & loop for loop in loops):
            return True
    return any(_overlap(value[1]) for code, value in _deep(body) if code is codes.BRANCH)


def _overlap(branches: Sequence[Any]) -> bool:
    """Whether two alternatives can begin with the same character, or one is empty."""
    seen: set[int] = set()
    for branch in branches:
        nodes = _plain(list(branch))
        first = _characters(nodes[:1]) if nodes else _CHARACTERS
        if seen & first:
            return True
        seen |= first
    return False


def _plain(nodes: list[Any]) -> list[Any]:
    """The content of groups that are all there is."""
    while len(nodes) == 1 and nodes[0][0] is codes.SUBPATTERN:
        nodes = list(nodes[0][1][3])
    return nodes


def _deep(nodes: Sequence[Any]) -> Sequence[Any]:
    found: list[Any] = []
    for code, value in nodes:
        found.append((code, value))
        for inner in _inside(code, value):
            found.extend(_deep(inner))
    return found


def _inside(code: Any, value: Any) -> list[list[Any]]:
    if code in _REPEATS:
        return [list(value[2])]
    if code is codes.SUBPATTERN:
        return [list(value[3])]
    if code is codes.BRANCH:
        return [list(branch) for branch in value[1]]
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [list(value[1])]
    return []


def _characters(nodes: Sequence[Any]) -> frozenset[int]:
    """The characters, of the first 256, that single-character nodes can match; all of them where that is not known."""
    found: set[int] = set()
    for code, value in nodes:
        if code is codes.LITERAL:
            found |= {value} if value < 256 else set()
        elif code is codes.NOT_LITERAL:
            found |= _CHARACTERS - {value}
        elif code is codes.IN:
            found |= _in_set(value)
        else:
            return _CHARACTERS
    return frozenset(found)


def _in_set(items: Sequence[Any]) -> frozenset[int]:
    found: set[int] = set()
    negated = False
    for code, value in items:
        if code is codes.NEGATE:
            negated = True
        elif code is codes.LITERAL:
            found.add(value)
        elif code is codes.RANGE:
            found.update(range(value[0], min(value[1], 255) + 1))
        elif code is codes.CATEGORY:
            found.update(_category(value))
    return _CHARACTERS - found if negated else frozenset(found) & _CHARACTERS


def _category(code: Any) -> frozenset[int]:
    tests: dict[Any, Callable[[str], bool]] = {
        codes.CATEGORY_DIGIT: str.isdigit,
        codes.CATEGORY_SPACE: str.isspace,
        codes.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    }
    opposite = {
        codes.CATEGORY_NOT_DIGIT: codes.CATEGORY_DIGIT,
        codes.CATEGORY_NOT_SPACE: codes.CATEGORY_SPACE,
        codes.CATEGORY_NOT_WORD: codes.CATEGORY_WORD,
    }
    if code in opposite:
        return _CHARACTERS - _category(opposite[code])
    return frozenset(n for n in _CHARACTERS if tests[code](chr(n))) if code in tests else _CHARACTERS
