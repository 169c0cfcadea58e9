"""The end of long-running commands: SIGTERM and Ctrl-C, while they start and once they run."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

import typer


class Ending:
    """Until `ready` a signal ends the start, which may take long; from then on it only sets `told`."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.is_ready = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def ready(self) -> None:
        self.is_ready = True

    def give_up(self, reason: str) -> NoReturn:
        """Ends a process at once that cannot be stopped, such as without its Java; commits are on the disk."""
        typer.secho(f"error: {reason}; everything that was taken in is there at the next start", err=True)
        sys.stdout.flush()
        os._exit(1)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = not self.told.is_set()
        self.told.set()
        if first and not self.is_ready:
            typer.echo("told to stop before everything was ready", err=True)
            raise SystemExit(0)
