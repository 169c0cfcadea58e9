"""The text of demands, in both languages: `latency < 100 ms, hops <= 3 WEIGHT 2`."""

from __future__ import annotations

from meander.lang.reader import Reader
from meander.lang.text import word_of
from meander.model.demands import COMPARISONS, Demand, Metric
from meander.model.errors import unknown


def read_demands(reader: Reader) -> tuple[Demand, ...]:
    """One or more demands, separated by commas."""
    return tuple(reader.listed(lambda: _demand(reader)))


def _demand(reader: Reader) -> Demand:
    start = reader.offset
    metric = reader.name("a metric such as latency")
    names = [m.value for m in Metric]
    if metric.lower() not in names:
        raise unknown("metric", metric, names).at(reader.text.where(start))
    token = reader.token
    if token is None or word_of(token) not in COMPARISONS:
        raise reader.expected(f"one of {' '.join(COMPARISONS)} after {metric}")
    reader.take(word_of(token))
    bound_at, first = reader.offset, reader.index
    while reader.token is not None and word_of(reader.token) not in (",", ";", "WEIGHT"):
        reader.index += 1
    if first == reader.index:
        raise reader.expected("a bound such as 100 ms")
    bound = reader.text.source[bound_at : reader.tokens[reader.index - 1].end + 1]
    weight = reader.number("a weight such as 2") if reader.take("WEIGHT") else 1.0
    with reader.text.at(bound_at):
        return Demand.of(metric, word_of(token), bound, weight)
