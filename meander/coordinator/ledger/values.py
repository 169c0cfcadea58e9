"""The form in which the ledger's values are written down."""

from __future__ import annotations

import json
import math
from typing import Any


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def limited(value: float) -> float | None:
    """A figure as it is written down: infinity is NULL."""
    return None if math.isinf(value) else value


def full(value: float | None) -> float:
    return math.inf if value is None else value
