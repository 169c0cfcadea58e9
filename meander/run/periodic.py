"""A thread that does one thing every so often. What goes wrong is logged, and tried again with the next turn."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class PeriodicThread:
    """Begins with `start`, ends with `stop`; the first turn comes after one period."""

    def __init__(self, name: str, every_s: float, turn: Callable[[], object]) -> None:
        self.every_s = every_s
        self._turn = turn
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No turn is under way when it returns."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self.every_s):
            try:
                self._turn()
            except Exception:
                _log.exception("%s failed; it is tried again", self._thread.name)
