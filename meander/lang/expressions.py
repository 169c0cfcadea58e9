"""Expressions: Spark SQL text, parsed by sqlglot, becomes our typed tree.

sqlglot's own function table is switched off, so that a function keeps the name its user wrote and `functions.call`
alone decides what exists. Nothing is converted silently, except what Spark converts too: a string literal beside a
timestamp or a date is read as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser

from meander.lang.limits import are_checked, check_time
from meander.lang.patterns import check_pattern
from meander.lang.temporal import EXTRACTED, MICROS, interval_of, temporal_literal
from meander.lang.text import Phrase
from meander.model.errors import InputError, unknown
from meander.model.expressions.aggregates import IGNORE_NULLS, ORDERED
from meander.model.expressions.functions import call, canonical_name, cast, is_aggregate
from meander.model.expressions.scalars import CASTS
from meander.model.expressions.tree import FALSE, TRUE, Call, Expression, Literal, literal
from meander.model.schema import BIGINT, DATE, DOUBLE, FLOAT, INT, STRING, TIMESTAMP, DataType, Kind

Resolver = Callable[[str | None, str], Expression]
"""Finds what a name stands for, given its alias and its column; raises when there is none."""


@dataclass(frozen=True, slots=True)
class ExpressionContext:
    """The position of an expression: the meaning of its names, and whether aggregates are allowed (then over which
    names)."""

    names: Resolver
    aggregated: Resolver | None = None
    no_aggregates: str = "an aggregate needs a window; add for example WINDOW TUMBLING(10 s)"


class _Parser(SparkParser):
    """Spark's expression grammar without the functions that sqlglot translates between databases."""

    FUNCTIONS = {}  # noqa: RUF012
    NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION")
    }


_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.IntDiv: "div",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
LONGEST_NUMBER = 19
"""Digits of the greatest bigint."""
_BITWISE = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
_NARY: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_TEMPORAL_TESTS = frozenset({"=", "!=", "<", "<=", ">", ">=", "<=>", "between", "in"})
_REMEDIES: dict[type[exp.Expr], str] = {
    exp.Interval: "an INTERVAL can only be added to or subtracted from a timestamp, as in ts - INTERVAL 5 MINUTES",
    exp.Subquery: "a sub-query cannot stand in an expression; write it in FROM with a JOIN",
    exp.Window: "OVER is not supported; write GROUP BY with a WINDOW clause",
    exp.Any: "any(...) is written bool_or(...)",
    exp.Escape: "LIKE ... ESCAPE takes two constants; escape with a backslash",
    exp.Array: "write array(1, 2) for an array",
    exp.Concat: "two strings stand side by side; write \\' for a quote inside a string, or || between them",
}


def parse(phrase: Phrase, clause: ExpressionContext) -> Expression:
    """The typed expression, or an error at the place in the query where it goes wrong."""
    if not phrase.tokens:
        raise phrase.error("an expression is missing here")
    try:
        return _Converter(phrase, clause).convert(_tree(phrase))
    except RecursionError:
        raise phrase.error("this expression is nested too deeply; split it over several SELECTs") from None


def _tree(phrase: Phrase) -> exp.Expr:
    parser = _Parser(error_level=ErrorLevel.IMMEDIATE, dialect=Spark())
    try:
        tree = parser.parse_into(exp.Condition, list(phrase.tokens), phrase.text.source)[0]
    except ParseError as error:
        raise _syntax_error(phrase, error) from None
    if tree is None:
        raise phrase.error("an expression is missing here")
    return tree


def _syntax_error(phrase: Phrase, error: ParseError) -> InputError:
    details = error.errors[0] if error.errors else {}
    place = (details.get("line"), details.get("col"))
    token = next((t for t in phrase.tokens if (t.line, t.col) == place), phrase.tokens[-1])
    description = str(details.get("description", ""))
    if "TYPE after CAST" in description:
        try:
            DataType.parse(token.text)
        except InputError as unknown_type:
            return phrase.error(unknown_type.message, token.start)
    if description.startswith(("Expecting ", "Expected ")):
        wanted = description.removeprefix("Expecting ").removeprefix("Expected ")
        return phrase.error(f"{wanted} is missing after {token.text!r}", token.end + 1)
    if token is phrase.tokens[-1] and "missing for" in description:
        return phrase.error(f"something is missing after {token.text!r}", token.end + 1)
    return phrase.error(f"cannot read {token.text!r} here in the expression {phrase.source!r}", token.start)


