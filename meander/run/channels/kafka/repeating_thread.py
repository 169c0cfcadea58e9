"""A thread that does one thing again and again, and reports the problem when that does not work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from meander.run.channels.flight.client import AwayError, PeerRefusedError
from meander.run.channels.flight.puller import PAUSES_S
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)


class RepeatingThread:
    """Rounds until `stop`; after one that did nothing it rests, after one that failed it waits a little longer."""

    def __init__(self, name: str, once: Callable[[], bool], rest: Callable[[], None]) -> None:
        """`once` does a round and says whether there was anything to do."""
        self.problem: str | None = None
        """The reason why the last round failed, if it did."""
        self.stopping = threading.Event()
        self._name, self._once, self._rest = name, once, rest
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        failures = 0
        while not self.stopping.is_set():
            try:
                was_idle = not self._once()
                failures, self.problem = 0, None
                if was_idle:
                    self._rest()
            except (AwayError, PeerRefusedError, JournalError) as error:
                self._failed(error, failures)
                failures += 1
            except Exception as error:  # nothing that goes wrong with one round may end all
                if not self.stopping.is_set():
                    _log.exception("%s failed; it is tried again", self._name)
                self._failed(error, failures)
                failures += 1

    def _failed(self, error: Exception, failures: int) -> None:
        if not failures:
            _log.warning("%s does not work: %s", self._name, error)
        self.problem = str(error)
        self.stopping.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
