"""Limits of what is read of a text that somebody sent: in time, and in what it may ask for.

A query that was accepted once is read again when a coordinator takes up what ran: a limit that was set since then must
not keep it from starting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from meander.model.errors import InputError

READ_S = 10.0
"""The time within which a text that somebody else sent has to be read."""
_until: ContextVar[float] = ContextVar("until", default=math.inf)
_are_checked: ContextVar[bool] = ContextVar("are_checked", default=True)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Texts that are read inside have to be understood in this time, by the clock of the machine."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def check_time() -> None:
    """Raises when reading has taken too long; readers ask wherever a text can make them do the same again."""
    if time.monotonic() > _until.get():
        raise InputError("reading this takes too long; make it simpler, or split it into several queries")


@contextmanager
def accepted_before() -> Iterator[None]:
    """Texts that are read inside were accepted once: limits do not apply to them."""
    token = _are_checked.set(False)
    try:
        yield
    finally:
        _are_checked.reset(token)


def are_checked() -> bool:
    """Whether limits apply to the text that is being read."""
    return _are_checked.get()