class _Converter:
    """Turns one sqlglot tree into our expression, with a place for every error."""

    def __init__(self, phrase: Phrase, clause: ExpressionContext) -> None:
        self.phrase = phrase
        self.clause = clause
        self.names = clause.names
        self.inside_aggregate = False

    def convert(self, node: exp.Expr) -> Expression:
        try:
            check_time()
            return self._convert(node)
        except InputError as error:
            raise error.at(self.phrase.text.where(self._offset(node))) from None

    def _convert(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression.unnest(), exp.Interval):
            return self._shifted(node)
        if isinstance(node, _BITWISE):
            self._check_order(node)
        if (function := _BINARY.get(type(node))) is not None:
            result = self._call(function, node.this, node.expression)
            return call("not", result) if node.args.get("negate") else result
        if (function := _NARY.get(type(node))) is not None:
            return self._call(function, *_flat(node, type(node)))
        match node:
            case exp.Paren():
                return self.convert(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return _constant(node)
            case exp.Neg():
                return self._negative(node.this)
            case exp.Not():
                return self._call("not", node.this)
            case exp.NullSafeNEQ():
                return call("not", self._call("<=>", node.this, node.expression))
            case exp.Is():
                return self._is(node)
            case exp.Between():
                return self._call("between", node.this, node.args["low"], node.args["high"])
            case exp.In() if node.expressions:
                return self._call("in", node.this, *node.expressions)
            case exp.Extract():
                return self._extract(node)
            case exp.StrPosition():
                return self._call("locate", node.args["substr"], node.this)
            case exp.BitwiseNot():
                return self._call("~", node.this)
            case exp.Escape():
                return self._escaped(node)
            case exp.Filter():
                return self._filtered(node)
            case exp.Cast():
                return _cast(self.convert(node.this), DataType.parse(node.to.sql(dialect="spark")))
            case exp.If():
                return self._call("if", node.this, node.args.get("true"), node.args.get("false"))
            case exp.Case():
                return self._case(node)
            case exp.Bracket() if len(node.expressions) == 1:
                return self._call("element_at_index", node.this, node.expressions[0])
            case exp.Anonymous():
                return self._function(node)
        if type(node) in _REMEDIES:
            raise InputError(_REMEDIES[type(node)])
        raise InputError(f"{self.phrase.source!r} uses syntax that is not supported; see docs/reference/expressions.md")

    def _check_order(self, node: exp.Binary) -> None:
        """Refuses different bitwise operators side by side: grammars disagree about which comes first."""
        beside = {type(n) for n in (node.this, node.expression) if isinstance(n, _BITWISE)}
        if beside - {type(node)}:
            raise InputError("&, | and ^ stand side by side; say with parentheses which comes first")

    def _column(self, node: exp.Column) -> Expression:
        if not isinstance(node.this, exp.Identifier) or node.args.get("db"):
            raise InputError(f"{node.sql(dialect='spark')!r} is not a column; write column or alias.column")
        return self.names(node.table or None, node.name)

    def _call(self, function: str, *nodes: exp.Expr | None) -> Expression:
        args = [literal(None) if n is None else self.convert(n) for n in nodes]
        if _has_pattern(function) and len(args) > 1:
            _check_pattern(function, args[1])
        target = _temporal_type(args) if function in _TEMPORAL_TESTS else None
        if target is not None:
            for i, (node, arg) in enumerate(zip(nodes, args, strict=True)):
                if isinstance(arg, Literal) and arg.type == STRING and node is not None:
                    with self.phrase.text.at(self._offset(node)):
                        args[i] = _cast(arg, target)
        return call(function, *args)

    def _function(self, node: exp.Anonymous) -> Expression:
        name = str(node.this).lower()
        args: list[exp.Expr] = node.expressions
        if args and isinstance(args[0], exp.Distinct):
            name, args = _distinct(name, args[0].expressions)
        if name in CASTS and len(args) == 1:
            return _cast(self.convert(args[0]), DataType.parse(name))
        if not is_aggregate(name):
            return self._call(name, *args)
        if name == "count" and len(args) == 1 and isinstance(args[0], exp.Star | exp.Literal):
            args = []
        with self._aggregate(name):
            return self._call(name, *args)

    @contextmanager
    def _aggregate(self, name: str) -> Iterator[None]:
        if self.inside_aggregate:
            raise InputError(f"{name} stands inside another aggregate; compute it in a sub-query first")
        if self.clause.aggregated is None:
            raise InputError(f"{name} cannot be used here: {self.clause.no_aggregates}")
        self.names, self.inside_aggregate = self.clause.aggregated, True
        try:
            yield
        finally:
            self.names, self.inside_aggregate = self.clause.names, False

    def _filtered(self, node: exp.Filter) -> Expression:
        """An aggregate over the tuples for which a condition is true: the others are nulls to it."""
        inner, condition = node.this, node.expression.this
        name = canonical_name(str(inner.this)) if isinstance(inner, exp.Anonymous) else ""
        if name not in IGNORE_NULLS:
            raise InputError("FILTER follows an aggregate that leaves nulls out, such as count, sum or max")
        args = [a for a in inner.expressions if not isinstance(a, exp.Star)] or [exp.Literal.number(1)]
        distinct = isinstance(args[0], exp.Distinct)
        if distinct:
            name, args = _distinct(name, args[0].expressions)
        with self._aggregate(name):
            values = [self.convert(a) for a in args]
            counted = 1 if name in ORDERED and len(values) > 1 else 0
            values[counted] = call("case", self.convert(condition), values[counted], literal(None))
            return call(name, *values)

    def _shifted(self, node: exp.Add | exp.Sub) -> Expression:
        """A timestamp, an interval later or earlier."""
        interval = node.expression.unnest()
        moment = self.convert(node.this)
        amount, unit = interval_of(interval)
        if isinstance(node, exp.Sub):
            amount = -amount
        if moment.type.kind is Kind.DATE and unit == "day":
            return call("date_add", moment, literal(amount))
        if moment.type.kind is not Kind.TIMESTAMP:
            raise InputError(f"an INTERVAL can be added to a timestamp, not to {moment.type}")
        micros = Literal(amount * MICROS[unit], BIGINT)
        return call("timestamp_micros", call("+", call("unix_micros", moment), micros))

    def _extract(self, node: exp.Extract) -> Expression:
        unit = node.name.lower()
        if unit not in EXTRACTED:
            raise unknown("unit of EXTRACT", unit, list(EXTRACTED))
        return self._call(EXTRACTED[unit], node.expression)

    def _escaped(self, node: exp.Escape) -> Expression:
        """LIKE with an escape sign of its own, as LIKE with a backslash."""
        like, sign = node.this, node.expression
        constants = isinstance(like, exp.Like | exp.ILike) and like.expression.is_string and sign.is_string
        if not constants or len(sign.name) != 1:
            raise InputError(_REMEDIES[exp.Escape])
        pattern = like.expression.name.replace("\\", "\\\\") if sign.name != "\\" else like.expression.name
        like.expression.set("this", re.sub(re.escape(sign.name) + "(.)", r"\\\1", pattern))
        return self.convert(like)

    def _negative(self, operand: exp.Expr) -> Expression:
        if operand.name == str(2**63) and (_plain(operand) or _as_bigint(operand)):
            return literal(-(2**63))
        value = self.convert(operand)
        match value:
            case Literal(int() as number, type_) if not isinstance(number, bool):
                return literal(-number) if _plain(operand) else Literal(-number, type_)
            case Literal(float() as number, type_):
                return Literal(-number, type_)
        return call("negative", value)

    def _is(self, node: exp.Is) -> Expression:
        match node.expression:
            case exp.Null():
                return self._call("is_null", node.this)
            case exp.Boolean() as truth:
                return call("<=>", self.convert(node.this), TRUE if truth.this else FALSE)
        raise InputError("IS must be followed by NULL, NOT NULL, TRUE or FALSE")

    def _case(self, node: exp.Case) -> Expression:
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            when = self._call("=", node.this, branch.this) if node.this else self.convert(branch.this)
            args += [when, self.convert(branch.args["true"])]
        default = node.args.get("default")
        return call("case", *args, self.convert(default) if default is not None else literal(None))

    def _offset(self, node: exp.Expr) -> int:
        starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
        return min(starts, default=self.phrase.start)


def _plain(node: exp.Expr) -> bool:
    """A number without a type suffix."""
    return isinstance(node.unnest(), exp.Literal)


def _as_bigint(node: exp.Expr) -> bool:
    """A number with the suffix of a bigint."""
    inner = node.unnest()
    return isinstance(inner, exp.Cast) and _plain(inner.this) and inner.to.is_type("bigint")


def _distinct(name: str, args: list[exp.Expr]) -> tuple[str, list[exp.Expr]]:
    """The aggregate that an aggregate over DISTINCT values stands for."""
    name = canonical_name(name)
    if name in ("count", "sum", "avg") and len(args) == 1:
        return f"{name}_distinct", args
    if name in ("min", "max", "collect_set", "approx_count_distinct", "bool_and", "bool_or"):
        return name, args  # each value counts once anyhow
    if name == "count":
        raise InputError("count(DISTINCT ...) takes one value; join several with concat_ws or hash")
    known = "only count, sum, avg, min, max and collect_set take DISTINCT"
    raise InputError(f"{name}(DISTINCT ...) is not supported; {known}")


def _flat(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain such as `a AND (b AND c)`."""
    result: list[exp.Expr] = []
    for operand in (node.this, node.expression):
        inner = operand.unnest()
        result += _flat(inner, kind) if type(inner) is kind else [operand]
    return result


def _constant(node: exp.Expr) -> Literal:
    match node:
        case exp.Null():
            return literal(None)
        case exp.Boolean():
            return literal(bool(node.this))
        case exp.Literal() if node.is_string:
            return literal(str(node.this))
    text = str(node.this)
    if text.isdigit():
        if len(text.lstrip("0")) > LONGEST_NUMBER or int(text) >= 2**63:
            shown = text if len(text) <= 2 * LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}..."
            raise InputError(f"the number {shown} does not fit into a bigint; write it as a double, such as {shown}.0")
        return literal(int(text))
    value = float(text)
    if value == float("inf"):
        raise InputError(f"the number {text} does not fit into a double")
    return literal(value)


def _cast(arg: Expression, type_: DataType) -> Expression:
    """A cast; of a constant, the constant in that type when that is exact."""
    match arg:
        case Literal(None):
            return Literal(None, type_)
        case Literal(int() as number, own) if own.is_integral:
            if type_ == BIGINT or (type_ == INT and -(2**31) <= number < 2**31):
                return Literal(number, type_)
            if type_ == DOUBLE:
                return Literal(float(number), DOUBLE)
        case Literal(float() as number) if type_ in (DOUBLE, FLOAT):
            return Literal(number, type_)
        case Literal(str() as text, own) if own == STRING and type_ in (TIMESTAMP, DATE):
            return temporal_literal(text, type_)
    return cast(arg, type_)


def _temporal_type(args: Sequence[Expression]) -> DataType | None:
    """The type as which string literals among these are read: a timestamp or a date, when one stands beside them."""
    kinds = {a.type.kind for a in args}
    return TIMESTAMP if Kind.TIMESTAMP in kinds else DATE if Kind.DATE in kinds else None


def contains_aggregate(expression: Expression) -> bool:
    """Whether an aggregate is anywhere in the expression."""
    if isinstance(expression, Call):
        return is_aggregate(expression.function) or any(map(contains_aggregate, expression.args))
    return False


def _has_pattern(function: str) -> bool:
    """Whether a function's second argument is a pattern."""
    name = canonical_name(function)
    return name in ("like", "ilike", "rlike", "split") or name.startswith("regexp")


def _check_pattern(function: str, pattern: Expression) -> None:
    """Raises for a pattern that may take for ever, as one may that a row brings along."""
    if not are_checked():
        return
    if not isinstance(pattern, Literal):
        raise InputError(f"the pattern of {function} has to be written out as a text, so that it can be checked")
    if isinstance(pattern.value, str) and canonical_name(function) not in ("like", "ilike"):
        check_pattern(pattern.value)
