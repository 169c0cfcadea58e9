"""Expected reconfigurations: hosts prepare them ahead, and keep what they prepared for as long as they are told to.

They have numbers below zero, and are nowhere written down: after a restart of either side nothing is expected. Hosts
that are away, or do not know these messages, prepare nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Deployment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.messages import Answer, KeepAhead, PartStatuses, PrepareAhead

_log = logging.getLogger(__name__)
KEEP_S = 1.0
FORGOTTEN = "its host has started again and has forgotten it"


@dataclass(slots=True)
class AheadStatus:
    """How far the preparation of an expected change is."""

    sites: tuple[str, ...]
    ready: dict[str, bool] = field(default_factory=dict)
    bytes: dict[OperatorId, int] = field(default_factory=dict)
    """State that was sent ahead, by operator."""
    refused: str | None = None
    """Why a host cannot prepare it, or does not any more, if that is so."""

    @property
    def is_ready(self) -> bool:
        return all(self.ready.get(site, False) for site in self.sites)


class ExpectedReconfigurations:
    """Those of one driver; its thread owns them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._statuses: dict[int, AheadStatus] = {}
        self._sites: set[str] = set()
        """Hosts that were told of some and have to hear when these are not expected any more."""
        self._open: dict[str, Future[Answer]] = {}
        self._asked: dict[str, tuple[int, ...]] = {}
        """The changes that each host was asked about last, of those that it had taken up."""
        self._told_at = 0.0
        self._next = -1

    def prepare(
        self, found: Sequence[Reconfiguration], plan: GlobalPlan, deployment: Deployment, most_bytes: int
    ) -> list[int]:
        """Lets hosts prepare these; `plan` and `deployment` are as they would be. Gives their numbers."""
        told: dict[str, list[int]] = {}
        numbers: list[int] = []
        for each in found:
            number, self._next = self._next, self._next - 1
            expected = replace(each, number=number)
            parts = self.driver.participants.parts_expected(expected, deployment, plan)
            for site, part in parts.items():
                told.setdefault(site, []).append(number)
                message = PrepareAhead((part,), most_bytes)
                self._open[f"{site} {number}"] = self.driver.requests.transport.ask(site, message)
            self._statuses[number] = AheadStatus(tuple(parts))
            numbers.append(number)
        self._sites |= told.keys()
        return numbers

    def forget(self, numbers: Sequence[int]) -> None:
        """These are not expected any more."""
        for number in numbers:
            self._statuses.pop(number, None)
        self._told_at = 0.0

    def tick(self, now: float) -> None:
        """Once a second hosts are told what is still expected, and say how far that is."""
        for name, future in list(self._open.items()):
            if future.done():
                del self._open[name]
                self._take(name.split(" ")[0], future)
        if now - self._told_at < KEEP_S:
            return
        self._told_at = now
        for site in list(self._sites):
            mine = tuple(n for n, status in self._statuses.items() if site in status.sites)
            if site not in self._open:
                self._asked[site] = tuple(n for n in mine if f"{site} {n}" not in self._open)
                self._open[site] = self.driver.requests.transport.ask(site, KeepAhead(mine))
            if not mine:
                self._sites.discard(site)

    def _take(self, site: str, future: Future[Answer]) -> None:
        error = future.exception()
        if error is not None:
            _log.debug("site %s prepares nothing ahead: %s", site, error)
            return
        answer = future.result()
        if not isinstance(answer, PartStatuses):
            for number, reason in answer.refused.items():
                _log.info("an expected change is not prepared: %s", reason)
                if (found := self._statuses.get(number)) is not None:
                    found.refused = reason
            return
        for number in set(self._asked.pop(site, ())) - answer.by_number.keys():
            if (lost := self._statuses.get(number)) is not None:
                lost.refused = FORGOTTEN
        for number, part in answer.by_number.items():
            status = self._statuses.get(number)
            if status is not None:
                status.ready[site] = part.prepared
                status.bytes |= part.moved

    @property
    def statuses(self) -> Mapping[int, AheadStatus]:
        return self._statuses
