"""State on its way between sites, through relays, beside what the links can carry.

Every stop is a process. Where network namespaces are allowed, each has one, and neighbours are joined by cables of a
bandwidth that the kernel keeps; elsewhere they share the loopback interface, and there is no bandwidth to compare with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from lab.bench.report import Figure
from lab.testbed.layout import HOME, Layout, LayoutLink
from lab.testbed.links import Can, NamespaceLinks, capabilities

MBPS = 1_000.0
SIZES_MB, QUICK_SIZES_MB = (16, 128, 1_000), (16, 64)
RELAYS, QUICK_RELAYS = (1, 2, 4), (1, 4)
TIMEOUT_S = 600.0
DATA = f"state over relays, links of {MBPS:g} Mbit/s"


def figures(quick: bool, progress: Callable[[str], None]) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """Figures, and what has to be said about them."""
    can, why = capabilities()
    limited = Can.BANDWIDTH in can
    found: list[Figure] = []
    for size in QUICK_SIZES_MB if quick else SIZES_MB:
        for relays in QUICK_RELAYS if quick else RELAYS:
            progress(f"{size} MB over {relays} relays")
            seconds, sent = _moved(size, relays, can if limited else None)
            used = sent * 8 / 1e6 / seconds
            found.append(Figure.of(f"{size} MB over {relays} relays", "Mbit/s", [used]))
            if limited:
                found.append(
                    Figure.of(f"{size} MB over {relays} relays: share of the bandwidth", "%", [100 * used / MBPS])
                )
    notes = () if limited else (f"no bandwidth could be set for the links ({why}); rates are those of this machine",)
    return tuple(found), notes


def _moved(size_mb: int, relays: int, can: Can | None) -> tuple[float, int]:
    """Seconds and bytes."""
    names = [HOME, *(f"relay-{n}" for n in range(1, relays + 1)), "sink"]
    wires = tuple(LayoutLink(a, b, 0.0, MBPS) for a, b in pairwise(names))
    with ExitStack() as stack:
        network = None
        if can is not None:
            network = NamespaceLinks(Layout({name: (name,) for name in names}, wires), can)
            stack.callback(network.close)
        addresses: dict[str, str] = {}
        for name in names[:-1]:
            told: dict[str, Any] = {
                "role": "source" if name == HOME else "relay",
                "name": name,
                "size": size_mb * 1_000_000,
            }
            addresses = {**addresses, name: _started(stack, network, told | {"contacts": addresses})["address"]}
        way = [names[-2], *reversed(names[:-2])]
        told = {"role": "sink", "name": "sink", "contacts": addresses, "way": way, "timeout_s": TIMEOUT_S}
        found = _started(stack, network, told)
    if not found["done"]:
        raise TimeoutError(f"{size_mb} MB did not arrive: {found['error']}")
    return float(found["seconds"]), int(found["bytes"])


def _started(stack: ExitStack, network: NamespaceLinks | None, told: dict[str, Any]) -> dict[str, Any]:
    """Starts a process of the chain; gives what it says first."""
    told["host"] = "127.0.0.1" if network is None else network.address(told["name"])
    command = [sys.executable, "-m", "lab.bench.machines.chain", json.dumps(told)]
    if network is not None:
        command = network.command(told["name"], command)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{told['name']} of the chain did not start")
    found: dict[str, Any] = json.loads(line)
    return found
