"""Everything about sites that a coordinator has: made before it listens, at work with its core, closed after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meander.model.clock import wall_clock_ms
from meander.serve.changes import Reader
from meander.serve.core import Core
from meander.serve.sites.auditor import Auditor
from meander.serve.sites.book import Book, Entry
from meander.serve.sites.comings import Comings
from meander.serve.sites.detector import Detector
from meander.serve.sites.membership import Membership
from meander.sites.protocol import HEARTBEAT_MS, PATIENCE_MS, Epoch


class Office:
    """Begins an epoch when it is made."""

    def __init__(
        self,
        ledger: Path,
        reader: Reader,
        on_step_down: Callable[[str], None],
        heartbeat_ms: int = HEARTBEAT_MS,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self.book = Book(ledger)
        self.epoch: Epoch = self.book.begin_epoch(wall_clock_ms())
        self.auditor = Auditor(self.book)
        self.membership = Membership(
            self.book,
            self.epoch,
            Comings(self.book, reader),
            wall_ms=wall_clock_ms,
            heartbeat_ms=heartbeat_ms,
            patience_ms=patience_ms,
            on_step_down=on_step_down,
        )
        self._detector = Detector(self.membership)

    def start(self) -> None:
        self.auditor.start()

    def ready(self, core: Core) -> None:
        """The core can be asked: sites may join, and those that are not heard of are looked for."""
        core.on_stepped_down = self.membership.step_down
        self.membership.ready(core)
        self._detector.start()

    def stop(self) -> None:
        """Nobody is looked for any more; before the core stops."""
        self._detector.stop()

    def close(self) -> None:
        """After the last request was answered."""
        self.auditor.stop()
        self.book.note(Entry(wall_clock_ms(), "coordinator", "stop", f"epoch {self.epoch.number}"))
        self.book.close()
