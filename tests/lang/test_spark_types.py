"""Spark agrees: what we print, Spark reads, and it gives the type we said before it was started."""

from __future__ import annotations

from itertools import groupby

import pytest
from pyspark.sql import SparkSession

from meander.lang.expressions import ExpressionContext, parse
from meander.lang.scope import Scope
from meander.lang.text import Text
from meander.model.expressions.functions import AGGREGATES, SCALARS, SYNONYMS
from meander.model.expressions.scalars import CASTS
from meander.model.expressions.tree import Call, Expression, sql, walk
from meander.model.schema import Schema
from meander.run.expressions import spark_sql
from tests.model.expressions.every_call import calls, columns_of, types_of

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
concat_ws(',')
-9223372036854775808L
i IS DISTINCT FROM 3
NOT b OR s IS NOT DISTINCT FROM 'x'
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
count_if(b)
count(DISTINCT s)
min_by(s, d)
max_by(i, ts)
var_samp(i)
var_pop(d)
stddev_pop(d)
bool_and(b)
bool_or(b)
bit_and(i)
bit_or(n)
bit_xor(i)
sum(DISTINCT i)
sum(DISTINCT d)
avg(DISTINCT n)
median(i)
percentile(d, 0.95)
""".strip().splitlines()


def read(text: str) -> Expression:
    return parse(Text(text).phrase(), ExpressionContext(SCOPE.resolve, SCOPE.resolve))


@pytest.mark.parametrize("texts", [EXPRESSIONS, AGGREGATE_EXPRESSIONS], ids=["scalars", "aggregates"])
def test_spark_gives_the_same_types(spark: SparkSession, texts: list[str]) -> None:
    columns = ", ".join(f"CAST(NULL AS {f.type}) AS `{f.name}`" for f in SCHEMA)
    frame = spark.sql(f"SELECT {columns}").selectExpr(*(f"{sql(read(t))} AS c{i}" for i, t in enumerate(texts)))
    theirs = {t: f.dataType.simpleString() for t, f in zip(texts, frame.schema, strict=True)}
    assert theirs == {t: str(read(t).type) for t in texts}


def test_spark_gives_every_function_the_same_type(spark: SparkSession) -> None:
    wrong = []
    for columns, group in groupby(sorted(calls(), key=columns_of), key=columns_of):
        nulls = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in columns) or "1"
        found = list(group)
        frame = spark.sql(f"SELECT {nulls}").selectExpr(*(f"{spark_sql(c)} AS c{i}" for i, c in enumerate(found)))
        for each, field in zip(found, frame.schema, strict=True):
            if field.dataType.simpleString() != str(each.type):
                wrong.append(f"{sql(each)} ({types_of(each)}): {each.type}, Spark says {field.dataType.simpleString()}")
    assert not wrong, "\n".join(wrong)


def test_every_aggregate_is_tried() -> None:
    tried = {e.function for t in AGGREGATE_EXPRESSIONS for e in walk(read(t)) if isinstance(e, Call)}
    assert set(AGGREGATES) - tried == {"top_k", "collect_list", "collect_set"}  # ours: they have bounds


def test_most_of_what_spark_has_is_there(spark: SparkSession) -> None:
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    written_otherwise = {"||", "!", "==", "<>", "cast", "when", "extract", "isnotnull"}
    assert len(names & {*SCALARS, *AGGREGATES, *SYNONYMS, *CASTS, *written_otherwise}) >= 300
