"""The aggregate functions: a line each, as in `scalars`.

Values that are kept one by one, such as those of `collect_list`, have a bound, because a window may hold any number.
"""

from __future__ import annotations

LINES = """
count                  ?x    bigint
count_if               b     bigint
count_distinct         c     bigint
approx_count_distinct  x     bigint
sum                    n     summed
sum_distinct           n     summed
avg_distinct           n     double
avg                    n     double
median                 n     double
percentile             np    double
min                    c     same
max                    c     same
min_by                 xc?k  by
max_by                 xc?k  by
first                  x     same
last                   x     same
var_samp               n     double
var_pop                n     double
stddev                 n     double
stddev_pop             n     double
bool_and               b     boolean
bool_or                b     boolean
bit_and                i     same
bit_or                 i     same
bit_xor                i     same
top_k                  ck    array_of_first
collect_list           x?k   array_of_first
collect_set            c?k   array_of_first
"""

SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "variance": "var_samp",
    "every": "bool_and",
    "try_sum": "sum",
    "try_avg": "avg",
    "some": "bool_or",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
    "array_agg": "collect_list",
    "topk": "top_k",
}

BOUNDED = {"top_k": 2, "collect_list": 2, "collect_set": 2, "min_by": 3, "max_by": 3}
"""Aggregates with an argument that says how many values are kept, and its position from one."""

ORDERED = frozenset(["min_by", "max_by"])
"""Aggregates for which a tuple does not count when their second argument is null."""

VALUES, MOST_VALUES = 1_000, 100_000
"""Values that `collect_list` and `collect_set` keep when nothing else is said, and at most."""

IGNORE_NULLS = frozenset(name for line in LINES.split("\n") if line for name in line.split()[:1]) - {"first", "last"}
"""Aggregates for which a null is no value: those that can have a FILTER."""
