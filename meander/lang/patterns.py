"""Regular expressions of queries: those that may take for ever on a row that somebody chose are refused.

Java's engine, which Spark uses, tries all ways to match. Where a repetition stands inside a repetition, or alternatives
that begin alike do, a row of thirty characters can have a billion of them, and the query's slot stands still. The same
holds, more slowly, for many repetitions after each other that can share out the same characters. Patterns are read as
Python would; syntax that only Java has is replaced by what matches at least as much.
"""

from __future__ import annotations

import re
import re._constants as codes
import re._parser as parser
from collections.abc import Callable, Sequence
from typing import Any

from meander.model.errors import InputError

LONGEST, MANY, MOST_SHARING = 1_000, 3, 3
"""Characters of a pattern; from so many repetitions on, how often something repeats is a matter of the row; repetitions
after each other that the same characters can be shared out among."""
_CHARACTERS = frozenset(range(256))
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
_ALL_REPEATS = (*_REPEATS, codes.POSSESSIVE_REPEAT)
_SINGLE = (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY)
_ANY = r"[\s\S]"
_BAR = "|(?=)"
"""Says the same, and keeps Python from making one set of alternatives of one character: Java tries them one by one."""
_JAVA = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)            # \Q...\E: as it is
      | (?P<any>\\[pP](?:\{[^}]*\}|.)|\\[hHvVRX])
      | (?P<nothing>\\[GzZA])
      | \\x\{(?P<code>[0-9a-fA-F]+)\}
      | \\k<(?P<back>\w+)>
      | \(\?<(?P<group>[A-Za-z]\w*)>
      | (?P<other>\\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)


def check_pattern(pattern: str) -> None:
    """Raises for a pattern that can take exponentially long.

    >>> check_pattern(r"(\\d+,)*x")
    """
    if len(pattern) > LONGEST:
        raise InputError(f"this pattern has {len(pattern):,} characters; at most {LONGEST:,} are taken")
    try:
        tree = parser.parse(_as_python(pattern))
    except (re.error, RecursionError, OverflowError, ValueError):
        if len(re.findall(r"[*+{]", pattern)) < 2:
            return  # nothing is repeated in something repeated, whatever it means
        raise InputError(
            f"the pattern {pattern!r} cannot be read, so it cannot be checked for taking for ever; write it more simply"
        ) from None
    _check(list(tree), pattern)
    sharing = _sharing(list(tree))
    if sharing > MOST_SHARING:
        raise InputError(
            f"the pattern {pattern!r} has {sharing} repetitions that can share out the same characters, which may take "
            f"very long; write at most {MOST_SHARING}, or exclude what ends each, such as [^,]*, for .*,"
        )


def _as_python(pattern: str) -> str:
    """A pattern of Java's as one of Python's that matches at least as much."""
    found: list[str] = []
    depth = start = 0
    for match in _JAVA.finditer(pattern):
        kind, text = match.lastgroup, match.group()
        if depth:  # inside [...]; one with another inside is any character
            depth += (kind == "other" and text == "[") - (kind == "other" and text == "]")
            if not depth:
                inner = pattern[start : match.end()]
                plain = "[" not in inner[1:] and "&&" not in inner and not re.search(r"\\[pPhHvVQ]", inner)
                found.append(inner if plain else _ANY)
        elif kind == "other" and text == "[":
            depth, start = 1, match.start()
        elif kind == "any":
            found.append(_ANY)
        elif kind == "quoted":
            found.append(re.escape(match["quoted"]))
        elif kind == "code":
            found.append(re.escape(chr(int(match["code"], 16))))
        elif kind == "back":
            found.append(f"(?P={match['back']})")
        elif kind == "group":
            found.append(f"(?P<{match['group']}>")
        elif text == "|":
            found.append(_BAR)
        elif kind != "nothing":
            found.append(text)
    return "".join(found) if not depth else pattern


def _sharing(nodes: Sequence[Any]) -> int:
    """The most repetitions after each other among which the same characters can be shared out."""
    most = count = 0
    shared = _CHARACTERS
    for code, value in _flat(nodes):
        if code in _REPEATS and value[1] is codes.MAXREPEAT:
            own = _characters(_plain(list(value[2])))
            count, shared = (count + 1, shared & own) if count and shared & own else (1, own)
            most = max(most, count)
        elif code in _SINGLE and count:
            between = _characters([(code, value)])
            if not between & shared:
                count = 0
    inner = [_sharing(branch) for code, value in _deep(nodes) if code is codes.BRANCH for branch in value[1]]
    return max([most, *inner])


def _flat(nodes: Sequence[Any]) -> list[Any]:
    """Nodes after each other, groups opened."""
    found: list[Any] = []
    for code, value in nodes:
        found += _flat(list(value[3])) if code is codes.SUBPATTERN else [(code, value)]
    return found


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
        nodes = _plain([node for node in branch if not _is_empty(*node)])
        first = _characters(nodes[:1]) if nodes else _CHARACTERS
        if seen & first:
            return True
        seen |= first
    return False


def _is_empty(code: Any, value: Any) -> bool:
    return code is codes.ASSERT and not list(value[1])


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
    if code in _ALL_REPEATS:
        return [list(value[2])]
    if code is codes.ATOMIC_GROUP:
        return [list(value)]
    if code is codes.GROUPREF_EXISTS:
        return [list(branch) for branch in value[1:] if branch is not None]
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
