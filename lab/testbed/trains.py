"""The demo's trains on a test bed: they change from one base station to the next as they move, over all sites.

Unlike with `meander demo` nothing is compared in the end, since what goes in is made at the sites, each by itself;
`meander testbed chaos` is for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException

from lab.testbed.process_test_bed import ProcessTestBed
from meander.demo.fleet import Surveyed, TrainFleet, trains_in
from meander.model.streams import Stream

TICK_S, SAY_EVERY_S = 0.5, 5.0


class Trains:
    """Moves trains until it is told to end."""

    def __init__(self, test_bed: ProcessTestBed, stream: Stream, say: Callable[[str], None]) -> None:
        self.test_bed, self.say = test_bed, say
        self.handovers = self.refused = 0
        self._fleet = TrainFleet(stream)

    def run(self, ended: threading.Event, seconds: float | None = None) -> None:
        """Until `ended`, or for a time."""
        began = time.monotonic()
        next_line = SAY_EVERY_S
        while not ended.wait(TICK_S) and (seconds is None or time.monotonic() - began < seconds):
            elapsed_s = time.monotonic() - began
            with suppress(OSError, HTTPException, ValueError):  # a bed is for processes that come and go
                self._change(elapsed_s)
                if elapsed_s >= next_line:
                    next_line += SAY_EVERY_S
                    self.say(self._line(elapsed_s))

    def _change(self, elapsed_s: float) -> None:
        topology = self.test_bed.get("/topology")
        events = self._fleet.handovers(elapsed_s, Surveyed.of(topology)) if topology else []
        if events:
            status, _ = self.test_bed.ask("POST", "/events", {"events": events})
            if status < 300:
                self.handovers += trains_in(events)
            else:
                self.refused += 1

    def _line(self, elapsed_s: float) -> str:
        results = sum(int(query.get("results") or 0) for query in self.test_bed.get("/queries") or ())
        refused = f"  refused {self.refused}" if self.refused else ""
        return f"{elapsed_s:6.1f} s  results {results:,}  handovers {self.handovers}{refused}"
