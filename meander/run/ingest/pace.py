"""The pace of ingest: it rests until what it took in last has been read, and then for twice as long as that took.

So the first tuple after a pause goes through at once, and batches form by themselves under load: whatever arrives while
a step is at work is one batch for the next. A reader that has not read in one interval is not waited for again before
it has caught up, so that a paused query holds up no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelAppend
from meander.run.store.store import Store
from meander.run.store.wakeups import CONSUMED, OTHER

READ = CONSUMED | OTHER
"""The changes by which something may have been read: its channel may also be gone."""
REST = 2
"""The rest, in times that what was taken in last took: a host that keeps up works for a third of the time at most."""
LONGEST_REST_S = 0.01
"""The longest rest once everything has been read."""


class Pace:
    """The rests between the ticks of one thread."""

    def __init__(self, store: Store, stopping: threading.Event, longest_s: float) -> None:
        """`longest_s` is the time for which it waits for readers."""
        self._store, self._stopping, self._longest_s = store, stopping, longest_s
        self._watched: list[tuple[ChannelId, int]] = []
        """One channel of each append, with the position up to which it will have been read."""
        self._away: dict[ChannelId, int] = {}
        """Channels whose readers were waited for in vain, with the position that they had not reached."""

    def took_in(self, appends: Iterable[ChannelAppend]) -> None:
        """Takes note of what was committed just now."""
        channels = [ChannelId(int(a.channels[-1])) for a in appends if a.table is not None]
        self._away = {c: tail for c, tail in self._away.items() if not self._is_read(c, tail)}
        self._watched = [(c, self._store.exchange.tail(c)) for c in channels if c not in self._away]

    def rest(self, began: float) -> None:
        """Rests after a tick that began at a time of the monotonic clock and took something in."""
        deadline = began + self._longest_s
        while not self._stopping.is_set() and (left := deadline - time.monotonic()) > 0:
            seen = self._store.wakeups.count(READ)
            if all(self._is_read(*each) for each in self._watched):
                break
            self._store.wakeups.wait(seen, left, READ)
        else:
            self._away |= {c: tail for c, tail in self._watched if not self._is_read(c, tail)}
        self._stopping.wait(min(LONGEST_REST_S, REST * (time.monotonic() - began)))

    def _is_read(self, channel: ChannelId, tail: int) -> bool:
        try:
            return self._store.exchange.start(channel) >= tail
        except InputError:  # the channel ended meanwhile
            return True
