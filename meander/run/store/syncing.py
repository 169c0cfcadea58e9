"""What was committed is brought on the disk a moment later, so that a power failure takes no more than that moment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)


class Syncer:
    """A thread for as long as something is not on the disk. Nobody waits for it."""

    def __init__(self, sync: Callable[[], None], pause_s: float | None) -> None:
        """Syncs `pause_s` after the first change, with all that came meanwhile; never if that is None."""
        self._sync, self._pause_s = sync, pause_s
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()

    def wake(self) -> None:
        """Something was written. Not for several threads at once."""
        if self._thread is None and self._pause_s is not None and not self._hurry.is_set():
            self._thread = threading.Thread(target=self._run, name="store sync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        self._hurry.wait(self._pause_s)
        self._thread = None  # what is written from here on needs another one
        try:
            self._sync()
        except JournalError as problem:
            _log.warning("what was committed last is not on the disk: %s", problem)

    def stop(self) -> None:
        """Returns when no thread runs any more."""
        self._hurry.set()
        if (thread := self._thread) is not None and thread is not threading.current_thread():
            thread.join()
