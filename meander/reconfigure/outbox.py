"""What sites are owed: effects of changes that are decided, changes that were taken back, ways, and who is where.

Each is told again and again until the site has said that it has it. A site that this coordinator has not spoken to yet
is greeted first, and told to take back what nobody knows of any more.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from meander.model.errors import InputError
from meander.reconfigure.fleet import ClientPool
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME

_log = logging.getLogger(__name__)
AGAIN_S, LONGEST_S = 0.2, 5.0


class Outbox:
    """Tells sites what they are owed, from a pool's threads."""

    def __init__(
        self,
        switchboard: ClientPool,
        world: Mapping[str, Any],
        under_way: Callable[[], Iterable[int]],
        at_home: Callable[[Mapping[str, Any]], None],
        concerned: Callable[[], Collection[str]],
    ) -> None:
        """`world` are the streams and sinks; `under_way` the changes that sites may have shares of.

        `at_home` is told who is where, for the coordinator's own host. `concerned` are the sites that run or relay
        something: others are spoken to when there is something for them to do.
        """
        self.switchboard, self._world = switchboard, world
        self._under_way, self._at_home, self._concerned = under_way, at_home, concerned
        self._seen: dict[str, tuple[str, str]] = {}
        self._peers_of: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._effects: dict[str, dict[int, Mapping[str, Any]]] = {}
        self._aborts: dict[str, set[int]] = {}
        self._ways: dict[str, dict[str, Any]] = {}
        self._turns = itertools.count(1)
        self._peers: dict[str, Any] = {}
        self._greeted: set[str] = set()
        self._joined: dict[str, int] = {}
        """How often each site has joined: what one was told that has been there before counts for nothing."""
        self._tasks: dict[str, Future[None]] = {}
        self._due: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        """What each site said about itself when it was greeted."""

    # ---------------------------------------------------------------- owing

    def owe_effect(self, site: str, number: int, told: Mapping[str, Any]) -> None:
        with self._lock:
            self._effects.setdefault(site, {})[number] = told
            self._due.pop(site, None)

    def owe_abort(self, site: str, number: int) -> None:
        with self._lock:
            self._aborts.setdefault(site, set()).add(number)
            self._due.pop(site, None)

    def owe_ways(self, site: str, channels: Mapping[str, Any]) -> None:
        with self._lock:
            self._ways.setdefault(site, {}).update(channels)
            self._due.pop(site, None)

    def is_owed(self, site: str) -> bool:
        """Whether a site has to hear of the end of something before it can begin something new."""
        with self._lock:
            return bool(self._effects.get(site) or self._aborts.get(site) or self._ways.get(site))

    def has_effect(self, number: int) -> bool:
        """Whether some site has not said yet that a change has happened there."""
        with self._lock:
            return any(number in owed for owed in self._effects.values())

    # ---------------------------------------------------------------- telling

    def tick(self, pool: Executor) -> None:
        """Begins to tell what is due."""
        now = time.monotonic()
        fleet = self.switchboard.fleet
        addresses, brokers = dict(fleet.addresses()), fleet.brokers()
        seen = {site: (address, brokers.get(site, "")) for site, address in addresses.items()}
        if seen != self._seen:
            self._seen, self._peers_of = seen, {}
            self._at_home(self.switchboard.peers_of(HOME))
        concerned = self._concerned()
        for site in addresses:
            if site not in concerned and not self.is_owed(site):
                continue
            task = self._tasks.get(site)
            if (task is not None and not task.done()) or self._due.get(site, 0.0) > now or not self._is_due(site):
                continue
            self._tasks[site] = pool.submit(self._tell, site)

    def _is_due(self, site: str) -> bool:
        with self._lock:
            owed = self._effects.get(site) or self._aborts.get(site) or self._ways.get(site)
            return bool(owed) or site not in self._greeted or self._peers.get(site) != self._told(site)

    def _told(self, site: str) -> Any:
        known = self._peers_of  # another one when addresses have changed: what is found now belongs to this one
        found = known.get(site)
        if found is None:
            found = known[site] = self.switchboard.peers_of(site)
        return found

    def introduce(self, site: str) -> None:
        """Sees to it that a site knows streams, sinks and the others; raises when it cannot be told."""
        told, joined = self._told(site), self._joined.get(site)
        if self._peers.get(site) != told:
            self.switchboard.order(site, "peers", {"peers": told})
            self.switchboard.order(site, "world", self._world)
            with self._lock:
                if self._joined.get(site) == joined:
                    self._peers[site] = told

    def forget(self, site: str) -> None:
        """A site has joined anew: it is greeted again."""
        with self._lock:
            self._joined[site] = self._joined.get(site, 0) + 1
            self._greeted.discard(site)
            self._peers.pop(site, None)
            self._due.pop(site, None)

    def _tell(self, site: str) -> None:
        try:
            self._tell_all(site)
            self._pauses.pop(site, None)
        except AwayError:
            pause = min(LONGEST_S, 2 * self._pauses.get(site, AGAIN_S / 2))
            self._pauses[site], self._due[site] = pause, time.monotonic() + pause
        except InputError as error:
            _log.warning("site %s refused an order: %s", site, error)
            self._due[site] = time.monotonic() + LONGEST_S
        except Exception:
            _log.exception("telling site %s failed; it is tried again", site)
            self._due[site] = time.monotonic() + LONGEST_S

    def _tell_all(self, site: str) -> None:
        order, joined = self.switchboard.order, self._joined.get(site)
        self.introduce(site)
        with self._lock:
            effects, aborts = dict(self._effects.get(site, {})), set(self._aborts.get(site, ()))
            ways = dict(self._ways.get(site, {}))
        if site not in self._greeted:
            answer = order(site, "hello", {})
            self.facts[site] = answer
            known = {*effects, *self._under_way()}
            aborts |= {int(n) for n in answer["shares"] if int(n) not in known}
        for number, told in sorted(effects.items()):
            order(site, "effect", {"number": number, **told})
            with self._lock:
                self._effects[site].pop(number, None)
        for number in sorted(aborts):
            order(site, "abort", {"number": number})
            with self._lock:
                self._aborts.get(site, set()).discard(number)
        if ways:
            order(site, "ways", {"channels": ways, "turn": next(self._turns)})
            with self._lock:
                left = self._ways.get(site, {})
                self._ways[site] = {c: w for c, w in left.items() if ways.get(c) != w}
        with self._lock:
            if self._joined.get(site) == joined:
                self._greeted.add(site)
