"""A journey: one reconfiguration on its way through all its sites, phase after phase.

Everybody is asked for a phase's part at the same time, again and again until it is done everywhere; then comes the next
phase. Whoever is away is waited for. Before the decision a journey can be taken back at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.model.errors import InputError
from meander.reconfigure.part import Part
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME
from meander.run.installation import Installation
from meander.run.store.journal import JournalError

AGAIN_S, AWAY_S = 0.02, 0.3
Ask = Callable[[str, str, Mapping[str, Any]], Any]
"""Gives an order to a site: (site, action, body) to the answer."""


class DistributedPhase(Enum):
    """What is being done; each has to be done everywhere before the next begins."""

    PREPARE = "prepare"
    READY = "ready"
    MARK = "mark"
    DRAIN = "drain"
    FETCH = "fetch"
    ARRIVE = "arrive"
    DECIDED = "decided"


_NEXT = dict(zip(list(DistributedPhase)[:-1], list(DistributedPhase)[1:], strict=True))
_LOOKS = {DistributedPhase.READY: "prepared", DistributedPhase.DRAIN: "drained", DistributedPhase.ARRIVE: "arrived"}
"""Phases in which sites are looked at, and what has to be true there."""


@dataclass
class DistributedChange:
    """One reconfiguration under way. Not for several threads; orders are given by those of a pool."""

    reconfiguration: Reconfiguration
    shares: Mapping[str, Part]
    installation: Installation | None
    """What the coordinator's own host will run, already bound."""
    started: float
    not_before: float = 0.0
    """It does not begin earlier than this, by the monotonic clock: it failed before."""
    phase: DistributedPhase = DistributedPhase.PREPARE
    marked: float = 0.0
    drained: float = 0.0
    told: dict[str, Any] = field(default_factory=lambda: {"readers": {}, "logs": {}, "floors": {}, "frozen": {}})
    """What sites said about where they stopped."""
    bytes: int = 0
    problem: str | None = None
    away: dict[str, str] = field(default_factory=dict)
    """Sites that do not answer now, with the reason."""
    _open: dict[str, Future[Any]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    @property
    def number(self) -> int:
        return self.reconfiguration.number

    def advance(self, pool: Executor, ask: Ask, open_: list[int], is_owed: Callable[[str], bool]) -> None:
        """Does what can be done now. `open_` are all that are under way; nobody who is owed something begins."""
        if self.problem is not None:  # whoever takes it back has not managed to
            return
        self._collect()
        if self.problem is None and self.phase is not DistributedPhase.DECIDED and self._done == set(self.shares):
            self._next()
        if self.problem is not None or self.phase is DistributedPhase.DECIDED:
            return
        now = time.monotonic()
        if now < self.not_before:
            return
        for site in self.shares:
            if site in self._done or site in self._open or self._due.get(site, 0.0) > now:
                continue
            if self.phase is DistributedPhase.PREPARE and is_owed(site):
                continue
            action, body = self._order(site, open_)
            self._open[site] = pool.submit(ask, site, action, body)

    def settle(self) -> None:
        """Waits for what the coordinator's own host is doing for it."""
        future = self._open.pop(HOME, None)
        if future is not None and not future.cancel():
            future.exception()

    def _order(self, site: str, open_: list[int]) -> tuple[str, dict[str, Any]]:
        match self.phase:
            case DistributedPhase.PREPARE:
                return "prepare", {"share": self.shares[site], "open": open_, "installation": self.installation}
            case DistributedPhase.MARK:
                return "mark", {"number": self.number}
            case DistributedPhase.FETCH:
                return "fetch", {"number": self.number, **self.told}
            case _:
                return "look", {"numbers": [self.number]}

    def _collect(self) -> None:
        """Takes the answers that have come."""
        for site, future in list(self._open.items()):
            if not future.done():
                continue
            del self._open[site]
            try:
                answer = future.result()
            except (AwayError, JournalError) as error:
                self.away[site] = str(error)
                self._due[site] = time.monotonic() + AWAY_S
            except InputError as error:
                self.problem = f"site {site} refused: {error}"
            except Exception as error:  # what a site cannot do must not stop everybody else
                self.problem = f"site {site} failed: {type(error).__name__}: {error}"
            else:
                self.away.pop(site, None)
                self._take(site, answer)

    def _take(self, site: str, answer: Any) -> None:
        if self.phase not in _LOOKS:
            self._done.add(site)
            return
        seen = answer[str(self.number)]
        if seen["phase"] == "unknown":
            self.problem = f"site {site} does not know of the change any more"
        elif seen["problem"] is not None:
            self.problem = f"site {site}: {seen['problem']}"
        elif not seen[_LOOKS[self.phase]]:
            self._due[site] = time.monotonic() + AGAIN_S
        else:
            self._done.add(site)
            if self.phase is DistributedPhase.DRAIN:
                for kind in self.told:
                    self.told[kind].update(seen.get(kind, {}))
            elif self.phase is DistributedPhase.ARRIVE:
                self.bytes += seen["bytes"]

    def _next(self) -> None:
        self.phase = _NEXT[self.phase]
        self._done, self._due = set(), {}
        if self.phase is DistributedPhase.DRAIN:
            self.marked = time.perf_counter()
        elif self.phase is DistributedPhase.FETCH:
            self.drained = time.perf_counter()
            if not self._anything_to_fetch():
                self.phase = DistributedPhase.DECIDED

    def _anything_to_fetch(self) -> bool:
        return any(share.taken_over or share.arriving() for share in self.shares.values())
