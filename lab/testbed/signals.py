"""Signals that would end this program at once end it in order instead, so that nothing is left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

DEADLY = (signal.SIGTERM, signal.SIGHUP)
ALL = (signal.SIGINT, *DEADLY)


@contextmanager
def in_order() -> Iterator[None]:
    """Inside, signals without a handler raise SystemExit, as Ctrl-C raises KeyboardInterrupt."""
    before = {n: signal.getsignal(n) for n in ALL}
    _handle({n: _end for n in DEADLY if before[n] is signal.SIG_DFL})
    try:
        yield
    finally:
        _handle(before)


def deafen() -> None:
    """Until the end of `in_order` signals do nothing: a second one must not stop what the first one clears away."""
    _handle(dict.fromkeys(ALL, signal.SIG_IGN))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _handle(handlers: dict[signal.Signals, Any]) -> None:
    """Sets a handler where that is possible: signals belong to the main thread."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)
