"""Commits are brought on the disk: a moment later, or before somebody outside is told of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from meander.run.store.journal import Journal, JournalError

_log = logging.getLogger(__name__)


class Syncer:
    """Has a thread for as long as something is not on the disk, for which nobody waits."""

    def __init__(self, journal: Journal, synced: Callable[[], None], pause_s: float | None) -> None:
        """Syncs `pause_s` after the first change, with all that came meanwhile; not by itself if that is None."""
        self._journal, self._synced, self._pause_s = journal, synced, pause_s
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def settled(self) -> int:
        """All records with a lower number are on the disk."""
        return self._journal.settled

    @property
    def written(self) -> int:
        """The number of the next record: what was read before this was asked for comes from earlier ones."""
        return self._journal.next_number

    @property
    def broken(self) -> str | None:
        """Why nothing can be committed any more before the store is opened again, if so."""
        return self._journal.broken

    def settle(self) -> None:
        """Returns when all that can be seen survives what `durability` promises: before others are told of it."""
        self._journal.settle(self._journal.next_number - 1)

    def sync(self) -> None:
        """Returns when all that can be seen is on the disk, whatever `durability` promises."""
        self._journal.sync()
        self._synced()

    def wake(self) -> None:
        """Something was written. Not for several threads at once."""
        if self._thread is None and self._pause_s is not None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="store sync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        self._stopping.wait(self._pause_s)
        self._thread = None  # what is written from here on needs another one
        try:
            self.sync()
        except JournalError as problem:
            _log.warning("what was committed last is not on the disk: %s", problem)

    def end(self) -> None:
        """No thread begins from here on. Not beside `wake`, which may have begun one that does not run yet."""
        self._stopping.set()

    def stop(self) -> None:
        """Returns when no thread runs any more."""
        self._stopping.set()
        if (thread := self._thread) is not None:
            thread.join()
