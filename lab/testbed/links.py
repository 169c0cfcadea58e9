"""Wires: network namespaces, one for each host, joined by cables as the topology says. They need root on Linux.

Each host has one address; between two hosts that are neighbours there is a cable (a veth pair) with the latency,
bandwidth and loss of its link, as far as the kernel can do that (`tc`). Hosts that are not neighbours reach each other
over those in between. Nothing leads out: no host can reach the machine's own network.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto

from lab.testbed.layout import Layout, LayoutLink
from lab.testbed.proxies import Proxies
from meander.model.errors import InputError

LEAST_BURST = 16_000


class Can(Flag):
    """The emulation that the network here allows."""

    NOTHING = 0
    CUT = auto()
    BANDWIDTH = auto()
    LATENCY = auto()
    """And loss."""


@dataclass(frozen=True, slots=True)
class _Cable:
    """The two ends of a link: interfaces and their addresses."""

    link: LayoutLink
    interfaces: tuple[str, str]
    addresses: tuple[str, str]


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise InputError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done


def capabilities() -> tuple[Can, str]:
    """The possible emulation here, and the reasons for its limits."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return Can.NOTHING, "network namespaces need root on Linux"
    if shutil.which("ip") is None:
        return Can.NOTHING, "network namespaces need the command `ip` (package iproute2)"
    name = f"meander-try-{secrets.token_hex(2)}"
    if _run("ip", "netns", "add", name, check=False).returncode:
        return Can.NOTHING, "this machine does not allow network namespaces"
    try:
        _run("ip", "-n", name, "link", "add", "name", "try0", "type", "veth", "peer", "name", "try1")
        if _tc(name, "try0", "netem", "delay", "1ms", "rate", "100mbit"):
            return Can.CUT | Can.BANDWIDTH | Can.LATENCY, ""
        if _tc(name, "try0", "tbf", "rate", "100mbit", "burst", "32kb", "latency", "50ms"):
            return (
                Can.CUT | Can.BANDWIDTH,
                "this kernel has no `tc netem`: the test bed delays what goes over links, and loses nothing",
            )
        return Can.CUT, "this kernel has neither `tc netem` nor `tc tbf`: links are as fast as the machine"
    except InputError as error:
        return Can.NOTHING, f"cables cannot be laid here: {error}"
    finally:
        _run("ip", "netns", "del", name, check=False)


