"""Errors for people: a sentence that names the place, the mistake and the remedy."""

from __future__ import annotations

import difflib
from bisect import bisect
from collections.abc import Iterable

SHOWN_ALTERNATIVES = 8
COMPARED_ALTERNATIVES = 2000


class InputError(Exception):
    """Input that a user can correct. Nothing was changed when it is raised.

    `where` is a file with its line, or a position in a query: "trains.yaml, line 12" or "query, line 1, column 8".
    """

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def at(self, where: str) -> InputError:
        """The same error with its place, unless a more precise place is known already."""
        return self if self.where else InputError(self.message, where)

    def inside(self, outer: str) -> InputError:
        """The same error with an outer place in front: the file in front of the position in a query."""
        return InputError(self.message, f"{outer}, {self.where}" if self.where else outer)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class OutsideError(Exception):
    """Something that is needed does not work, and may work when it is tried again. Nothing was changed."""


def unknown(kind: str, name: str, known: Iterable[str], plural: str | None = None) -> InputError:
    """An error for a name that does not exist, with the closest names first.

    >>> print(unknown("stream", "trian", ["tram", "train"]))
    no stream 'trian'; known streams: train, tram
    """
    names = sorted(set(known))
    compared = names
    if len(names) > COMPARED_ALTERNATIVES:  # a million names: compare with those that begin alike
        around = bisect(names, name)
        compared = names[max(0, around - COMPARED_ALTERNATIVES // 2) : around + COMPARED_ALTERNATIVES // 2]
    close = difflib.get_close_matches(name, compared, n=3, cutoff=0.6)
    ordered = close + [n for n in names[: SHOWN_ALTERNATIVES + 3] if n not in close]
    shown = ", ".join(ordered[:SHOWN_ALTERNATIVES])
    more = len(names) - SHOWN_ALTERNATIVES
    if more > 0:
        shown += f" and {more} more"
    plural = plural or f"{kind}s"
    return InputError(f"no {kind} {name!r}; " + (f"known {plural}: {shown}" if names else f"there are no {plural} yet"))
