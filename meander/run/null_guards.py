"""Guards: how functions that Spark fails on for some arguments are written, so that these arguments give null.

Spark has a guarded form for some (`try_add`). Others get arguments in their domain, or the call is attempted inside
of a function of Spark that turns every failure of its argument into null. A call whose constants show that it cannot
fail has no guard, and costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from meander.model.expressions.functions import SCALARS
from meander.model.expressions.tree import Call, Expression, Literal, sql
from meander.model.schema import STRING, DataType, Kind

FEW_WILDCARDS = 2
"""So many `%` of a LIKE are left to Spark, which has short cuts for them."""
MOST_REPEATED = 1_000_000
"""Characters or elements that a function makes of a number at most."""

_HIGH, _LOW = "9.223372036854775808E18D", "-9.223372036854777856E18D"
"""The doubles next to those that fit into a bigint."""

_SMALLEST = {Kind.INT: "CAST(-2147483648L AS INT)", Kind.BIGINT: "(-9223372036854775807L - 1L)"}

_PLAIN_REGEX = re.compile(
    r"""( [^\\\[\](){}*+?|^$&]          # a sign for itself, or any
        | \\[dDwWsSbB.\\\[\](){}*+?|^$/-]
        | \[\^?[^\\\[\]&^]+\]
        | \((?!\?) | \) | \| | \^ | \$
        | [*+?](?![*+?{]) | \{\d{1,3}(,\d{0,3})?\}(?![*+?{])
        )*""",
    re.VERBOSE,
)
"""Patterns that Python and Java read alike; all others are attempted."""


def guarded(call: Call, texts: list[str]) -> str | None:
    """The call's text, if it needs a guard; `texts` are its arguments."""
    guard = _GUARDS.get(call.function)
    if guard is not None:
        return guard(call, texts)
    if (without_retries := _without_retries(call, texts)) is not None:
        return without_retries
    signature = SCALARS.get(call.function)
    if signature is None or not signature.fails or _cannot_fail(call):
        return None
    infix = call.function in ("like", "ilike", "rlike")
    return attempt(f" {call.function} ".join(texts) if infix else f"{call.function}({', '.join(texts)})", call.type)


def narrowed(call: Call, texts: list[str]) -> list[str]:
    """The arguments in the types that Spark wants: what does not fit is null."""
    signature = SCALARS.get(call.function)
    if signature is None or not any(a.type.kind in _NARROWED for a in call.args):
        return texts
    letters = signature.letters(call.args)
    return [_narrow(*each) for each in zip(call.args, letters, texts, strict=True)]


_NARROWED = (Kind.BIGINT, Kind.DATE)


def _narrow(arg: Expression, letter: str, text: str) -> str:
    match letter, arg.type.kind:
        case "j", Kind.BIGINT:
            return f"try_cast({text} AS INT)"
        case "u", Kind.DATE:
            return f"try_cast({text} AS TIMESTAMP)"
    return text


def attempt(text: str, type_: DataType) -> str:
    """The value of a call, or null if the call fails."""
    match type_.kind:
        case Kind.TIMESTAMP:
            return f"try_add({text}, INTERVAL '0' SECOND)"
        case Kind.DATE:
            return f"try_add({text}, INTERVAL '0' MONTH)"
        case Kind.BINARY:
            return f"try_to_binary(hex({text}), 'hex')"
        case Kind.STRING:
            return f"CAST(try_to_binary({text}, 'utf-8') AS STRING)"
        case Kind.ARRAY:
            return f"from_json(CAST(try_to_binary(to_json({text}), 'utf-8') AS STRING), 'ARRAY<STRING>')"
        case kind:
            return f"CAST(CAST(try_to_binary(CAST({text} AS STRING), 'utf-8') AS STRING) AS {kind.value.upper()})"


def _cannot_fail(call: Call) -> bool:
    """Whether the constants among the arguments rule a failure out."""
    match call.function, call.args:
        case "like" | "ilike", (_, Literal(str() as pattern)):
            return not re.search(r"\\(?![\\%_])", pattern.replace("\\\\", ""))
        case "rlike" | "regexp_count" | "regexp_instr" | "regexp_substr", (_, Literal(str() as pattern)):
            return groups_of(pattern) is not None
        case "split", (_, Literal(str() as pattern), *_):
            return groups_of(pattern) is not None
        case "regexp_replace", (_, Literal(str() as pattern), Literal(str() as replacement)):
            return groups_of(pattern) is not None and not re.search(r"[$\\]", replacement)
        case "regexp_extract" | "regexp_extract_all", (_, Literal(str() as pattern), *more):
            group = more[0].value if more and isinstance(more[0], Literal) else None if more else 1
            groups = groups_of(pattern)
            return groups is not None and isinstance(group, int) and 0 <= group <= groups
        case "split_part", (_, _, Literal(int() as part)):
            return part != 0
        case "to_date" | "unix_timestamp", (only,):
            return only.type.kind is not Kind.STRING
    return False


def _without_retries(call: Call, texts: list[str]) -> str | None:
    """LIKE with several `%`, as an expression that never goes back: each part is taken where it is first found.

    Spark tries all places for all parts, which for a row that was made for it takes for ever; the first place is as
    good as any other.
    """
    match call.function, call.args:
        case "like" | "ilike", (_, Literal(str() as pattern)) if pattern.count("%") > FEW_WILDCARDS:
            pass
        case _:
            return None
    if re.search(r"\\(?![\\%_])", pattern.replace("\\\\", "")):
        return None  # which Spark refuses
    folds = call.function == "ilike"
    if folds and not pattern.isascii():
        return None
    parts = _wildcard_parts(pattern.lower() if folds else pattern)
    first, *middle, last = ("".join(part) for part in parts)
    expression = f"(?s)\\A{first}" + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}\\z"
    return f"({f'lower({texts[0]})' if folds else texts[0]} RLIKE {sql(Literal(expression, STRING))})"


def _wildcard_parts(pattern: str) -> list[list[str]]:
    """The parts between the `%` of a pattern, as regular expressions."""
    parts: list[list[str]] = [[]]
    for sign in re.findall(r"\\.|.", pattern, re.DOTALL):
        if sign == "%":
            parts.append([])
        else:
            char = sign[-1]
            plain = char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}"
            parts[-1].append("." if sign == "_" else plain)
    return parts


