"""The ledger: the durable facts of a coordinator, in one SQLite file in WAL mode.

A change is written twice: accepted before anything happens, and applied with its result. So a process that ends in
between finds its unfinished work when it starts again. The host's store holds the running fragments; the ledger holds
the decisions, and their reasons. One thread writes and reads here; all other readers ask `history`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.coordinator.epochs import check as check_epoch
from meander.coordinator.ledger.absent_node_links import AwayLinks
from meander.coordinator.ledger.answers import Answers
from meander.coordinator.ledger.batch_log import BatchLog
from meander.coordinator.ledger.migrations import migrate
from meander.coordinator.ledger.query_tables import QueryTables
from meander.coordinator.ledger.topology_tables import TopologyTables
from meander.coordinator.ledger.values import as_text
from meander.membership.protocol import Epoch
from meander.model.durable_files import FILES
from meander.model.errors import InputError
from meander.model.ids import NodeId, OperatorId


@dataclass(frozen=True, slots=True)
class Placing:
    """The node on which an operator is to run, and the reason."""

    node: NodeId
    pinned: bool
    why: str


class Ledger:
    """One file. All calls come from one thread at a time."""

    def __init__(self, path: Path, epoch: Epoch | None = None, *, durable: bool = False) -> None:
        """With an epoch, nothing can be written any more once another coordinator has begun a newer one. `durable`:
        what was written survives a power failure, not only the end of the process."""
        self.path, self.epoch = path, epoch
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._db.execute("PRAGMA foreign_keys = ON")
            migrate(self._db)
        except sqlite3.DatabaseError as error:
            raise InputError(f"this is no ledger: {error}; restore a backup", str(path)) from None
        self.topology, self.away_links = TopologyTables(self._db), AwayLinks(self._db)
        self.batches, self.queries, self.answers = BatchLog(self._db), QueryTables(self._db), Answers(self._db)

    def close(self) -> None:
        self._db.close()

    def sync(self) -> None:
        """Returns when all that was written is on the disk, whether or not the ledger is durable by itself."""
        log = self.path.with_name(f"{self.path.name}-wal")
        try:
            descriptor = FILES.open(log)
        except FileNotFoundError:
            return  # all of it is in the file itself, which was synced for that
        try:
            FILES.sync(descriptor)
        finally:
            FILES.close(descriptor)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if self.epoch is not None:
                check_epoch(self._db, self.epoch)
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # ---------------------------------------------------------------- rates

    def save_rates(self, rates: Mapping[tuple[str, str], float]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO rates VALUES (?, ?, ?)", ((s, n, rate) for (s, n), rate in rates.items())
        )

    def rates(self) -> dict[tuple[str, str], float]:
        return {(s, n): rate for s, n, rate in self._db.execute("SELECT * FROM rates")}

    # ---------------------------------------------------------------- placements and what was done

    def save_placements(self, changed: Mapping[OperatorId, Placing | None]) -> None:
        gone = [(int(o),) for o, placing in changed.items() if placing is None]
        self._db.executemany("DELETE FROM placements WHERE operator = ?", gone)
        self._db.executemany(
            "INSERT OR REPLACE INTO placements VALUES (?, ?, ?, ?)",
            ((int(o), int(p.node), int(p.pinned), p.why) for o, p in changed.items() if p is not None),
        )

    def placements(self) -> dict[OperatorId, Placing]:
        rows = self._db.execute("SELECT * FROM placements")
        return {OperatorId(o): Placing(NodeId(node), bool(pinned), why) for o, node, pinned, why in rows}

    def save_reconfiguration(self, record: Mapping[str, Any]) -> None:
        row = (record["number"], record["status"], as_text(record))
        self._db.execute("INSERT OR REPLACE INTO reconfigurations VALUES (?, ?, ?)", row)

    def add_decisions(self, decisions: Iterable[Mapping[str, Any]]) -> None:
        self._db.executemany(
            "INSERT INTO decisions (query, record) VALUES (?, ?)", ((d["query"], as_text(d)) for d in decisions)
        )
