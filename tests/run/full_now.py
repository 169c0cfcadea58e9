"""A disk that is full now and then, for tests."""

from __future__ import annotations

from collections.abc import Callable

from meander.run.store.commit import Commit, CommitResult
from meander.run.store.journal import DiskFullError
from meander.run.store.store import Store


class FullNow:
    """Lets there be no room for random commits; nothing else happens."""

    def __init__(self, chance: Callable[[], float], share: float) -> None:
        """`chance` gives numbers from 0 to 1."""
        self.chance, self.share, self.refused = chance, share, 0
        self.commit = Store.commit

    def commits(self, store: Store, change: Commit) -> CommitResult:
        if self.chance() < self.share:
            self.refused += 1
            raise DiskFullError("no room")
        return self.commit(store, change)
