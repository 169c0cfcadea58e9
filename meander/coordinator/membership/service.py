"""Everything about sites that a coordinator has: made before it listens, at work with its core, closed after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.core import Core
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.auditor import Auditor
from meander.coordinator.membership.detector import Detector
from meander.coordinator.membership.events import MembershipEvents
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.store import MembershipStore
from meander.membership.protocol import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Epoch
from meander.model.clock import wall_clock_ms


class MembershipService:
    """Begins an epoch when it is made."""

    def __init__(
        self,
        ledger: Path,
        reader: ChangeReader,
        on_step_down: Callable[[str], None],
        heartbeat_ms: int = HEARTBEAT_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.store = MembershipStore(ledger)
        self.epoch: Epoch = self.store.begin_epoch(wall_clock_ms())
        self.auditor = Auditor(self.store)
        self.membership = Membership(
            self.store,
            self.epoch,
            MembershipEvents(self.store, reader),
            wall_ms=wall_clock_ms,
            heartbeat_ms=heartbeat_ms,
            session_timeout_ms=session_timeout_ms,
            on_step_down=on_step_down,
        )
        self._detector = Detector(self.membership)

    def start(self) -> None:
        self.auditor.start()

    def ready(self, core: Core) -> None:
        """The core can be asked: sites may join, and those that are not heard of are looked for."""
        core.on_stepped_down = self.membership.leadership.step_down
        self.membership.ready(core)
        self._detector.start()

    def stop(self) -> None:
        """Stops looking for silent sites; before the core stops."""
        self._detector.stop()

    def close(self) -> None:
        """After the last request was answered."""
        self.auditor.stop()
        self.store.audit.note(AuditEntry(wall_clock_ms(), "coordinator", "stop", f"epoch {self.epoch.number}"))
        self.store.close()
