"""MATCH: patterns over several inputs, `MATCH a THEN b WITHIN 30 s`, read from left to right.

A step without a bound takes the next one that is written. The WHERE of the query is the condition of the last step.
"""

from __future__ import annotations

from dataclasses import dataclass

from meander.lang.clauses import condition
from meander.lang.reader import Reader
from meander.lang.relation import Bound, Relation, both, either, filtered, followed
from meander.lang.sql.windows import read_bound
from meander.lang.text import Phrase
from meander.model.errors import InputError, unknown
from meander.model.windows import Within

WORDS = ("THEN", "AND", "OR")
_NAMES = {"THEN": "a sequence", "AND": "a conjunction"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """The last step of a pattern, whose condition is not known yet."""

    word: str
    left: Relation
    right: Relation
    bound: Bound | None
    where: str


@dataclass(frozen=True, slots=True)
class _Step:
    word: str
    right: Relation
    bound: Bound | None
    offset: int


def read_pattern(reader: Reader, inputs: dict[str, Relation]) -> Pattern:
    """The pattern after MATCH, over inputs by their aliases; each one is used once."""
    unused = dict(inputs)
    start = reader.offset
    pattern = _chain(reader, inputs, unused)
    if isinstance(pattern, Relation):
        raise reader.expected("THEN, AND or OR")
    if unused:
        raise reader.text.error(f"MATCH does not use {', '.join(unused)}; every input must be in the pattern", start)
    return pattern


def finish(pattern: Pattern, where: Phrase | None) -> Relation:
    """The relation of a pattern with its condition."""
    try:
        scope = pattern.left.scope.beside(pattern.right.scope)
        predicate = None if where is None else condition(scope, where)
        if pattern.bound is None:
            result = either(pattern.left, pattern.right)
            return result if predicate is None else filtered(result, predicate)
        if pattern.word == "AND":
            return both(pattern.left, pattern.right, pattern.bound, predicate)
        if not isinstance(pattern.bound.window, Within):
            raise InputError("a sequence takes WITHIN and a duration, not a window")
        within = pattern.bound.window.ms
        return followed(pattern.left, pattern.right, within, predicate, pattern.bound.lateness_ms)
    except InputError as error:
        raise error.at(where.text.where(where.start) if where is not None else pattern.where) from None


def _chain(reader: Reader, inputs: dict[str, Relation], unused: dict[str, Relation]) -> Pattern | Relation:
    first = _term(reader, inputs, unused)
    steps: list[_Step] = []
    while any(reader.at(word) for word in WORDS):
        offset = reader.offset
        word = next(w for w in WORDS if reader.take(w))
        right = _term(reader, inputs, unused)
        bounded = word != "OR" and (reader.at("WITHIN") or reader.at("WINDOW"))
        steps.append(_Step(word, right, read_bound(reader, _NAMES[word]) if bounded else None, offset))
    return _folded(reader, first, steps)


def _folded(reader: Reader, first: Relation, steps: list[_Step]) -> Pattern | Relation:
    """The steps from left to right, each with its own bound or the next one."""
    bounds: list[Bound | None] = []
    following: Bound | None = None
    for step in reversed(steps):
        following = step.bound or following
        bounds.append(following)
    result: Pattern | Relation = first
    for step, bound in zip(steps, reversed(bounds), strict=True):
        if step.word != "OR" and bound is None:
            raise reader.expected(f"WITHIN 10 s, the time bound of {_NAMES[step.word]}")
        left = finish(result, None) if isinstance(result, Pattern) else result
        bound = None if step.word == "OR" else bound
        result = Pattern(step.word, left, step.right, bound, reader.text.where(step.offset))
    return result


def _term(reader: Reader, inputs: dict[str, Relation], unused: dict[str, Relation]) -> Relation:
    if reader.take("("):
        inner = _chain(reader, inputs, unused)
        reader.expect(")")
        return finish(inner, None) if isinstance(inner, Pattern) else inner
    start = reader.offset
    alias = reader.name("the name of an input")
    if alias not in inputs:
        raise unknown("input", alias, inputs).at(reader.text.where(start))
    if alias not in unused:
        raise reader.text.error(f"input {alias!r} is used twice; name the stream twice in FROM", start)
    return unused.pop(alias)