def groups_of(pattern: str) -> int | None:
    """The number of groups of a regular expression that is certain to be one; otherwise None."""
    if not _PLAIN_REGEX.fullmatch(pattern):
        return None
    try:
        return re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError):
        return None


def _whole(function: str) -> Callable[[Call, list[str]], str | None]:
    """Additions and the like: whole numbers may overflow, others not."""

    def guard(call: Call, texts: list[str]) -> str | None:
        return f"{function}({texts[0]}, {texts[1]})" if call.type.is_integral else None

    return guard


def _divided(call: Call, texts: list[str]) -> str:
    return f"({texts[0]} {call.function} nullif({texts[1]}, 0))"


def _negative(call: Call, texts: list[str]) -> str | None:
    return f"try_subtract(0, {texts[0]})" if call.type.is_integral else None


def _absolute(call: Call, texts: list[str]) -> str | None:
    """The smallest whole number has no counterpart."""
    smallest = _SMALLEST.get(call.type.kind)
    return f"abs(nullif({texts[0]}, {smallest}))" if smallest else None


def _to_whole(call: Call, texts: list[str]) -> str | None:
    """Numbers beyond a bigint are replaced by the two doubles next to its range, which are null; NaN is 0 to Spark."""
    if call.args[0].type.is_integral:
        return None
    bounded = f"greatest(least(nanvl({texts[0]}, 0D), {_HIGH}), {_LOW})"
    return f"{call.function}(nullif(nullif({bounded}, {_HIGH}), {_LOW}))"


def _rounded(call: Call, texts: list[str]) -> str | None:
    if len(texts) < 2 or not call.type.is_integral:
        return None
    exact = f"{call.function}(CAST({texts[0]} AS DECIMAL(20, 0)), {texts[1]})"
    return f"try_cast({exact} AS {call.type.kind.value.upper()})"


def _bounded(at: int) -> Callable[[Call, list[str]], str | None]:
    """Functions that make as much as a number says: beyond the bound the number is null."""

    def guard(call: Call, texts: list[str]) -> str | None:
        bounded = [_at_most(t, call.args[i], MOST_REPEATED) if i == at else t for i, t in enumerate(texts)]
        return f"{call.function}({', '.join(bounded)})"

    return guard


def _at_most(text: str, arg: Expression, most: int) -> str:
    if isinstance(arg, Literal) and isinstance(arg.value, int) and arg.value <= most:
        return text
    return f"nullif(least({text}, {most + 1}), {most + 1})"


def _inserted(call: Call, texts: list[str]) -> str:
    """The position may be no zero, and far away neither: the gap is filled with nulls."""
    far = MOST_REPEATED + 1
    near = f"nullif(nullif(greatest(least({texts[1]}, {far}), -{far}), {far}), -{far})"
    return f"array_insert({texts[0]}, nullif({near}, 0), {texts[2]})"


def _sliced(call: Call, texts: list[str]) -> str:
    return f"slice({texts[0]}, nullif({texts[1]}, 0), nullif(greatest({texts[2]}, -1), -1))"


def _substring(call: Call, texts: list[str]) -> str | None:
    """Spark writes the call twice, so that it can only be attempted below that."""
    if _cannot_fail(call):
        return None
    return f"nullif({attempt(f'regexp_extract({texts[0]}, {texts[1]}, 0)', call.type)}, '')"


_GUARDS: Mapping[str, Callable[[Call, list[str]], str | None]] = {
    "+": _whole("try_add"),
    "-": _whole("try_subtract"),
    "*": _whole("try_multiply"),
    "/": _divided,
    "%": _divided,
    "div": lambda call, texts: attempt(f"({texts[0]} div nullif({texts[1]}, 0))", call.type),
    "pmod": lambda call, texts: f"pmod({texts[0]}, nullif({texts[1]}, 0))",
    "negative": _negative,
    "abs": _absolute,
    "ceil": _to_whole,
    "floor": _to_whole,
    "round": _rounded,
    "bround": _rounded,
    "repeat": _bounded(1),
    "lpad": _bounded(1),
    "rpad": _bounded(1),
    "array_repeat": _bounded(1),
    "array_insert": _inserted,
    "slice": _sliced,
    "regexp_substr": _substring,
    "element_at_index": lambda call, texts: f"get({texts[0]}, {texts[1]})",
    "element_at": lambda call, texts: f"try_element_at({texts[0]}, nullif({texts[1]}, 0))",
}
"""Functions with a guard of their own; None where it is not needed."""
