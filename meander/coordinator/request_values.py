"""Checks of the values that requests bring: names, texts and numbers that can be written down and shown."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from meander.model.errors import InputError

LONGEST_NAME = 200
LONGEST_TEXT = 100_000
TEXTS = ("sql", "when")
LARGEST_WHOLE = 2**31 - 1
LARGEST_TIME = 2**53
_PLAIN = re.compile(r"\w[\w.-]*")


def check_value(key: str, value: Any) -> None:
    """Numbers that fit, and texts that can be written down."""
    match value:
        case bool() | None:
            return
        case int():
            if abs(value) > (LARGEST_TIME if key.endswith("_ms") else LARGEST_WHOLE):
                raise InputError(f"{key} is too large: {value}")
        case float():
            if not math.isfinite(value):
                raise InputError(f"{key} must be a finite number; leave it out for no limit")
        case str():
            check_text(value, key) if key in TEXTS else check_name(value, key)
        case list():
            for entry in value:
                check_value(key, entry)
        case Mapping():
            for inner, entry in value.items():
                check_value(str(inner), entry)


def check_name(text: str, what: str) -> None:
    if not text or len(text) > LONGEST_NAME:
        raise InputError(f"{what} must have 1 to {LONGEST_NAME} characters, not {len(text)}")
    if any(unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn") for c in text):
        raise InputError(f"{what} contains characters that cannot be shown: {text!r}")


def check_plain_name(text: str, what: str) -> None:
    """Raises for a name that would mean something in a path, an address or a log."""
    check_name(text, what)
    if not _PLAIN.fullmatch(text):
        raise InputError(
            f"{what} is {text!r}; it begins with a letter or digit and goes on with letters, digits, '_', '-' and '.'"
        )


def check_text(text: str, what: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise InputError(f"{what} has {len(text):,} characters; {LONGEST_TEXT:,} are allowed")
    if any(unicodedata.category(c) == "Cs" or c == "\0" for c in text):
        raise InputError(f"{what} contains characters that are no text")
