"""The coordinator's records of the replicas of each site, in the store of its own host."""

from __future__ import annotations

from meander.run.store.commit import Commit
from meander.run.store.records.record import forget
from meander.run.store.records.replicas import KeepersRecord
from meander.run.store.store import Store


class ReplicaLedger:
    """Records by site, from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, site: str) -> KeepersRecord:
        return self._store.record(KeepersRecord, site) or KeepersRecord(site)

    def all(self) -> dict[str, KeepersRecord]:
        return self._store.records(KeepersRecord)

    def save(self, record: KeepersRecord) -> KeepersRecord:
        if record != self._store.record(KeepersRecord, record.site):
            self._store.commit(Commit(records=(record,)))
        return record

    def drop(self, site: str) -> None:
        self._store.commit(Commit(records=(forget(KeepersRecord, site),)))
