"""Locks by name, and the one order in which a thread may take them.

`ORDER` lists every lock of the program, outermost first: a thread that holds one takes only locks that stand further
down, so two threads never wait for each other. A lock costs what `threading` makes it cost. Where `MEANDER_CHECK_LOCKS`
is set, as in tests, each one refuses any other order. `docs/concepts/threads.md` says which thread owns what.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any, cast

CHECK = "MEANDER_CHECK_LOCKS"
"""The environment variable with which locks check their order."""

ORDER: tuple[str, ...] = (
    # membership, at the coordinator
    "standby",
    "replica supervisor",
    "audit",
    "fleet addresses",
    "members",
    "membership events",
    "membership store",
    "membership store reads",
    # changes of what runs
    "replicas",
    "site ingest",
    "agent",
    "outbox",
    "client pool",
    # tuples in and out
    "ingest",
    "delivery",
    "sink task",
    "publisher",
    "pulling",
    # state on its way
    "state replay",
    "pre-copy",
    "state pull",
    "state move",
    "state sink",
    # a step
    "slot step",
    "shared queue",
    "step lock turn",
    "rebind requests",
    "bindings",
    "resident state",
    "tiered plans",
    "prepared plans",
    "plan compiler",
    "session",
    "spark source",
    # what everything ends in
    "store",
    "journal sync",
    "routing",
    # nothing else is taken while one of these is held
    "amender stripe",
    "broker",
    "coordinator client",
    "event history",
    "failed logins",
    "fence",
    "flight client",
    "host totals",
    "http source",
    "http listener",
    "hub",
    "identity provider",
    "kafka connector",
    "latency",
    "membership client",
    "network keys",
    "newest results",
    "page sessions",
    "parts server",
    "path cache",
    "peers",
    "proofs",
    "refusals",
    "replication",
    "request numbers",
    "retries",
    "slot wake",
    "status file",
    "step measures",
    "tokens",
    "wake-ups",
)
"""Every lock, outermost first."""

SEVERAL: frozenset[str] = frozenset({"slot step", "amender stripe"})
"""Locks of which a thread may hold several at once: they are taken in order of their number, wherever that happens."""


class LockOrderError(AssertionError):
    """A thread took a lock that it may not take while it holds another one."""


_RANKS = {name: rank for rank, name in enumerate(ORDER)}
_checked = os.environ.get(CHECK) == "1"
_held = threading.local()
violations: list[str] = []
"""Each wrong order that was refused in this process: a thread in the background may have swallowed the error."""


def lock(name: str) -> threading.Lock:
    """A lock that one thread takes once."""
    return cast(threading.Lock, _CheckedLock(name, threading.Lock())) if _checked else threading.Lock()


def reentrant_lock(name: str) -> threading.RLock:
    """A lock that a thread may take again while it holds it."""
    if not _checked:
        return threading.RLock()
    return cast(threading.RLock, _CheckedReentrantLock(name, threading.RLock()))


def condition(name: str) -> threading.Condition:
    """A condition with a lock of its own."""
    return threading.Condition(reentrant_lock(name))


def taking(name: str) -> None:
    """Checks that this thread may take a lock of this name now."""
    if not _checked:
        return
    for outer in held():
        if _rank(outer) > _rank(name) or (outer == name and name not in SEVERAL):
            violations.append(f"'{name}' is taken while '{outer}' is held: it stands before it in locks.ORDER")
            raise LockOrderError(violations[-1])


def taken(name: str) -> None:
    """Remembers that this thread holds a lock of this name."""
    if _checked:
        held().append(name)


def given_back(name: str) -> None:
    """Forgets that this thread holds a lock of this name; it may be another thread that took it."""
    names = held() if _checked else []
    if names and names[-1] == name:
        names.pop()
    elif name in names:
        del names[len(names) - 1 - names[::-1].index(name)]


def held() -> list[str]:
    """The names of the locks that this thread holds, in the order in which it took them."""
    if not hasattr(_held, "names"):
        _held.names = []
    found: list[str] = _held.names
    return found


def _rank(name: str) -> int:
    try:
        return _RANKS[name]
    except KeyError:
        raise LockOrderError(f"'{name}' is not in locks.ORDER; add it where it belongs") from None


class _CheckedLock:
    """A lock that looks at the order before it is taken."""

    def __init__(self, name: str, inner: Any) -> None:
        _rank(name)
        self.name, self._inner = name, inner

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:  # a thread that does not wait makes nobody wait for ever
            taking(self.name)
        got: bool = self._inner.acquire(blocking, timeout)
        if got:
            taken(self.name)
        return got

    def release(self) -> None:
        self._inner.release()
        given_back(self.name)

    def locked(self) -> bool:
        found: bool = self._inner.locked()
        return found

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _CheckedReentrantLock(_CheckedLock):
    """The same for a lock that its owner may take again; a condition can be made of it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._inner._is_owned():
            return super().acquire(blocking, timeout)
        taken(self.name)
        got: bool = self._inner.acquire(blocking, timeout)
        return got

    def _is_owned(self) -> bool:
        found: bool = self._inner._is_owned()
        return found

    def _release_save(self) -> Any:
        names = held()
        names[:] = [n for n in names if n != self.name]
        return self._inner._release_save()

    def _acquire_restore(self, state: Any) -> None:
        self._inner._acquire_restore(state)
        held().extend([self.name] * state[0])
