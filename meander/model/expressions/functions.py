"""The functions that expressions may use, with their argument and result types.

`call` is the only way to build a call: it settles the type or raises the error. Adding a function is one line in
`scalars` or `aggregates`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.expressions import aggregates, scalars
from meander.model.expressions.tree import Call, Expression, Literal, sql
from meander.model.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    common_type,
)

Result = Callable[[tuple[DataType, ...]], DataType]


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a function (letters as in `scalars`), its result type, and whether Spark fails on some."""

    takes: tuple[str, ...]
    gives: Result
    fails: bool = False

    def accepts(self, args: Sequence[Expression]) -> bool:
        return any(_accepted(args, takes) for takes in self.takes)

    def letters(self, args: Sequence[Expression]) -> str:
        """The letter of each argument of an accepted call."""
        takes = next(takes for takes in self.takes if _accepted(args, takes))
        letters = takes.replace("?", "").replace("*", "")
        return "".join(letters[min(i, len(letters) - 1)] for i in range(len(args)))


def _accepted(args: Sequence[Expression], takes: str) -> bool:
    letters = takes.replace("?", "").replace("*", "")
    required = len(takes.split("?")[0].replace("*", ""))
    if len(args) < required or (len(args) > len(letters) and "*" not in takes):
        return False
    return all(_fits(a, letters[min(i, len(letters) - 1)]) for i, a in enumerate(args))


def _fits(arg: Expression, letter: str) -> bool:
    if letter in "kpBS" and not isinstance(arg, Literal):
        return False
    if letter == "S" and isinstance(arg, Literal) and isinstance(arg.value, str) and len(arg.value) != 1:
        return False
    return arg.type.kind is Kind.NULL or _LETTERS[letter][1](arg.type)


_LETTERS: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    "n": ("a number", lambda t: t.is_numeric),
    "i": ("a whole number", lambda t: t.is_integral),
    "j": ("a whole number", lambda t: t.is_integral),
    "k": ("a constant whole number", lambda t: t.is_integral),
    "p": ("a constant number", lambda t: t.is_numeric),
    "B": ("TRUE or FALSE", lambda t: t.kind is Kind.BOOLEAN),
    "S": ("a constant character", lambda t: t.kind is Kind.STRING),
    "b": ("a boolean", lambda t: t.kind is Kind.BOOLEAN),
    "s": ("a string", lambda t: t.kind is Kind.STRING),
    "y": ("a string or binary", lambda t: t.kind in (Kind.STRING, Kind.BINARY)),
    "t": ("a timestamp", lambda t: t.kind in (Kind.TIMESTAMP, Kind.DATE)),
    "u": ("a timestamp", lambda t: t.kind in (Kind.TIMESTAMP, Kind.DATE)),
    "d": ("a date", lambda t: t.kind is Kind.DATE),
    "a": ("an array", lambda t: t.kind is Kind.ARRAY),
    "A": ("an array of arrays", lambda t: t.element is not None and t.element.kind is Kind.ARRAY),
    "c": ("a scalar", lambda t: t.kind is not Kind.ARRAY),
    "x": ("anything", lambda t: True),
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
    return types[0].element or NULL


def _with_element(at: int) -> Result:
    """An array that a further element, the argument at this position, joins."""
    return lambda types: DataType(Kind.ARRAY, _common((_element(types), types[at])))


def _of_member(result: Result) -> Result:
    """A function of an array and a value that must have the type of its elements."""

    def gives(types: tuple[DataType, ...]) -> DataType:
        _common((_element(types), types[1]))
        return result(types)

    return gives


_RESULTS: dict[str, Result] = {
    **{t.kind.value: _always(t) for t in (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, TIMESTAMP, DATE)},
    "strings": _always(DataType(Kind.ARRAY, STRING)),
    "same": _same,
    "common": _common,
    "common_int": lambda types: _common((types[0], INT)),
    "comparison": _boolean_of_comparable,
    "conditional": _conditional,
    "case": _case,
    "rounded": _rounded,
    "floating": lambda types: FLOAT if {t.kind for t in types} == {Kind.FLOAT} else DOUBLE,
    "element": _element,
    "array": _array_of_common,
    "array_of_first": _array_of_same,
    "by": lambda types: _array_of_same(types) if len(types) == 3 else types[0],
    "member_boolean": _of_member(_always(BOOLEAN)),
    "member_bigint": _of_member(_always(BIGINT)),
    "member_same": _of_member(_same),
    "appended": _with_element(1),
    "inserted": _with_element(2),
    "summed": lambda types: BIGINT if types[0].is_integral else DOUBLE,
}


def _signature(takes: str, gives: str, *marks: str) -> Signature:
    return Signature(tuple(takes.replace("-", "").split("/")), _RESULTS[gives], fails="!" in marks)


def _table(text: str) -> dict[str, Signature]:
    lines = (line.split() for line in text.splitlines() if line)
    return {name: _signature(*rest) for name, *rest in lines}


SCALARS = _table(scalars.LINES)
"""Every scalar function, by its Spark SQL name; operators by their symbol."""

AGGREGATES = _table(aggregates.LINES)
"""Every aggregate function."""

SYNONYMS = {**scalars.SYNONYMS, **aggregates.SYNONYMS}
"""Other names of functions, and what they stand for."""


def canonical_name(function: str) -> str:
    """The name of a function that may have been called by another one."""
    return SYNONYMS.get(function.lower(), function.lower())


def is_aggregate(function: str) -> bool:
    return canonical_name(function) in AGGREGATES


def call(function: str, *args: Expression) -> Call:
    """A well-typed call, or an error that names the function's arguments."""
    name = canonical_name(function)
    signature = SCALARS.get(name) or AGGREGATES.get(name)
    if signature is None:
        words = [f for f in (*SCALARS, *AGGREGATES) if f[0].isalpha() and f not in ("and", "or", "not", "in", "case")]
        raise unknown("function", function, words)
    types = tuple(a.type for a in args)
    if not signature.accepts(args):
        given = ", ".join(f"{sql(a)} ({a.type})" for a in args) or "nothing"
        raise InputError(
            f"{_shown(name)} takes {_described(signature.takes)}, but got {given}; use CAST or other columns"
        )
    if len(args) == aggregates.BOUNDED.get(name):
        _check_bound(name, args[-1])
    if name == "percentile":
        _check_share(args[1])
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


def _check_bound(name: str, arg: Expression) -> None:
    """Refuses a number of kept values that is none: it is a constant already."""
    value = arg.value if isinstance(arg, Literal) else None
    if not isinstance(value, int) or not 0 < value <= aggregates.MOST_VALUES:
        bounds = f"a whole number from 1 to {aggregates.MOST_VALUES:,}"
        raise InputError(f"{name} takes {bounds} as its last argument, such as 3")


def _check_share(arg: Expression) -> None:
    value = arg.value if isinstance(arg, Literal) else None
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError("percentile takes a share from 0 to 1 as its second argument, such as percentile(speed, 0.95)")


def _described(alternatives: tuple[str, ...]) -> str:
    return ", or ".join(map(_described_one, alternatives))


def _described_one(takes: str) -> str:
    if takes in ("", "?x"):
        return "at most one argument" if takes else "no arguments"
    required, _, optional = takes.partition("?")
    parts = [_LETTERS[c][0] for c in required.replace("*", "")] + [
        f"optionally {_LETTERS[c][0]}" for c in optional.replace("*", "")
    ]
    return ", ".join(parts) + (" and more of the last" if "*" in takes else "")
