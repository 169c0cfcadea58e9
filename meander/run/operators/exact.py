"""Sums of doubles that do not depend on the order of additions.

A double is added as whole numbers: its integer part in two halves, and two or three digits of 32 bits behind the point.
Whole numbers add up the same in every order, and 2^31 of them fit. A remainder smaller than the last digit (2^-64) is
cut off each value alone. Values from 2^63 on, infinities and NaN are added apart, as doubles.

A standard deviation needs more than doubles hold, because the sum of squares and the square of the sum cancel out.
Squares are split into exact products (Dekker), and the difference is taken with twice the digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TWO_32, _TWO_63 = 2**32, 2**63
_SPLIT = f"{2**27 + 1}D"
_SCALE = f"{2**16}D"
_LARGEST_SQUARED = f"{2**47}D"


@dataclass
class Lets:
    """Named intermediate values of a row, in layers: a layer reads the ones before it."""

    names: dict[str, str] = field(default_factory=dict)
    depth: dict[str, int] = field(default_factory=dict)

    def let(self, text: str) -> str:
        """The name of a value."""
        if text not in self.names:
            name = self.names[text] = f"x{len(self.names)}"
            used = [self.depth[word] for word in re.findall(r"\bx\d+\b", text)]
            self.depth[name] = 1 + max(used, default=-1)
        return self.names[text]

    @property
    def layers(self) -> list[list[str]]:
        """Select items, layer by layer."""
        result: list[list[str]] = [[] for _ in range(1 + max(self.depth.values(), default=-1))]
        for text, name in self.names.items():
            result[self.depth[name]].append(f"{text} AS {name}")
        return result


def halves(long: str) -> tuple[str, str]:
    """A whole number as upper and lower half, whose sums cannot overflow; both have the sign of the number."""
    return f"({long} div {_TWO_32}L)", f"({long} % {_TWO_32}L)"


def whole_sum(columns: list[str]) -> str:
    """The sum of whole numbers from the sums of their halves, as a decimal."""
    upper, lower = columns[:2]
    return f"(CAST({upper} AS DECIMAL(20, 0)) * {_TWO_32}BD + CAST({lower} AS DECIMAL(20, 0)))"


def digits(lets: Lets, value: str, *, squared: bool = False) -> tuple[str, ...]:
    """A double, or its square divided by 2^32, as summands of whole numbers, and separately values that are too
    large for them."""
    x = lets.let(value)
    limit = _LARGEST_SQUARED if squared else f"{_TWO_63}D"
    safe = lets.let(f"CASE WHEN abs({x}) < {limit} THEN {x} WHEN {x} IS NOT NULL THEN 0D END")
    rest = f"CASE WHEN NOT abs({x}) < {limit} THEN {x}{f' * {x}' if squared else ''} END"
    if not squared:
        return (*_digits_of(lets, safe, 2), rest)
    y = lets.let(f"{safe} / {_SCALE}")
    high = lets.let(f"{y} * {_SPLIT} - ({y} * {_SPLIT} - {y})")
    low = lets.let(f"{y} - {high}")
    products = (f"{high} * {high}", f"2D * {high} * {low}", f"{low} * {low}")
    columns = zip(*(_digits_of(lets, lets.let(p), 3) for p in products), strict=True)
    return (*(f"({' + '.join(column)})" for column in columns), rest)


def _digits_of(lets: Lets, value: str, count: int) -> tuple[str, ...]:
    integer = lets.let(f"CAST({value} AS BIGINT)")
    found = list(halves(integer))
    rest = value
    for _ in range(count):
        rest = lets.let(f"({rest} - {integer}) * {_TWO_32}D")
        integer = lets.let(f"CAST({rest} AS BIGINT)")
        found.append(integer)
    return tuple(found)


def double_sum(columns: list[str]) -> str:
    """The sum of doubles from the sums of their digits, as the nearest double or one beside it."""
    fraction = f"(CAST({columns[2]} AS DOUBLE) + CAST({columns[3]} AS DOUBLE) / {_TWO_32}D) / {_TWO_32}D"
    return f"(CAST({whole_sum(columns)} AS DOUBLE) + {fraction} + coalesce({columns[4]}, 0D))"


def deviation(count: str, total: list[str], squares: list[str], *, of_sample: bool = True) -> str:
    """The standard deviation: the root of the variance."""
    return f"sqrt({variance(count, total, squares, of_sample=of_sample)})"


def variance(count: str, total: list[str], squares: list[str], *, of_sample: bool = True) -> str:
    """(n * sum of squares - square of the sum) / (n * (n - 1)), null for fewer than two values; of all values instead
    of a sample, divided by n * n."""
    n = f"CAST({count} AS DOUBLE)"
    parts = f"named_struct('s', {_folded(total[:-1], 0)}, 'q', {_folded(squares[:-1], 32)}, 'n', {n})"
    plain = f"({n} * (t.q.h + coalesce({squares[-1]}, 0D)) - {double_sum(total)} * {double_sum(total)})"
    large = f"{total[-1]} IS NOT NULL OR {squares[-1]} IS NOT NULL"
    spread = _let(parts, "t", f"CASE WHEN {large} THEN {plain} ELSE {_spread('t')} END")
    if of_sample:
        return f"CASE WHEN {count} > 1 THEN greatest(0D, {spread}) / ({n} * ({n} - 1)) END"
    alone = f"abs({double_sum(total)} * 0D)"
    return f"CASE WHEN {count} > 1 THEN greatest(0D, {spread}) / ({n} * {n}) WHEN {count} = 1 THEN {alone} END"


def _folded(columns: list[str], scale: int) -> str:
    """The sum of digits as a double `h` and its error, `l`: each digit in two doubles, added with their errors."""
    terms = []
    for place, column in enumerate(columns):
        unit = f"{2.0 ** (scale + 32 - 32 * place)!r}D"
        head = f"CAST({column} AS DOUBLE)"
        terms += [f"{head} * {unit}", f"CAST({column} - CAST({head} AS BIGINT) AS DOUBLE) * {unit}"]
    error = "CASE WHEN abs(a.s) >= abs(b) THEN a.s - (a.s + b) + b ELSE b - (a.s + b) + a.s END"
    fold = f"(a, b) -> named_struct('s', a.s + b, 'e', a.e + {error})"
    done = "a -> named_struct('h', a.s + a.e, 'l', a.e - ((a.s + a.e) - a.s))"
    return f"aggregate(array({', '.join(terms)}), named_struct('s', 0D, 'e', 0D), {fold}, {done})"


def _spread(t: str) -> str:
    """n * q - s * s with twice the digits of a double: leading products apart from all that is small."""
    heads = {name: f"{t}.{value} * {_SPLIT} - ({t}.{value} * {_SPLIT} - {t}.{value})" for name, value in _HEADS.items()}
    split = "named_struct(" + ", ".join(f"'{name}', {text}" for name, text in heads.items()) + ")"
    left = f"({t}.n * {t}.q.h)"
    right = f"({t}.s.h * {t}.s.h)"
    low = {name: f"({t}.{value} - u.{name})" for name, value in _HEADS.items()}
    left_error = f"(((u.n * u.q - {left}) + u.n * {low['q']} + {low['n']} * u.q) + {low['n']} * {low['q']})"
    right_error = f"(((u.s * u.s - {right}) + 2D * u.s * {low['s']}) + {low['s']} * {low['s']})"
    small = f"({left_error} - {right_error}) + ({t}.n * {t}.q.l - 2D * {t}.s.h * {t}.s.l)"
    return _let(split, "u", f"({left} - {right}) + ({small})")


_HEADS = {"s": "s.h", "q": "q.h", "n": "n"}


def _let(value: str, name: str, body: str) -> str:
    return f"transform(array({value}), {name} -> {body})[0]"
