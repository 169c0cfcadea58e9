"""The functions that expressions may use, with their argument and result types.

Names and meanings are Spark SQL's. `call` is the only way to build a call: it settles the type or raises the error.
Adding a function is one line in `SCALARS` or `AGGREGATES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.expressions.tree import Call, Expression, Literal, sql
from meander.model.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    common_type,
)

Result = Callable[[tuple[DataType, ...]], DataType]


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a function: one letter each, `?` after optional ones, `*` repeats the last.

    n numeric, i integral, b boolean, s string, t timestamp or date, a array, c comparable, x anything.
    """

    takes: str
    gives: Result

    def accepts(self, types: tuple[DataType, ...]) -> bool:
        letters = self.takes.replace("?", "").replace("*", "")
        required = len(self.takes.split("?")[0].replace("*", ""))
        if len(types) < required or (len(types) > len(letters) and "*" not in self.takes):
            return False
        return all(_fits(t, letters[min(i, len(letters) - 1)]) for i, t in enumerate(types))


def _fits(type_: DataType, letter: str) -> bool:
    if type_.kind is Kind.NULL:
        return True
    match letter:
        case "n":
            return type_.is_numeric
        case "i":
            return type_.is_integral
        case "b":
            return type_.kind is Kind.BOOLEAN
        case "s":
            return type_.kind is Kind.STRING
        case "t":
            return type_.kind in (Kind.TIMESTAMP, Kind.DATE)
        case "a":
            return type_.kind is Kind.ARRAY
        case "c":
            return type_.kind is not Kind.ARRAY
    return True


_WORDS = {
    "n": "a number",
    "i": "a whole number",
    "b": "a boolean",
    "s": "a string",
    "t": "a timestamp",
    "a": "an array",
    "c": "a scalar",
    "x": "anything",
}


def _always(type_: DataType) -> Result:
    return lambda _: type_


def _same(types: tuple[DataType, ...]) -> DataType:
    """The first argument's type."""
    return types[0]


def _common(types: tuple[DataType, ...]) -> DataType:
    result = types[0]
    for other in types[1:]:
        widened = common_type(result, other)
        if widened is None:
            raise InputError(f"{result} and {other} have no common type; use CAST")
        result = widened
    return result


def _boolean_of_comparable(types: tuple[DataType, ...]) -> DataType:
    _common(types)
    return BOOLEAN


def _rounded(types: tuple[DataType, ...]) -> DataType:
    return types[0] if types[0].is_numeric else DOUBLE


def _case(types: tuple[DataType, ...]) -> DataType:
    for condition in types[0:-1:2]:
        if condition.kind not in (Kind.BOOLEAN, Kind.NULL):
            raise InputError(f"a CASE condition is {condition}, not boolean; write a comparison after WHEN")
    return _common((*types[1::2], types[-1]))


def _conditional(types: tuple[DataType, ...]) -> DataType:
    return _common(types[1:])


def _array_of_common(types: tuple[DataType, ...]) -> DataType:
    return DataType(Kind.ARRAY, _common(types))


def _array_of_same(types: tuple[DataType, ...]) -> DataType:
    return DataType(Kind.ARRAY, types[0])


def _element(types: tuple[DataType, ...]) -> DataType:
    assert types[0].element is not None
    return types[0].element


_DOUBLE, _INT, _BIGINT, _STRING, _BOOLEAN = map(_always, (DOUBLE, INT, BIGINT, STRING, BOOLEAN))