def _tc(namespace: str, interface: str, *discipline: str) -> bool:
    command = ("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *discipline)
    return shutil.which("tc") is not None and _run(*command, check=False).returncode == 0


class NamespaceLinks:
    """The namespaces of one test bed. `close` removes everything."""

    def __init__(
        self, layout: Layout, can: Can, loss_percent: float = 0.0, ports: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """`loss_percent` is for links that have none of their own; `ports` are those of each host that have proxies."""
        self.layout, self.can, self.loss_percent = layout, can, loss_percent
        self.proxies: Proxies | None = None
        """The proxies that connections between hosts go through, where there are ports."""
        self._mark = secrets.token_hex(2)
        self._numbers = {host: n for n, host in enumerate(layout.hosts, 1)}
        self._cables: dict[frozenset[str], _Cable] = {}
        self._cut: set[tuple[str, str]] = set()
        try:
            self._lay()
            if ports is not None:
                self.proxies = self._proxied(ports)
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------- looking

    def namespace(self, host: str) -> str:
        return f"meander-{self._mark}-{self._numbers[host]}"

    def address(self, host: str) -> str:
        return f"10.77.0.{self._numbers[host]}"

    def gate(self, host: str) -> str:
        """Where proxies find a host: its address leads to the proxies."""
        return f"10.79.0.{self._numbers[host]}"

    def command(self, host: str, command: Iterable[str]) -> list[str]:
        """The command that runs another one on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    # ---------------------------------------------------------------- changing

    def cut(self, a: str, b: str) -> None:
        """Pulls a cable; traffic that can take another route does."""
        self._cut.add((a, b))
        self._plug(a, b, "down")

    def mend(self, a: str, b: str) -> None:
        self._cut -= {(a, b), (b, a)}
        self._plug(a, b, "up")

    def slow(self, a: str, b: str, bandwidth_mbps: float | None) -> None:
        """Gives a cable another bandwidth, or with None its own again."""
        cable = self._cable(a, b)
        self._shape(cable, cable.link.bandwidth_mbps if bandwidth_mbps is None else bandwidth_mbps)

    def close(self) -> None:
        if self.proxies is not None:
            self.proxies.close()
        for host in self.layout.hosts:
            _run("ip", "netns", "del", self.namespace(host), check=False)

    # ---------------------------------------------------------------- laying

    def _lay(self) -> None:
        for host in self.layout.hosts:
            name = self.namespace(host)
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            for each in (self.address(host), self.gate(host)):
                _run("ip", "-n", name, "addr", "add", f"{each}/32", "dev", "lo")
            _run("ip", "netns", "exec", name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, link in enumerate(self.layout.links):
            self._lay_cable(number, link)
        self._route()

    def _proxied(self, ports: Mapping[str, Sequence[int]]) -> Proxies:
        for host in self.layout.hosts:
            for other in (o for o in self.layout.hosts if o != host):
                _run("ip", "-n", self.namespace(host), "addr", "add", f"{self.address(other)}/32", "dev", "lo")
        usual = (lambda a, b: 0.0) if Can.LATENCY in self.can else self._latency_s
        return Proxies(list(self.layout.hosts), self.namespace, self.address, self.gate, ports, usual)

    def _latency_s(self, a: str, b: str) -> float:
        """One way, along the path of least latency."""
        hops, at, found_ms = self.layout.next_hops(), a, 0.0
        while at != b:
            found_ms += self._cable(at, hops[at, b]).link.latency_ms
            at = hops[at, b]
        return found_ms / 1000

    def _lay_cable(self, number: int, link: LayoutLink) -> None:
        ends = (f"w{number}a", f"w{number}b")
        base = f"10.78.{number // 64}.{number % 64 * 4}".rsplit(".", 1)
        addresses = tuple(f"{base[0]}.{int(base[1]) + k}" for k in (1, 2))
        a, b = (self.namespace(host) for host in link.ends)
        _run("ip", "-n", a, "link", "add", "name", ends[0], "type", "veth", "peer", "name", ends[1], "netns", b)
        cable = self._cables[frozenset(link.ends)] = _Cable(link, ends, (addresses[0], addresses[1]))
        for namespace, end, address in zip((a, b), ends, addresses, strict=True):
            _run("ip", "-n", namespace, "addr", "add", f"{address}/30", "dev", end)
            _run("ip", "-n", namespace, "link", "set", end, "up")
        self._shape(cable, link.bandwidth_mbps)

    def _shape(self, cable: _Cable, bandwidth_mbps: float) -> None:
        for host, end in zip(cable.link.ends, cable.interfaces, strict=True):
            limited = math.isfinite(bandwidth_mbps)
            rate = f"{max(0.01, bandwidth_mbps if limited else 0):g}mbit"
            if Can.LATENCY in self.can:
                parts = ["netem", "delay", f"{cable.link.latency_ms:g}ms", "limit", "100000"]
                parts += ["rate", rate] if limited else []
                loss = self.loss_percent if cable.link.loss_percent is None else cable.link.loss_percent
                parts += ["loss", f"{loss:g}%"] if loss else []
                _tc(self.namespace(host), end, *parts)
            elif Can.BANDWIDTH in self.can and limited:
                burst = max(LEAST_BURST, round(bandwidth_mbps * 1e6 / 8 * 0.01))
                _tc(self.namespace(host), end, "tbf", "rate", rate, "burst", str(burst), "latency", "400ms")
            elif Can.BANDWIDTH in self.can:
                _run("tc", "-n", self.namespace(host), "qdisc", "del", "dev", end, "root", check=False)

    def _cable(self, a: str, b: str) -> _Cable:
        found = self._cables.get(frozenset((a, b)))
        if found is None:
            raise InputError(f"there is no wire between {a!r} and {b!r}")
        return found

    def _plug(self, a: str, b: str, state: str) -> None:
        cable = self._cable(a, b)
        for host, end in zip(cable.link.ends, cable.interfaces, strict=True):
            _run("ip", "-n", self.namespace(host), "link", "set", end, state)
        self._route()

    def _route(self) -> None:
        """Every host gets a way to every other, over links that are not cut."""
        hops = self.layout.next_hops(self._cut)
        for host in self.layout.hosts:
            for goal in self.layout.hosts:
                if goal == host:
                    continue
                where = ["ip", "-n", self.namespace(host), "route"]
                hop = hops.get((host, goal))
                for address in (self.address, self.gate):
                    if hop is None:
                        _run(*where, "del", f"{address(goal)}/32", check=False)
                        continue
                    cable = self._cable(host, hop)
                    via = cable.addresses[cable.link.ends.index(hop)]
                    _run(*where, "replace", f"{address(goal)}/32", "via", via, "src", address(host))
