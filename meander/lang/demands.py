"""The text of demands, in both languages: `latency < 100 ms, hops <= 3 WEIGHT 2`, with or without conditions.

demands    = demand {, demand}
demand     = bound {WHEN condition | UNLESS condition}
           | WHEN condition THEN bounds {WHEN condition THEN bounds} [OTHERWISE bounds]
bounds     = bound {AND bound}
bound      = metric comparison quantity [WEIGHT number]
condition  = test {AND test}
test       = fact comparison number | fact BETWEEN number AND number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meander.lang.reader import Reader
from meander.lang.text import Text, word_of
from meander.model.conditions import COMPARISONS, Clause, Fact, Test
from meander.model.demands import Demand, Metric, contradiction
from meander.model.errors import InputError, unknown

Placed = tuple[Demand, int]
"""A demand and where it stands."""

_ENDS = frozenset({",", ";", "WEIGHT", "AND", "WHEN", "UNLESS", "THEN", "OTHERWISE"})


def read_demands(reader: Reader, earlier: Sequence[Demand] = ()) -> tuple[Demand, ...]:
    """One or more demands; raises when they contradict each other or those that were there already."""
    found = [placed for several in reader.listed(lambda: _demand(reader)) for placed in several]
    demands = [demand for demand, _ in found]
    wrong = contradiction((*earlier, *demands))
    if wrong is not None:
        raise reader.text.error(wrong.reason, found[max(wrong.at - len(earlier), 0)][1])
    return tuple(demands)


def parse_demands(text: str, label: str = "demand") -> tuple[Demand, ...]:
    """The demands in a text of their own; an empty text has none."""
    reader = Reader(Text(text, label, numbers_lines=False))
    if reader.token is None:
        return ()
    found = read_demands(reader)
    reader.end()
    return found


def parse_clauses(text: str) -> tuple[Clause, ...]:
    """The conditions behind a demand: `WHEN hour BETWEEN 7 AND 9 UNLESS churn > 3`."""
    reader = Reader(Text(text, "when", numbers_lines=False))
    found = _clauses(reader)
    reader.end()
    return found


def _demand(reader: Reader) -> list[Placed]:
    if not reader.at("WHEN"):
        demand, offset = _bound(reader)
        return [(replace(demand, when=_clauses(reader)), offset)]
    found: list[Placed] = []
    failed: tuple[Clause, ...] = ()
    while reader.take("WHEN"):
        tests = _tests(reader)
        reader.expect("THEN", remedy="what is demanded when the condition holds")
        found += _bounds(reader, (*failed, Clause(tests)))
        failed = (*failed, Clause(tests, negated=True))
    if reader.take("OTHERWISE"):
        found += _bounds(reader, failed)
    return found


def _bounds(reader: Reader, when: tuple[Clause, ...]) -> list[Placed]:
    found = [_bound(reader)]
    while reader.take("AND"):
        found.append(_bound(reader))
    return [(replace(demand, when=when), offset) for demand, offset in found]


def _clauses(reader: Reader) -> tuple[Clause, ...]:
    found: list[Clause] = []
    while reader.at("WHEN") or reader.at("UNLESS"):
        negated = not reader.take("WHEN")
        if negated:
            reader.expect("UNLESS")
        found.append(Clause(_tests(reader), negated))
    return tuple(found)


def _bound(reader: Reader) -> Placed:
    start = reader.offset
    metric = reader.name("a metric such as latency")
    names = [m.value for m in Metric]
    if metric.lower() not in names:
        raise _unknown_word("metric", metric, names).at(reader.text.where(start))
    comparison = _comparison(reader, metric)
    bound_at = reader.offset
    bound = _until(reader, "a bound such as 100 ms")
    weight = reader.number("a weight such as 2") if reader.take("WEIGHT") else 1.0
    with reader.text.at(bound_at):
        return Demand.of(metric, comparison, bound, weight), start


def _unknown_word(kind: str, word: str, names: list[str]) -> InputError:
    """A fact in the place of a metric gets a hint."""
    if word.lower() in [f.value for f in Fact]:
        return InputError(f"{word} cannot be demanded, only asked about: write WHEN {word} ... THEN a demand")
    return unknown(kind, word, names)


def _comparison(reader: Reader, of: str, *also: str) -> str:
    token = reader.token
    known = (*COMPARISONS, *also)
    if token is None or word_of(token) not in known:
        raise reader.expected(f"one of {' '.join(known)} after {of}")
    reader.take(word_of(token))
    return word_of(token)


def _until(reader: Reader, what: str) -> str:
    """The text up to the next word that ends a quantity."""
    start, first = reader.offset, reader.index
    while reader.token is not None and word_of(reader.token) not in _ENDS:
        reader.index += 1
    if first == reader.index:
        raise reader.expected(what)
    return reader.text.source[start : reader.tokens[reader.index - 1].end + 1]


def _tests(reader: Reader) -> tuple[Test, ...]:
    found = [_test(reader)]
    while reader.take("AND"):
        found.append(_test(reader))
    return tuple(found)


def _test(reader: Reader) -> Test:
    start = reader.offset
    fact = reader.name("a fact such as hour")
    names = [f.value for f in Fact]
    if fact.lower() not in names:
        raise unknown("fact", fact, names).at(reader.text.where(start))
    comparison = _comparison(reader, fact, "BETWEEN")
    at = reader.offset
    low = _until(reader, "a number")
    high = None
    if comparison == "BETWEEN":
        reader.expect("AND", remedy="BETWEEN takes two numbers")
        high = _until(reader, "the second number of BETWEEN")
    with reader.text.at(at):
        return Test.of(fact, comparison, low, high)
