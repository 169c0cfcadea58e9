"""Orders about replicas: to sites over the network, to the coordinator's own host in process; repeated until heard."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from meander.model.errors import InputError
from meander.reconfigure.driver.fleet import ClientPool
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)
AGAIN_S = 2.0
THREADS = 8
Own = Mapping[str, Callable[[Mapping[str, Any]], Any]]


class ReplicaOrders:
    """One thread gives them."""

    def __init__(self, clients: ClientPool, own: Own) -> None:
        """`own` carries out those to the coordinator's own host."""
        self._clients, self._own = clients, own
        self._heard: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._tasks: dict[tuple[str, str], Future[None]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "replica orders")

    def ask(self, site: str, action: str, body: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """Gives an order at once."""
        if site == HOME:
            return self._own[action](body)
        return self._clients.order(site, action, body, timeout_s)

    def tell(self, site: str, action: str, body: Mapping[str, Any]) -> None:
        """Sees to it that a site hears an order, unless it was the last of its kind that it heard."""
        key = site, action
        task = self._tasks.get(key)
        if self._heard.get(key) == body or (task is not None and not task.done()):
            return
        if time.monotonic() >= self._due.get(key, 0.0):
            self._tasks[key] = self._pool.submit(self._tell, key, body)

    def _tell(self, key: tuple[str, str], body: Mapping[str, Any]) -> None:
        try:
            self.ask(*key, body)
            self._heard[key] = body
        except (AwayError, InputError, JournalError) as error:
            _log.info("site %s did not take the order %s: %s", *key, error)
            self._due[key] = time.monotonic() + AGAIN_S
        except Exception:
            _log.exception("site %s did not take the order %s", *key)
            self._due[key] = time.monotonic() + AGAIN_S

    def forget(self, site: str) -> None:
        """A site has started again: it is told again."""
        for key in [key for key in self._heard if key[0] == site]:
            self._heard.pop(key, None)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