SCALARS: dict[str, Signature] = {
    "and": Signature("bb*", _BOOLEAN),
    "or": Signature("bb*", _BOOLEAN),
    "not": Signature("b", _BOOLEAN),
    **{op: Signature("cc", _boolean_of_comparable) for op in ("=", "!=", "<", "<=", ">", ">=", "<=>")},
    "between": Signature("ccc", _boolean_of_comparable),
    "in": Signature("cc*", _boolean_of_comparable),
    "is_null": Signature("x", _BOOLEAN),
    "like": Signature("ss", _BOOLEAN),
    "rlike": Signature("ss", _BOOLEAN),
    "+": Signature("nn", _common),
    "-": Signature("nn", _common),
    "*": Signature("nn", _common),
    "/": Signature("nn", _DOUBLE),
    "%": Signature("nn", _common),
    "negative": Signature("n", _same),
    "case": Signature("bx*", _case),
    "if": Signature("bxx", _conditional),
    "coalesce": Signature("xx*", _common),
    "nullif": Signature("cc", _same),
    "greatest": Signature("cc*", _common),
    "least": Signature("cc*", _common),
    "abs": Signature("n", _same),
    "ceil": Signature("n", _BIGINT),
    "floor": Signature("n", _BIGINT),
    "round": Signature("n?i", _rounded),
    "sign": Signature("n", _DOUBLE),
    "pmod": Signature("nn", _common),
    **{
        f: Signature("n", _DOUBLE)
        for f in ("sqrt", "exp", "ln", "log10", "log2", "sin", "cos", "tan", "asin", "acos", "atan")
    },
    "atan2": Signature("nn", _DOUBLE),
    "power": Signature("nn", _DOUBLE),
    "radians": Signature("n", _DOUBLE),
    "degrees": Signature("n", _DOUBLE),
    "length": Signature("s", _INT),
    **{f: Signature("s", _STRING) for f in ("lower", "upper", "trim", "ltrim", "rtrim", "reverse", "initcap", "md5")},
    "concat": Signature("ss*", _STRING),
    "concat_ws": Signature("sss*", _STRING),
    "substring": Signature("si?i", _STRING),
    "replace": Signature("ss?s", _STRING),
    "regexp_replace": Signature("sss", _STRING),
    "regexp_extract": Signature("ss?i", _STRING),
    "split": Signature("ss?i", _always(DataType(Kind.ARRAY, STRING))),
    "startswith": Signature("ss", _BOOLEAN),
    "endswith": Signature("ss", _BOOLEAN),
    "contains": Signature("ss", _BOOLEAN),
    "hash": Signature("xx*", _INT),
    "xxhash64": Signature("xx*", _BIGINT),
    **{f: Signature("t", _INT) for f in ("year", "month", "day", "hour", "minute", "second", "dayofweek", "dayofyear")},
    "date_trunc": Signature("st", _always(TIMESTAMP)),
    "to_date": Signature("t", _always(DATE)),
    "unix_millis": Signature("t", _BIGINT),
    "unix_seconds": Signature("t", _BIGINT),
    "timestamp_millis": Signature("i", _always(TIMESTAMP)),
    "timestamp_seconds": Signature("n", _always(TIMESTAMP)),
    "array": Signature("xx*", _array_of_common),
    "size": Signature("a", _INT),
    "array_contains": Signature("ax", _BOOLEAN),
    "element_at": Signature("ai", _element),
    "element_at_index": Signature("ai", _element),
}
"""Every scalar function, by its Spark SQL name; operators by their symbol."""


def _summed(types: tuple[DataType, ...]) -> DataType:
    return BIGINT if types[0].is_integral else DOUBLE


AGGREGATES: dict[str, Signature] = {
    "count": Signature("?x", _BIGINT),
    "sum": Signature("n", _summed),
    "avg": Signature("n", _DOUBLE),
    "min": Signature("c", _same),
    "max": Signature("c", _same),
    "stddev": Signature("n", _DOUBLE),
    "approx_count_distinct": Signature("x", _BIGINT),
    "first": Signature("x", _same),
    "last": Signature("x", _same),
    "top_k": Signature("ci", _array_of_same),
}
"""Every aggregate function. `top_k(v, 3)` gives the three largest values, largest first."""

SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "pow": "power",
    "substr": "substring",
    "ceiling": "ceil",
    "char_length": "length",
    "len": "length",
    "ucase": "upper",
    "lcase": "lower",
    "first_value": "first",
    "last_value": "last",
    "day_of_week": "dayofweek",
    "dayofmonth": "day",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "signum": "sign",
    "topk": "top_k",
}


def is_aggregate(function: str) -> bool:
    return SYNONYMS.get(function, function) in AGGREGATES


def call(function: str, *args: Expression) -> Call:
    """A well-typed call, or an error that names the function's arguments."""
    name = SYNONYMS.get(function.lower(), function.lower())
    signature = SCALARS.get(name) or AGGREGATES.get(name)
    if signature is None:
        words = [f for f in (*SCALARS, *AGGREGATES) if f[0].isalpha() and f not in ("and", "or", "not", "in", "case")]
        raise unknown("function", function, words)
    types = tuple(a.type for a in args)
    if not signature.accepts(types):
        given = ", ".join(f"{sql(a)} ({a.type})" for a in args) or "nothing"
        raise InputError(
            f"{_shown(name)} takes {_described(signature.takes)}, but got {given}; use CAST or other columns"
        )
    if name == "top_k" and not (isinstance(args[1], Literal) and isinstance(args[1].value, int) and args[1].value > 0):
        raise InputError("top_k takes a positive whole number as its second argument, such as top_k(speed, 3)")
    try:
        result = signature.gives(types)
    except InputError as error:
        given = ", ".join(f"{sql(a)} ({a.type})" for a in args)
        raise InputError(f"{_shown(name)} over {given}: {error.message}") from None
    return Call(name, args, result)


def cast(arg: Expression, type_: DataType) -> Expression:
    """A cast, or the expression itself when it has the type already."""
    if arg.type == type_:
        return arg
    scalar_to_array = (arg.type.kind is Kind.ARRAY) != (type_.kind is Kind.ARRAY) and arg.type.kind is not Kind.NULL
    if scalar_to_array:
        raise InputError(f"cannot cast {sql(arg)} ({arg.type}) to {type_}")
    return Call("cast", (arg,), type_)


def _shown(name: str) -> str:
    return {"element_at_index": "[ ]"}.get(name, name.upper() if name.isalpha() else name)


def _described(takes: str) -> str:
    if takes in ("", "?x"):
        return "at most one argument"
    required, _, optional = takes.partition("?")
    parts = [_WORDS[c] for c in required.replace("*", "")] + [
        f"optionally {_WORDS[c]}" for c in optional.replace("*", "")
    ]
    return ", ".join(parts) + (" and more of the last" if "*" in takes else "")
