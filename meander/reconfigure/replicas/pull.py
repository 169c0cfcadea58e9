"""The pull of another site's journal: one replica, followed until it is told to stop, or until it is complete."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from meander.model.errors import InputError
from meander.run.channels.flight.client import AwayError, FlightClient, PeerRefusedError, get_along
from meander.run.store.journal import JournalError
from meander.run.store.mirror import Mirror

_log = logging.getLogger(__name__)
WAIT_MS = 1_000
MOST_BYTES = 16_000_000
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
BUDGET_BYTES = 10_000_000_000
"""The bytes that are kept of a site at most, unless the coordinator says otherwise."""
MOST_SEGMENTS, LAST_SEGMENT = 10_000, 9_999_999_999
"""No journal has more segments, and none has a higher number."""


class ReplicaRefusedError(Exception):
    """An answer that is more than is kept of a site, or no journal: nothing more is asked of it."""


class ReplicaPull:
    """One replica. `pull` is one request; `start` pulls in a thread of its own."""

    def __init__(
        self,
        site: str,
        term: int,
        directory: Path,
        route: tuple[str, ...],
        client_of: Callable[[str], FlightClient],
        most_bytes: int = BUDGET_BYTES,
    ) -> None:
        """`route` are the sites on the way, nearest first; the last one has the store. `most_bytes` are kept of it."""
        self.site, self.term, self.route = site, term, route
        self.mirror = Mirror(directory)
        self._client_of = client_of
        self._incarnation = ""
        self._offer: str | None = None
        self.most_bytes = most_bytes
        self.problem: str | None = None
        """Why nothing comes now."""
        self.refused: str | None = None
        """Why nothing more is kept."""
        self.is_complete = False
        """Whether it had everything at the last look."""
        self.rest_s = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"replica of {self.site}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Nothing more is written when it returns."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.mirror.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(self.rest_s if self.is_complete else 0.0):
            try:
                self.pull()
                failures, self.problem = 0, None
            except ReplicaRefusedError as error:
                _log.warning("the replica of %s is not kept any more: %s", self.site, error)
                self.problem = self.refused = str(error)
                self.is_complete = False
                return
            except (AwayError, PeerRefusedError, JournalError) as error:
                failures = self._failed(error, failures)
            except Exception as error:
                _log.exception("the replica of %s does not follow; it is tried again", self.site)
                failures = self._failed(error, failures)

    def _failed(self, error: Exception, failures: int) -> int:
        if not failures:
            _log.warning("the replica of %s does not follow: %s", self.site, error)
        self.problem, self.is_complete = str(error), False
        self._stopping.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
        return failures + 1

    def pull(self, wait_ms: int = WAIT_MS) -> None:
        """One request: says what is here, takes what is missing."""
        extents = self.mirror.extents
        asked: dict[str, Any] = {
            "site": self.site,
            "term": self.term,
            "has": {str(s): size for s, size in extents.items()},
            "incarnation": self._incarnation,
            "offer": self._offer,
        }
        if not self._incarnation and extents:
            asked["checksum"] = self.mirror.checksum(max(extents))
        self._offer, offered, segments = None, None, dict[str, int]()
        ticket = {"replica": asked, "wait_ms": wait_ms, "most_bytes": MOST_BYTES}
        for piece in get_along(self.route, ticket, self._client_of):
            if self._stopping.is_set():
                return
            try:
                head: Mapping[str, Any] = json.loads(piece.data.column(0)[0].as_py())
                if "segments" in head:
                    self._begin(head)
                    offered, segments = head["offer"], {str(s): int(size) for s, size in head["segments"].items()}
                else:
                    segment, offset, data = int(head["segment"]), int(head["offset"]), piece.data.column(1)[0].as_py()
                    self._check_room(segment, len(data))
                    self.mirror.write(segment, offset, data)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ReplicaRefusedError(f"what it sends is not understood: {error}") from None
        here = self.mirror.extents
        if offered is not None and all(here.get(int(s), 0) >= size for s, size in segments.items()):
            self.mirror.complete([int(s) for s in segments])
            self._offer, self.is_complete = offered, True

    def _check_room(self, segment: int, size: int) -> None:
        """Raises for what goes beyond the bytes that are kept of a site, or is no segment of a journal."""
        extents = self.mirror.extents
        if not 0 <= segment <= LAST_SEGMENT or len(extents) > MOST_SEGMENTS:
            raise ReplicaRefusedError("what it sends is not the journal of a store")
        if sum(extents.values()) + size > self.most_bytes:
            most = f"{self.most_bytes / 1e6:,.0f} MB"
            raise ReplicaRefusedError(f"its store is larger than {most}; raise `replica_budget` in the topology file")

    def _begin(self, head: Mapping[str, Any]) -> None:
        for segment in map(int, head["anew"]):
            if segment in self.mirror.extents:
                self.mirror.begin_anew(segment)
        self._incarnation, self.rest_s = str(head["incarnation"]), int(head.get("every_ms", 0)) / 1000

    def fetch(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Pulls until everything is here; raises when the other side says no."""
        while not self.is_complete:
            if is_over():
                raise InputError(f"the replica of {self.site} was not fetched as a whole")
            try:
                self.pull(wait_ms=0)
            except ReplicaRefusedError as error:
                raise InputError(f"the replica of {self.site} is not one: {error}") from None
            except AwayError as error:
                _log.warning("fetching the replica of %s waits: %s", self.site, error)
                self._stopping.wait(PAUSES_S[-1])
