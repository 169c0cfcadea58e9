"""Leadership: the right of the coordinator with the newest epoch to act. One that hears of a newer epoch steps down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from meander.coordinator.epochs import SteppedDownError
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import MembershipStore
from meander.membership.fence import refusal
from meander.membership.protocol import Code, Epoch

_log = logging.getLogger(__name__)


class Leadership:
    """That of one coordinator, from any thread; once lost, it is lost for good."""

    def __init__(
        self,
        store: MembershipStore,
        epoch: Epoch,
        lock: AbstractContextManager[Any],
        wall_ms: Callable[[], int],
        on_step_down: Callable[[str], None],
    ) -> None:
        self.epoch = epoch
        self.stepped_down: str | None = None
        """The reason why this coordinator acts no more."""
        self._store, self._lock, self._wall_ms, self._on_step_down = store, lock, wall_ms, on_step_down

    def check(self) -> None:
        """Steps down when another coordinator has begun on this directory."""
        try:
            self._store.check_epoch(self.epoch)
        except SteppedDownError as error:
            self.step_down(str(error))

    def check_seen(self, seen: Epoch | None) -> None:
        """Refuses to act for a site when this coordinator may not; steps down when the site has seen a newer one."""
        if self.stepped_down is not None:
            raise SiteRefusedError(Code.EPOCH, self.stepped_down)
        if seen is None or seen == self.epoch or seen.number < self.epoch.number:
            return
        if not self._store.is_genuine(seen):
            raise SiteRefusedError(
                Code.INPUT, "the site's directory belongs to another coordinator; join with a fresh directory"
            )
        with self.held():
            raise SteppedDownError(refusal(seen, self.epoch))

    def meet(self, newest: Epoch) -> None:
        """Steps down when a site listens to a newer coordinator of this directory, or of a copy of it."""
        if newest.number >= self.epoch.number and newest != self.epoch and self._store.is_genuine(newest):
            self.step_down(refusal(newest, self.epoch))

    def step_down(self, reason: str) -> None:
        """Acts no more: another coordinator does."""
        with self._lock:
            if self.stepped_down is not None:
                return
            self.stepped_down = reason
        _log.error("stepping down: %s", reason)
        self._store.audit.note(
            AuditEntry(self._wall_ms(), "coordinator", "step down", f"epoch {self.epoch.number}", reason)
        )
        self._on_step_down(reason)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, it turns out that another coordinator acts: this one steps down, and says so to the site."""
        try:
            yield
        except SteppedDownError as error:
            self.step_down(str(error))
            raise SiteRefusedError(Code.EPOCH, str(error)) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that only the newest coordinator can make; any other one steps down."""
        with self.held(), self._store.transaction(self.epoch):
            yield
