"""The failure detector: looks for sites that are not heard of, as long as this process itself is awake."""

from __future__ import annotations

import logging
import time

from meander.coordinator.membership.members import Membership
from meander.run.periodic import PeriodicThread

_log = logging.getLogger(__name__)
LOOKS_PER_TIMEOUT = 10


class Detector(PeriodicThread):
    """A thread. When it finds that it slept through its turns, it blames itself and not the sites."""

    def __init__(self, membership: Membership) -> None:
        super().__init__("sites", membership.session_timeout_ms / 1000 / LOOKS_PER_TIMEOUT, self._look)
        self._membership = membership
        self._last = time.monotonic()

    def _look(self) -> None:
        last, self._last = self._last, time.monotonic()
        if self._last - last > 5 * self.every_s:  # stopped, or starved: heartbeats could not be heard either
            self._membership.forgive()
            self._membership.probe(self._membership.roster.present())
        self._membership.leadership.check()
        if silent := self._membership.silent():  # perhaps they were told to listen to another coordinator
            self._membership.probe(silent)
        lost = self._membership.sweep()
        if lost:
            _log.warning("not heard of any more: %s", ", ".join(lost))
        self._last = time.monotonic()
