"""Incarnations of logs: how a copy finds out that its log has lost its end and goes on differently.

Every opening of a store begins a new incarnation of each log in it, at the log's present end. A log that lost records
which its copy has already seen would write others under the same numbers; the copy knows in which incarnation its
last record was, so both find the last number that they have in common. Numbers grow with the clock, so that they are
told apart also after a directory was restored from a copy, and where a log goes on at another site.
"""

from __future__ import annotations

import time
from typing import NamedTuple


class Incarnation(NamedTuple):
    """One life of a log: its number, and the position of the first record that was written in it."""

    number: int
    base: int


Lineage = tuple[Incarnation, ...]
"""The incarnations of a log, oldest first, with bases that grow. Without any it is in its first, number 0."""


def next_number(before: int) -> int:
    """A number for a new incarnation, later than all before: microseconds of the real clock, also in tests."""
    return max(before + 1, time.time_ns() // 1_000)


def newest(lineage: Lineage) -> int:
    """The number of the incarnation that a log is in."""
    return lineage[-1].number if lineage else 0


def renewed(lineage: Lineage, number: int, head: int, tail: int) -> Lineage:
    """The lineage of a log that goes on in a new incarnation at `tail`.

    An older one that began there or behind says nothing any more, nor does one before what a reader is known to have
    processed since.
    """
    kept = tuple(each for each in lineage if head <= each.base < tail)
    return (*kept, Incarnation(number, tail))


def common(lineage: Lineage, known: int) -> int | None:
    """The position up to which a copy that saw incarnation `known` last has the same records; None if all are.

    A later number than the log's own is of a life of which the log knows nothing.
    """
    if not lineage or known == lineage[-1].number:
        return None
    return next((each.base for each in lineage if each.number > known), lineage[-1].base)


def moved(lineage: Lineage, first: int, by: int) -> Lineage:
    """The lineage when the records from `first` on get higher numbers."""
    return tuple(Incarnation(number, base + by if base >= first else base) for number, base in lineage)
