"""Memoised functions of plain, unchanging data: they keep their results for the same objects.

Operators and schemas live as long as their query and are asked about at every change of a placement. Results are found
by the identity of the objects, not by their contents; an equal object is worked out again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

MOST = 20_000
"""Answers of one function that are kept; then it begins anew."""

P = ParamSpec("P")
R = TypeVar("R")


def memoised(function: Callable[P, R]) -> Callable[P, R]:
    """For arguments by position. Their answers keep them alive, so that no other object can take their place."""
    known: dict[tuple[int, ...], tuple[tuple[Any, ...], R]] = {}

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        key = tuple(map(id, args))
        found = known.get(key)
        if found is not None and not kwargs:
            return found[1]
        answer = function(*args, **kwargs)
        if not kwargs:
            if len(known) >= MOST:
                known.clear()
            known[key] = (args, answer)
        return answer

    return wrapper
