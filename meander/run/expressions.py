"""Plan expressions as Spark SQL text that never fails on a tuple: values that cannot be computed are null.

A step runs thousands of tuples of many fragments at once, and it is run again after a crash; one tuple that divides by
zero must not stop them all for ever. So division by zero, overflow of whole numbers, a text that is no number and an
index outside of an array give null, whatever Spark's ANSI setting is.
"""

from __future__ import annotations

from collections.abc import Mapping

from meander.model.expressions.tree import Call, Column, Expression, Literal, sql
from meander.model.schema import DataType, Kind

_INFIX = frozenset({"or", "and", "=", "!=", "<", "<=", ">", ">=", "<=>", "like", "rlike", "+", "-", "*"})
_GUARDED: Mapping[str, str] = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


def spark_sql(expression: Expression) -> str:
    """The expression as text for `selectExpr`, fully parenthesised; columns by the names they have in it."""
    match expression:
        case Column() | Literal():
            return sql(expression)
        case Call("not" | "negative" | "is_null" | "cast" | "case" | "in" | "between"):
            return _special(expression)
        case Call(function, args, type_):
            return _called(function, [spark_sql(a) for a in args], args, type_)


def typed(expression: Expression, type_: DataType | None = None) -> str:
    """The expression as a value of exactly its declared type, which a frame's schema promises."""
    return f"CAST({spark_sql(expression)} AS {type_text(type_ or expression.type)})"


def type_text(type_: DataType) -> str:
    """Spark's name of a type; a column of nothing but nulls is stored as text."""
    return f"ARRAY<{type_text(type_.element)}>" if type_.element else _scalar_text(type_)


def _scalar_text(type_: DataType) -> str:
    return "STRING" if type_.kind is Kind.NULL else type_.kind.value.upper()


def _special(call: Call) -> str:
    texts = [spark_sql(a) for a in call.args]
    match call.function:
        case "not":
            return f"(NOT {texts[0]})"
        case "negative":
            return f"try_subtract(0, {texts[0]})" if call.type.is_integral else f"(- {texts[0]})"
        case "is_null":
            return f"({texts[0]} IS NULL)"
        case "cast":
            return f"try_cast({texts[0]} AS {type_text(call.type)})"
        case "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        case "between":
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
    pairs = " ".join(f"WHEN {w} THEN {t}" for w, t in zip(texts[0:-1:2], texts[1::2], strict=False))
    return f"(CASE {pairs} ELSE {texts[-1]} END)"


def _called(function: str, texts: list[str], args: tuple[Expression, ...], type_: DataType) -> str:
    match function:
        case "+" | "-" | "*" if type_.is_integral:
            return f"{_GUARDED[function]}({texts[0]}, {texts[1]})"
        case "/" | "%":
            return f"({texts[0]} {function} nullif({texts[1]}, 0))"
        case "pmod":
            return f"pmod({texts[0]}, nullif({texts[1]}, 0))"
        case "abs" if args[0].type.is_integral:
            return f"greatest({texts[0]}, try_subtract(0, {texts[0]}))"
        case "element_at_index":
            return f"get({texts[0]}, {texts[1]})"
        case "element_at":
            return f"try_element_at({texts[0]}, nullif({texts[1]}, 0))"
        case "count" if not texts:
            return "count(*)"
    if function in _INFIX:
        return f"({f' {function.upper()} '.join(texts)})"
    return f"{function}({', '.join(texts)})"
