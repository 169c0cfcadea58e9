"""The failure detector: looks for sites that are not heard of, as long as this process itself is awake."""

from __future__ import annotations

import logging
import threading
import time

from meander.coordinator.membership.members import Membership

_log = logging.getLogger(__name__)
LOOKS_PER_TIMEOUT = 10


class Detector:
    """A thread. When it finds that it slept through its turns, it blames itself and not the sites."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._every_s = membership.session_timeout_ms / 1000 / LOOKS_PER_TIMEOUT
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sites", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(self._every_s):
            now = time.monotonic()
            if now - last > 5 * self._every_s:  # stopped, or starved: heartbeats could not be heard either
                self._membership.forgive()
                self._membership.probe(self._membership.roster.present())
            last = now
            try:
                self._membership.leadership.check()
                if silent := self._membership.silent():  # perhaps they were told to listen to another coordinator
                    self._membership.probe(silent)
                lost = self._membership.sweep()
            except Exception:
                _log.exception("looking for sites that are away failed")
            else:
                if lost:
                    _log.warning("not heard of any more: %s", ", ".join(lost))
                last = time.monotonic()
