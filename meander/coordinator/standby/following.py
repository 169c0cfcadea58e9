"""The standby as the coordinator sees it: it is served what it lacks, and nothing leaves before it has it.

It is in sync once it has had everything. From then on results, answers and orders wait until it has what they come
from.
One that is silent is waited for until most sites remember a newer term, in which no vote is given to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.problems import conflict
from meander.coordinator.standby.rounds import LedgerPages, files_lacking, piece
from meander.membership.protocol import STANDBY_TERM
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.locks import lock
from meander.reconfigure.agent.serving.replication import Replication
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)
SILENT_S = 3.0
"""A standby that does not ask for so long is not waited for any more, if most sites agree."""
CONFIRM_S = 10.0
"""The time for which answers and orders wait for the standby."""
TICK_S, WAIT_S, LOOK_S = 0.2, 1.0, 0.02
MOST_BYTES = 16_000_000
BOUNDS = {"most_bytes": 64_000_000, "most_ms": 10_000, "every_ms": 0}
Voters = Callable[[], Collection[str]]
Facts = Callable[[], Mapping[str, Mapping[str, Any]]]


class NoMajorityError(JournalError):
    """Nothing can be told to others: neither the standby nor most sites can be reached."""


class Following:
    """One standby at a time, from any thread."""

    role = "active"

    def __init__(
        self,
        home: CoordinatorDirectory,
        replication: Replication,
        voters: Voters,
        facts: Facts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`voters` are the names of all sites, `facts` the measures of those that are there."""
        self._home, self._replication, self._voters, self._facts, self._clock = home, replication, voters, facts, clock
        self._lock = lock("standby")
        self._ledger = LedgerPages(home.ledger)
        known = replication.keepers
        self.name: str | None = next(iter(known), None)
        self.term = known.get(self.name, 0) if self.name is not None else 0
        self.address = ""
        self._is_leaving = False
        """Whether it is not waited for any more, as soon as most sites know."""
        self._heard = clock()
        self._round, self._offered_at, self._has_ledger_of = 0, 0.0, -1.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    # ---------------------------------------------------------------- what it gets

    def serve(self, asked: Mapping[str, Any]) -> Iterator[bytes]:
        """All that a standby lacks: its request says what it has."""
        name, term = str(asked["name"]), int(asked["term"])
        with self._lock:
            self._admit(name, term)
            self.address, self._heard = str(asked["address"]), self._clock()
            if 0 < self._round == int(asked["round"]):
                self._has_ledger_of = self._offered_at
            self._round += 1
            number, term = self._round, self.term
        self._replication.store.wake_readers()
        return self._pieces(name, term, number, asked)

    def _admit(self, name: str, term: int) -> None:
        if name == self.name and term == self.term and not self._is_leaving:
            return
        if self.name is not None and name != self.name and self._clock() - self._heard < SILENT_S:
            raise conflict(f"another standby follows this coordinator, at {self.address}; stop that one first")
        if self.name is not None and self.is_in_sync:
            self._is_leaving = True
            raise conflict("the standby that was in sync is not waited for as soon as most sites know; try again")
        self.name, self._is_leaving, self._has_ledger_of, self._round = name, False, -1.0, 0
        self._offered_at = -1.0
        self.term = self._next_term()
        self._replication.configure({"keepers": {name: self.term}, **BOUNDS})
        _log.info("a standby begins to follow, in term %d", self.term)

    def _next_term(self) -> int:
        """A term later than all that sites have heard of."""
        told = (int(found.get(STANDBY_TERM, 0)) for found in self._facts().values())
        return max([wall_clock_ms(), self.term + 1, *(term + 1 for term in told)])

    def _pieces(self, name: str, term: int, number: int, asked: Mapping[str, Any]) -> Iterator[bytes]:
        offered = None
        for head, data in self._replication.serve(name, {**asked["store"], "term": term}, MOST_BYTES, WAIT_S):
            offered = head["offer"] if "segments" in head else offered
            self._heard = self._clock()
            yield piece(head, bytes(data))
        if offered is not None:
            yield from files_lacking(self._home.directory, asked["files"])
            with self._lock:
                self._offered_at = self._clock()
                ledger = list(self._ledger.lacking(int(asked["ledger"])))
            yield from ledger
        yield piece({"round": number, "offer": offered, "term": term, "in_sync": self.is_in_sync})

    # ---------------------------------------------------------------- who waits for it

    @property
    def is_in_sync(self) -> bool:
        return self.name is not None and self.name in self._replication.in_sync

    def confirm(self) -> None:
        """Returns when the standby has all that was written until now; raises when nobody can say that it has."""
        begun = self._clock()
        while self.is_in_sync:
            with self._lock:
                if self._has_ledger_of > begun:
                    break
            if self._clock() - begun >= CONFIRM_S or self._stopping.is_set():
                raise NoMajorityError(self._waits())
            self._replication.store.wake_readers()
            time.sleep(LOOK_S)
        try:
            self._replication.wait(CONFIRM_S)
        except JournalError:
            raise NoMajorityError(self._waits()) from None

    def _waits(self) -> str:
        return (
            "the standby does not follow, and too few sites are here to agree that it is not waited for; nothing "
            "leaves the coordinator until one of both is back"
        )

    # ---------------------------------------------------------------- when it is silent

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            try:
                self.tick()
            except (InputError, JournalError) as error:
                _log.warning("looking after the standby failed: %s", error)

    def tick(self) -> None:
        """Drops a standby that is silent, once no vote can be given to it any more."""
        with self._lock:
            if self.name is None:
                return
            if self._clock() - self._heard > SILENT_S and not self._is_leaving:
                self._is_leaving = True
                self.term = self._next_term()
                _log.warning("the standby is silent; it is not waited for as soon as most sites know")
            elif self._is_leaving and self.term == self._replication.keepers.get(self.name):
                self.term = self._next_term()
            if not self._is_leaving or (self.is_in_sync and not self._is_known()):
                return
            self._replication.configure({"keepers": {}, **BOUNDS})
            self.name, self._is_leaving, self.address = None, False, ""
        _log.warning("the standby is not waited for any more")

    def _is_known(self) -> bool:
        """Whether most sites remember the present term."""
        voters, facts = self._voters(), self._facts()
        if not voters:  # nobody votes for it
            return True
        told = sum(int(facts.get(site, {}).get(STANDBY_TERM, 0)) >= self.term for site in voters)
        return 2 * told > len(voters)

    # ---------------------------------------------------------------- looking

    def announced(self, own: str) -> dict[str, Any]:
        """The things that sites have to know."""
        return {"term": self.term, "coordinators": [each for each in (own, self.address) if each]}

    def shown(self) -> dict[str, Any] | None:
        """The standby, for people; None without one."""
        with self._lock:
            name, address, silent_s = self.name, self.address, self._clock() - self._heard
        status = self._replication.status().get(name or "")
        if name is None or status is None:
            return None
        return {"address": address, "silent_ms": round(silent_s * 1000), **status.as_json()}

    def problems(self) -> list[str]:
        """Why results wait, if they do."""
        return [self._waits()] if self._is_leaving and self.is_in_sync else []
