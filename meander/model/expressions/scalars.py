"""The scalar functions: a line each, with the arguments they take and the type they give.

Names and meanings are Spark SQL's. Left out: what depends on the clock, on chance, on the machine or the session, what
runs code, and what makes a value of any size from a number. A line is `name takes gives`; `!` at its end says that
Spark fails on some arguments, so that a run has to guard the call (the sweep over extreme values in the tests finds out
whether a line is right).

Arguments are a letter each; `?` stands before optional ones, `*` repeats the last, `/` parts alternatives, `-` is none:
n numeric, i integral, j integral that Spark wants as an int, b boolean, s string, y binary or string, t timestamp or
date, u the same that Spark wants as a timestamp, d date, a array, A array of arrays, c comparable, x anything; of
constants k a whole number, B a boolean, S a character.
"""

from __future__ import annotations

LINES = """
and                   bb*          boolean
or                    bb*          boolean
not                   b            boolean
=                     cc           comparison
!=                    cc           comparison
<                     cc           comparison
<=                    cc           comparison
>                     cc           comparison
>=                    cc           comparison
<=>                   cc           comparison
between               ccc          comparison
in                    cc*          comparison
is_null               x            boolean
like                  ss           boolean !
ilike                 ss           boolean !
rlike                 ss           boolean !
+                     nn           common
-                     nn           common
*                     nn           common
/                     nn           double
%                     nn           common
div                   ii           bigint !
&                     ii           common
|                     ii           common
^                     ii           common
~                     i            same
negative              n            same
case                  bx*          case
if                    bxx          conditional
coalesce              xx*          common
nullif                cc           same
nvl2                  xxx          conditional
greatest              cc*          common
least                 cc*          common
zeroifnull            n            common_int
nullifzero            n            same

abs                   n            same
ceil                  n            bigint
floor                 n            bigint
round                 n?k          rounded
bround                n?k          rounded
rint                  n            double
sign                  n            double
positive              n            same
pmod                  nn           common
sqrt                  n            double
cbrt                  n            double
exp                   n            double
expm1                 n            double
ln                    n            double
log                   n?n          double
log1p                 n            double
log10                 n            double
log2                  n            double
power                 nn           double
hypot                 nn           double
sin                   n            double
cos                   n            double
tan                   n            double
cot                   n            double
sec                   n            double
csc                   n            double
asin                  n            double
acos                  n            double
atan                  n            double
sinh                  n            double
cosh                  n            double
tanh                  n            double
asinh                 n            double
acosh                 n            double
atanh                 n            double
atan2                 nn           double
radians               n            double
degrees               n            double
e                     -            double
pi                    -            double
factorial             j            bigint
isnan                 n            boolean
nanvl                 nn           floating
width_bucket          nnni         bigint
bin                   i            string
hex                   i/y          string
unhex                 s            binary
conv                  sjj          string !
bit_count             i/b          int
getbit                ij           int !
shiftleft             ij           same
shiftright            ij           same
shiftrightunsigned    ij           same
format_number         nk           string

length                y            int
bit_length            y            int
octet_length          y            int
lower                 s            string
upper                 s            string
initcap               s            string
trim                  s            string
ltrim                 s            string
rtrim                 s            string
btrim                 s?s          string
reverse               s/a          same
concat                s*/a*        common
concat_ws             s?s*         string
substring             sj?j         string
substring_index       ssj          string
left                  sj           string
right                 sj           string
lpad                  sj?s         string
rpad                  sj?s         string
repeat                sj           string
overlay               ssj?j        string
replace               ss?s         string
translate             sss          string
split                 ss?j         strings !
split_part            ssj          string !
startswith            ss           boolean
endswith              ss           boolean
contains              ss           boolean
instr                 ss           int
locate                ss?j         int
find_in_set           ss           int
elt                   jss*         string !
ascii                 s            int
chr                   i            string
levenshtein           ss           int
soundex               s            string
mask                  s?SSSS       string
jaro_winkler_similarity ss         double
luhn_check            s            boolean
quote                 s            string
is_valid_utf8         s            boolean
make_valid_utf8       s            string

regexp_replace        sss          string !
regexp_extract        ss?j         string !
regexp_extract_all    ss?j         strings !
regexp_count          ss           int !
regexp_instr          ss           int !
regexp_substr         ss           string !

hash                  x*           int
xxhash64              x*           bigint
crc32                 y            bigint
md5                   y            string
sha1                  y            string
sha2                  yj           string
base64                y            string
to_base32             y            string
unbase64              s            binary !
encode                ss           binary !
decode                ys           string !
url_encode            s            string
url_decode            s            string !
parse_url             ss?s         string !
get_json_object       ss           string
json_array_length     s            int
json_object_keys      s            strings
to_json               a            string

year                  t            int
quarter               t            int
month                 t            int
monthname             t            string
weekofyear            t            int
day                   t            int
dayname               t            string
dayofweek             t            int
weekday               t            int
dayofyear             t            int
hour                  u            int
minute                u            int
second                u            int
date_trunc            su           timestamp
trunc                 ts           date
last_day              t            date
next_day              ts           date !
add_months            tj           date !
date_add              tj           date !
date_sub              tj           date !
datediff              tt           int
months_between        uu?b         double
make_date             jjj          date !
make_timestamp        jjjjjn?s     timestamp !
to_date               t/s?s        date !
to_timestamp          t/s?s        timestamp !
date_format           us           string !
from_unixtime         i?s          string !
unix_timestamp        u/s?s        bigint !
unix_date             d            int
date_from_unix_date   j            date
unix_seconds          u            bigint
unix_millis           u            bigint
unix_micros           u            bigint
timestamp_seconds     n            timestamp !
timestamp_millis      i            timestamp !
timestamp_micros      i            timestamp
from_utc_timestamp    us           timestamp !
to_utc_timestamp      us           timestamp !

array                 x*           array
size                  a            int
get                   aj           element
element_at            aj           element
element_at_index      aj           element
array_contains        ax           member_boolean
array_position        ax           member_bigint
array_append          ax           appended
array_prepend         ax           appended
array_insert          ajx          inserted
array_remove          ax           member_same
array_compact         a            same
array_distinct        a            same
array_union           aa           common
array_intersect       aa           common
array_except          aa           common
arrays_overlap        aa           boolean
array_max             a            element
array_min             a            element
array_sort            a            same
sort_array            a?B          same
array_join            as?s         string
array_repeat          xj           array_of_first
slice                 ajj          same
flatten               A            element
"""

SYNONYMS = {
    "mod": "%",
    "try_mod": "%",
    "try_add": "+",
    "try_subtract": "-",
    "try_multiply": "*",
    "try_divide": "/",
    "pow": "power",
    "ceiling": "ceil",
    "signum": "sign",
    "bit_get": "getbit",
    "substr": "substring",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "ucase": "upper",
    "lcase": "lower",
    "char": "chr",
    "position": "locate",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "sha": "sha1",
    "try_url_decode": "url_decode",
    "try_parse_url": "parse_url",
    "day_of_week": "dayofweek",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "try_to_date": "to_date",
    "try_to_timestamp": "to_timestamp",
    "to_unix_timestamp": "unix_timestamp",
    "try_make_timestamp": "make_timestamp",
    "equal_null": "<=>",
    "isnull": "is_null",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "cardinality": "size",
    "array_size": "size",
    "try_element_at": "element_at",
}
"""Other names, and what they stand for."""

CASTS = frozenset(["boolean", "int", "bigint", "float", "double", "string", "timestamp", "date", "binary"])
"""Functions named like a type cast to it, as in Spark: `double(x)`."""
