"""Typed values out of YAML text: words, numbers, truth values, mappings, each with an error that says what it should be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from meander.lang.yaml_lines import NULLS, Item, Row
from meander.model.errors import InputError, unknown
from meander.model.topology import UNLIMITED

LARGEST_INT = 2**31 - 1
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INFINITE = frozenset({"unlimited", ".inf", "+.inf", "inf", "infinity"})


def rows(item: Item, what: str, file: str) -> list[Row]:
    """A list of mappings."""
    if item.value is None or (item.plain and isinstance(item.value, str) and item.value in NULLS):
        return []
    if not isinstance(item.value, list):
        raise InputError(f"{what}s must be a list, each entry a mapping behind a dash", f"{file}, line {item.line}")
    found: list[Row] = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            raise InputError(
                f"a {what} must be a mapping such as {{name: {what}-1}}, not {shown(entry)}",
                f"{file}, line {entry.line}",
            )
        found.append(Row(entry.line, dict(entry.value)))
    return found


def check_keys(keys: Iterable[str], known: Mapping[str, object] | frozenset[str], what: str) -> None:
    for key in keys:
        if key not in known:
            raise unknown(f"{what} key", key, known)


def shown(value: Item | str) -> str:
    """A value as an error quotes it."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value.value, list):
        return "a list"
    return "a mapping" if isinstance(value.value, dict) else repr(value.value)


def word(value: Item | str, what: str) -> str:
    """Text that is not empty."""
    text = value if isinstance(value, str) else value.value
    plain = isinstance(value, str) or value.plain
    if not isinstance(text, str):
        raise InputError(f"{what} must be a word, not {shown(value)}")
    if not text or (plain and text in NULLS):
        raise InputError(f"{what} is empty; write a word")
    return text


def number(value: Item | str, what: str, *, least: float = 0.0, most: float = UNLIMITED) -> float:
    """A number in a range; `unlimited` is infinite."""
    text = value if isinstance(value, str) else value.value
    if isinstance(text, str):
        try:
            parsed = UNLIMITED if text.lower() in _INFINITE else float(text.lower().removeprefix("."))
            parsed = parsed if parsed == UNLIMITED or math.isnan(parsed) else float(text)
        except ValueError:
            parsed = None
    else:
        parsed = None
    if parsed is None or math.isnan(parsed):
        raise InputError(f"{what} must be a number, not {shown(value)}")
    if parsed < least:
        raise InputError(
            f"{what} must not be negative, but is {text}"
            if least == 0
            else f"{what} must be at least {least:g}, not {text}"
        )
    if parsed > most:
        raise InputError(f"{what} must be at most {most:g}, but is {text}")
    return parsed


def whole(value: Item | str, what: str) -> int:
    """A whole number that is not negative."""
    parsed = number(value, what, most=LARGEST_INT)
    if not parsed.is_integer():
        raise InputError(f"{what} must be a whole number, not {shown(value)}")
    return int(parsed)


def truth(value: Item | str, what: str) -> bool:
    text = value if isinstance(value, str) else value.value
    found = _TRUTH.get(text.lower()) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"{what} must be true or false, not {shown(value)}")
    return found


def texts(value: Item | str, what: str) -> dict[str, str]:
    """A mapping of words to words, as options are."""
    if isinstance(value, str) or not isinstance(value.value, dict):
        raise InputError(f"{what} must be a mapping such as {{path: out.csv}}, not {shown(value)}")
    return {key: text(item, f"{what}: {key}") for key, item in value.value.items()}


def text(value: Item, what: str) -> str:
    """Any scalar as it was written."""
    if not isinstance(value.value, str):
        raise InputError(f"{what} must be a single value, not {shown(value)}")
    return value.value
