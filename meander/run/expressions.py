"""Plan expressions as Spark SQL text that never fails on a tuple: values that cannot be computed are null.

A step runs thousands of tuples of many fragments at once, and it is run again after a crash; one tuple that divides by
zero must not stop them all for ever. So whatever cannot be computed is null, whatever Spark's ANSI setting is. How a
function is guarded is in `null_guards`.
"""

from __future__ import annotations

from meander.model.expressions.tree import INFIX, Call, Column, Expression, Literal, sql
from meander.model.schema import DataType, Kind
from meander.run.null_guards import guarded, narrowed


def spark_sql(expression: Expression) -> str:
    """The expression as text for `selectExpr`, fully parenthesised; columns by the names they have in it."""
    match expression:
        case Column() | Literal():
            return sql(expression)
        case Call(args=args):
            texts = narrowed(expression, [spark_sql(a) for a in args])
            return guarded(expression, texts) or _plain(expression, texts)


def typed(expression: Expression, type_: DataType | None = None) -> str:
    """The expression as a value of exactly its declared type, which a frame's schema promises."""
    return f"CAST({spark_sql(expression)} AS {type_text(type_ or expression.type)})"


def type_text(type_: DataType) -> str:
    """Spark's name of a type; a column of nothing but nulls is stored as text."""
    return f"ARRAY<{type_text(type_.element)}>" if type_.element else _scalar_text(type_)


def _scalar_text(type_: DataType) -> str:
    return "STRING" if type_.kind is Kind.NULL else type_.kind.value.upper()


def _plain(call: Call, texts: list[str]) -> str:
    """A call that cannot fail."""
    match call.function:
        case "not":
            return f"(NOT {texts[0]})"
        case "negative" | "~" as sign:
            return f"({'-' if sign == 'negative' else sign} {texts[0]})"
        case "is_null":
            return f"({texts[0]} IS NULL)"
        case "cast":
            return f"try_cast({texts[0]} AS {type_text(call.type)})"
        case "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        case "between":
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
        case "case":
            pairs = " ".join(f"WHEN {w} THEN {t}" for w, t in zip(texts[0:-1:2], texts[1::2], strict=False))
            return f"(CASE {pairs} ELSE {texts[-1]} END)"
        case "count" if not texts:
            return "count(*)"
        case function if function in INFIX:
            return f"({f' {function.upper()} '.join(texts)})"
        case function:
            return f"{function}({', '.join(texts)})"
