"""Spark agrees: what we print, Spark reads, and it gives the type we said before it was started."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.scope import Scope
from meander.lang.text import Text
from meander.model.expressions.functions import AGGREGATES, SCALARS
from meander.model.expressions.tree import Call, Expression, sql, walk
from meander.model.schema import Schema

SCHEMA = Schema.of(
    b="boolean", i="int", n="bigint", r="float", d="double", s="string", ts="timestamp", day_="date", a="array<double>"
)
SCOPE = Scope.of(SCHEMA)
EXPRESSIONS = """
b AND i = n OR NOT b
d < 3 AND d != 3 AND i <= n AND s > 'a' AND d >= i AND b <=> TRUE
i BETWEEN 1 AND 2.5
s IN ('x', 'it\\'s')
d IS NULL
s LIKE 'a%'
s RLIKE '^a'
ts > '2026-03-01'
day_ = '2026-03-01'
ts BETWEEN '2026-03-01' AND '2026-03-02 10:00'
i + 1
i + n
n - r
i * d
r + i
n + 1.5
i / n
r / r
i % 3
n % i
d % 2
pmod(i, n)
-i
-r
CASE WHEN b THEN i WHEN d < 3 THEN n ELSE 1.5 END
CASE s WHEN 'a' THEN 1 END
if(b, i, n)
if(b, s, NULL)
coalesce(i, n, d)
coalesce(i, r)
greatest(n, r)
if(b, r, i)
array(r, 1)
nullif(i, 3)
greatest(i, n)
least(i, d, 2)
abs(i)
abs(r)
ceil(d)
floor(d)
floor(i)
round(d)
round(d, 2)
round(i)
round(r, 1)
sign(i)
sqrt(i) + exp(d) + ln(d) + log10(d) + log2(d)
sin(d) + cos(d) + tan(d) + asin(d) + acos(d) + atan(d)
atan2(d, i) + power(d, 2) + radians(d) + degrees(d)
length(s)
concat(lower(s), upper(s), trim(s), ltrim(s), rtrim(s), reverse(s), initcap(s), md5(s))
s || 'a' || s
concat_ws(',', s, s)
substring(s, 2)
substring(s, 2, 3)
replace(s, 'a', 'b')
replace(s, 'a')
regexp_replace(s, 'a+', 'b')
regexp_extract(s, '(a+)', 1)
split(s, ',')
startswith(s, 'a') AND endswith(s, 'b') AND contains(s, 'c')
hash(i, s, d)
xxhash64(i, s)
year(ts) + month(ts) + day(ts) + hour(ts) + minute(ts) + second(ts) + dayofweek(ts) + dayofyear(ts)
year(day_)
date_trunc('hour', ts)
to_date(ts)
unix_millis(ts)
unix_seconds(ts)
timestamp_millis(n)
timestamp_seconds(n)
array(1, 2)
array(i, d)
size(a)
array_contains(a, d)
element_at(a, 1)
a[0]
CAST(i AS string)
CAST(s AS timestamp)
CAST(NULL AS double)
CAST(a AS array<int>)
1.5
1.5F
10L
'x'
DATE '2026-03-01'
TIMESTAMP '2026-03-01 12:00:00.5'
-2147483648
""".strip().splitlines()
AGGREGATE_EXPRESSIONS = """
count(*)
count(s)
sum(i)
sum(n)
sum(r)
sum(d)
avg(i)
avg(d)
min(s)
max(ts)
max(i)
stddev(i)
approx_count_distinct(s)
first(s)
last(a)
sum(i) / count(*)
""".strip().splitlines()


def read(text: str) -> Expression:
    return parse(Text(text).phrase(), ExpressionContext(SCOPE.resolve, SCOPE.resolve))


@pytest.mark.parametrize("texts", [EXPRESSIONS, AGGREGATE_EXPRESSIONS], ids=["scalars", "aggregates"])
def test_spark_gives_the_same_types(spark: SparkSession, texts: list[str]) -> None:
    columns = ", ".join(f"CAST(NULL AS {f.type}) AS `{f.name}`" for f in SCHEMA)
    frame = spark.sql(f"SELECT {columns}").selectExpr(*(f"{sql(read(t))} AS c{i}" for i, t in enumerate(texts)))
    theirs = {t: f.dataType.simpleString() for t, f in zip(texts, frame.schema, strict=True)}
    assert theirs == {t: str(read(t).type) for t in texts}


def test_every_function_is_tried() -> None:
    tried = {e.function for t in EXPRESSIONS + AGGREGATE_EXPRESSIONS for e in walk(read(t)) if isinstance(e, Call)}
    assert {*SCALARS, *AGGREGATES} - tried == {"top_k"}  # ours: the runtime computes it
