"""Typed values out of YAML text: words, numbers, truth values, mappings.

An error names the expected value and, where the value knows it, its line; the caller adds the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from meander.lang.topology.yaml_lines import YamlItem, YamlRow, is_null
from meander.model.errors import InputError, unknown
from meander.model.topology.elements import UNLIMITED

LARGEST_INT = 2**31 - 1
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INFINITE = frozenset({"unlimited", ".inf", "+.inf", "inf", "infinity"})


def wrong(value: YamlItem | str, message: str) -> InputError:
    """An error about a value, on its line."""
    return InputError(message, f"line {value.line}" if isinstance(value, YamlItem) else None)


def rows(item: YamlItem, what: str) -> list[YamlRow]:
    """A list of mappings."""
    if is_null(item):
        return []
    if not isinstance(item.value, list):
        raise wrong(item, f"{what}s must be a list, each entry a mapping behind a dash")
    found: list[YamlRow] = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            raise wrong(entry, f"a {what} must be a mapping such as {{name: {what}-1}}, not {shown(entry)}")
        found.append(YamlRow(entry.line, dict(entry.value)))
    return found


def check_keys(values: Mapping[str, YamlItem | str] | Mapping[str, YamlItem], known: frozenset[str], what: str) -> None:
    for key, value in values.items():
        if key not in known:
            raise wrong(value, unknown(f"{what} key", key, known).message)


def shown(value: YamlItem | str) -> str:
    """A value as an error quotes it."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value.value, list):
        return "a list"
    return "a mapping" if isinstance(value.value, dict) else repr(value.value)


def word(value: YamlItem | str, what: str) -> str:
    """Text that is not empty."""
    text = value if isinstance(value, str) else value.value
    if not isinstance(text, str):
        raise wrong(value, f"{what} must be a word, not {shown(value)}")
    if not text or is_null(value):
        raise wrong(value, f"{what} is empty; write a word")
    return text


def number(value: YamlItem | str, what: str, *, least: float = 0.0, most: float = UNLIMITED) -> float:
    """A number in a range; `unlimited` is infinite."""
    text = value if isinstance(value, str) else value.value
    parsed = _number(text.lower()) if isinstance(text, str) else None
    if parsed is None or math.isnan(parsed):
        raise wrong(value, f"{what} must be a number, not {shown(value)}")
    if parsed < least:
        raise wrong(
            value,
            f"{what} must not be negative, but is {text}"
            if least == 0
            else f"{what} must be at least {least:g}, not {text}",
        )
    if parsed > most:
        raise wrong(value, f"{what} must be at most {most:g}, but is {text}")
    return parsed


def _number(text: str) -> float | None:
    try:
        return UNLIMITED if text in _INFINITE else float(text)
    except ValueError:
        return None


def whole(value: YamlItem | str, what: str) -> int:
    """A whole number that is not negative."""
    parsed = number(value, what, most=LARGEST_INT)
    if not parsed.is_integer():
        raise wrong(value, f"{what} must be a whole number, not {shown(value)}")
    return int(parsed)


def truth(value: YamlItem | str, what: str) -> bool:
    text = value if isinstance(value, str) else value.value
    found = _TRUTH.get(text.lower()) if isinstance(text, str) else None
    if found is None:
        raise wrong(value, f"{what} must be true or false, not {shown(value)}")
    return found


def texts(value: YamlItem | str, what: str) -> dict[str, str]:
    """A mapping of words to words, as options are."""
    if isinstance(value, str) or not isinstance(value.value, dict):
        raise wrong(value, f"{what} must be a mapping such as {{path: out.csv}}, not {shown(value)}")
    return {key: text(item, f"{what}: {key}") for key, item in value.value.items()}


def text(value: YamlItem, what: str) -> str:
    """Any scalar as it was written."""
    if not isinstance(value.value, str):
        raise wrong(value, f"{what} must be a single value, not {shown(value)}")
    return value.value
