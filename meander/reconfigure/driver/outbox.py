"""The outbox: messages that sites must get, told until they are heard, and the directory of peers.

They are effects of changes that are decided, aborts, and new routes. A site that this coordinator has not spoken to yet
shakes hands first, and is told to abort what nobody knows of any more.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from meander.deploy.fragments import Channel
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.locks import lock
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.driver.fleet import ClientPool
from meander.reconfigure.messages import (
    Abort,
    Answer,
    Done,
    Effect,
    Message,
    Positions,
    Prepare,
    Reroute,
    answer_to,
)
from meander.reconfigure.part import Route
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME, end_of_proofs

_log = logging.getLogger(__name__)
AGAIN_S, LONGEST_S = 0.2, 5.0


class Outbox:
    """Sends sites what waits for them, from a pool's threads."""

    def __init__(
        self,
        clients: ClientPool,
        world: Mapping[str, Any],
        under_way: Callable[[], Iterable[int]],
        own: Callable[[Mapping[str, Any]], None],
        concerned: Callable[[], Collection[str]],
    ) -> None:
        """`world` are the streams and sinks; `under_way` the changes that sites may take part in.

        `own` is told who is where, for the coordinator's own host. `concerned` are the sites that run or relay
        something: others are spoken to when there is something for them to do.
        """
        self.clients, self._world = clients, world
        self._under_way, self._own, self._concerned = under_way, own, concerned
        self._seen: dict[str, tuple[object, ...]] = {}
        self._peers_of: dict[str, Any] = {}
        self._lock = lock("outbox")
        self._effects: dict[str, dict[int, Positions]] = {}
        self._aborts: dict[str, set[int]] = {}
        self._routes: dict[str, dict[ChannelId, tuple[Channel, Route]]] = {}
        self._turns = itertools.count(1)
        self._peers: dict[str, Any] = {}
        self._shaken_hands: set[str] = set()
        self._joined: dict[str, int] = {}
        """How often each site has joined: what one was told that has been there before counts for nothing."""
        self._tasks: dict[str, Future[None]] = {}
        self._due: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        """The facts that each site gave about itself at its handshake."""

    # ---------------------------------------------------------------- what waits

    def add_effect(self, site: str, number: int, positions: Positions) -> None:
        with self._lock:
            self._effects.setdefault(site, {})[number] = positions
            self._due.pop(site, None)

    def add_abort(self, site: str, number: int) -> None:
        with self._lock:
            self._aborts.setdefault(site, set()).add(number)
            self._due.pop(site, None)

    def tell_routes(self, site: str, channels: Iterable[tuple[Channel, Route]]) -> None:
        with self._lock:
            self._routes.setdefault(site, {}).update((c.id, (c, route)) for c, route in channels)
            self._due.pop(site, None)

    def has_messages(self, site: str) -> bool:
        """Whether a site has to hear of the end of something before it can begin something new."""
        with self._lock:
            return bool(self._effects.get(site) or self._aborts.get(site) or self._routes.get(site))

    def has_effect(self, number: int) -> bool:
        """Whether some site has not said yet that a change has happened there."""
        with self._lock:
            return any(number in waiting for waiting in self._effects.values())

    # ---------------------------------------------------------------- telling

    def tick(self, pool: Executor) -> None:
        """Begins to tell what is due."""
        now = time.monotonic()
        fleet = self.clients.fleet
        addresses, brokers = dict(fleet.addresses()), fleet.brokers()
        until = end_of_proofs()
        seen: dict[str, tuple[object, ...]] = {
            site: (address, brokers.get(site, ""), fleet.key(site), fleet.protocol(site), until)
            for site, address in addresses.items()
        }
        seen |= dict.fromkeys(fleet.revoked(), ())
        if seen != self._seen:
            self._seen, self._peers_of = seen, {}
            self._own(self.clients.peers_of(HOME))
        concerned = self._concerned()
        for site in addresses:
            if site not in concerned and not self.has_messages(site):
                continue
            task = self._tasks.get(site)
            if (task is not None and not task.done()) or self._due.get(site, 0.0) > now or not self._is_due(site):
                continue
            self._tasks[site] = pool.submit(self._tell, site)

    def _is_due(self, site: str) -> bool:
        told = self._told(site)
        with self._lock:
            waiting = self._effects.get(site) or self._aborts.get(site) or self._routes.get(site)
            return bool(waiting) or site not in self._shaken_hands or self._peers.get(site) != told

    def _told(self, site: str) -> Any:
        known = self._peers_of  # another one when addresses have changed: what is found now belongs to this one
        found = known.get(site)
        if found is None:
            found = known[site] = self.clients.peers_of(site)
        return found

    def ask(self, site: str, message: Message) -> Answer:
        """A site's answer to a message; what it needs to know of others to prepare something, it is told before."""
        if isinstance(message, Prepare):
            self._tell_peers(site)
        return self._order(site, message)

    def _order(self, site: str, message: Message) -> Answer:
        answer: Answer = decode(answer_to(message), self.clients.order(site, message.ACTION, encode(message)))
        return answer

    def _tell_peers(self, site: str) -> None:
        """Sees to it that a site knows streams, sinks and the others; raises when it cannot be told."""
        told, joined = self._told(site), self._joined.get(site)
        if self._peers.get(site) != told:
            self.clients.order(site, "peers", {"peers": told})
            self.clients.order(site, "world", self._world)
            with self._lock:
                if self._joined.get(site) == joined:
                    self._peers[site] = told

    def forget(self, site: str) -> None:
        """A site has joined anew: there is another handshake."""
        with self._lock:
            self._joined[site] = self._joined.get(site, 0) + 1
            self._shaken_hands.discard(site)
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
        joined = self._joined.get(site)
        self._tell_peers(site)
        with self._lock:
            effects, aborts = dict(self._effects.get(site, {})), set(self._aborts.get(site, ()))
            routes = dict(self._routes.get(site, {}))
        if site not in self._shaken_hands:
            answer = self.clients.order(site, "hello", {})
            self.facts[site] = answer
            known = {*effects, *self._under_way()}
            aborts |= {int(n) for n in answer["changes"] if int(n) not in known}
        if effects:
            done = self._order(site, Effect(effects))
            with self._lock:
                for number in effects.keys() - _refused(site, done):
                    self._effects[site].pop(number, None)
        if aborts:
            self._order(site, Abort(tuple(sorted(aborts))))
            with self._lock:
                self._aborts.setdefault(site, set()).difference_update(aborts)
        if routes:
            turn = self.clients.fleet.epoch.number, next(self._turns)
            self._order(site, Reroute(tuple(routes.values()), turn))
            with self._lock:
                left = self._routes.get(site, {})
                self._routes[site] = {c: w for c, w in left.items() if routes.get(c) != w}
        with self._lock:
            if self._joined.get(site) == joined:
                self._shaken_hands.add(site)


def _refused(site: str, answer: Answer) -> set[int]:
    """Decided changes that a site could not let happen: it is told again."""
    refused = answer.refused if isinstance(answer, Done) else {}
    for number, reason in refused.items():
        _log.error("change %d, which is decided, could not happen at site %s: %s", number, site, reason)
    return set(refused)
