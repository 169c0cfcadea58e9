"""State on its way along a chain of hosts, by the transport that sites use: the new place fetches it through relays.

Every stop is a process. Where network namespaces are allowed, each has one, and neighbours are joined by cables of a
bandwidth that the kernel keeps; elsewhere they share the loopback interface, as fast as the machine is.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from lab.testbed.layout import HOME, Layout, LayoutLink
from lab.testbed.links import Can, NamespaceLinks, capabilities

TIMEOUT_S = 600.0


class Forwarding(Enum):
    """The way of state from the first stop to a later one."""

    PIPELINED = "migration query"
    """The last stop asks for it through all others, which pass the state on."""
    WHOLE = "store and forward"
    """Each stop takes all of it from the one before it, then the next one begins."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A transfer from its order until the last stop has committed all of it."""

    seconds: float
    bytes: int
    """The bytes that crossed the last link."""


class Chain:
    """Stops in a row; the first one is where state comes from."""

    def __init__(self, stops: dict[str, subprocess.Popen[str]], network: NamespaceLinks | None) -> None:
        self._stops, self._network, self._transfers = stops, network, 0
        self.bytes = self._rows = 0
        """The size of the state at the first stop."""
        addresses = {name: _heard(process, name)["address"] for name, process in stops.items()}
        for name in stops:
            self._ask(name, do="meet", addresses={n: a for n, a in addresses.items() if n != name})

    def limit(self, mbps: float) -> None:
        """Gives every cable a bandwidth, where that can be done."""
        if self._network is not None:
            for a, b in pairwise(self._stops):
                self._network.slow(a, b, mbps)

    def fill(self, size_bytes: int) -> None:
        """Puts state of about so many bytes at the first stop, instead of its own."""
        found = self._ask(HOME, do="fill", bytes=size_bytes)
        self.bytes, self._rows = int(found["bytes"]), int(found["rows"])

    def moved(self, intermediates: int, forwarding: Forwarding = Forwarding.PIPELINED) -> Moved:
        """Takes the state over so many stops to the one behind them; all of it has to arrive."""
        names = list(self._stops)[: intermediates + 2]
        fetches = list(pairwise(names)) if forwarding is Forwarding.WHOLE else [(*names,)]
        for name in names[1:]:
            self._ask(name, do="expect", number=self._transfers + 1)
        sent = 0
        started = time.perf_counter()
        for stops in fetches:
            *path, sink = stops
            self._transfers += 1
            found = self._ask(sink, do="pull", number=self._transfers, path=path[::-1], timeout_s=TIMEOUT_S)
            if not found["done"] or found["rows"] != self._rows:
                raise RuntimeError(f"{found['rows']:,} of {self._rows:,} rows arrived at {sink}: {found['error']}")
            sent = int(found["sent"])
        return Moved(time.perf_counter() - started, sent)

    def _ask(self, name: str, **command: Any) -> dict[str, Any]:
        process = self._stops[name]
        assert process.stdin is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        return _heard(process, name)


@contextmanager
def chain(intermediates: int, mbps: float) -> Iterator[Chain]:
    """A chain with so many stops between its first and its last."""
    names = [HOME, *(f"relay-{n}" for n in range(1, intermediates + 1)), "sink"]
    with ExitStack() as stack:
        network = None
        can, _ = _machine()
        if Can.BANDWIDTH in can:
            wires = tuple(LayoutLink(a, b, 0.0, mbps) for a, b in pairwise(names))
            network = NamespaceLinks(Layout({name: (name,) for name in names}, wires), can)
            stack.callback(network.close)
        yield Chain({name: _started(stack, network, name) for name in names}, network)


def is_limited() -> bool:
    """Whether cables have a bandwidth here."""
    return Can.BANDWIDTH in _machine()[0]


def remarks() -> tuple[str, ...]:
    """Remarks on the links here."""
    if is_limited():
        return ()
    return (f"no bandwidth could be set for the links ({_machine()[1]}); state moves as fast as this machine can",)


@functools.cache
def _machine() -> tuple[Can, str]:
    return capabilities()


def _started(stack: ExitStack, network: NamespaceLinks | None, name: str) -> subprocess.Popen[str]:
    host = "127.0.0.1" if network is None else network.address(name)
    command = [sys.executable, "-m", "lab.testbed.chain_stop", name, host]
    if network is not None:
        command = network.command(name, command)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(_ended, process)
    return process


def _ended(process: subprocess.Popen[str]) -> None:
    """Its input ends, and it removes its files."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        process.wait(10.0)
    except (subprocess.TimeoutExpired, OSError):
        process.kill()
        process.wait()
    process.stdout.close()


def _heard(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{name} of the chain ended; what it said is above")
    found: dict[str, Any] = json.loads(line)
    return found
