"""Load for a coordinator, from a process of its own: devices that change base stations, watchers, and people who look.

python -m lab.load.service < JSON prints one JSON object. Requests are sent when they are due, whether earlier
ones are answered or not; a request that had to wait for a connection is late from when it was due.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

CONNECTIONS, LOOKERS = 64, 4
"""Of devices, and of people."""
LOOKS_PER_S = 10.0
LOOKS = (
    "/queries",
    "/health",
    "/topology",
    "/placements",
    "/deployment",
    "/reconfigurations?limit=20",
    "/events?limit=50",
)
CATCH_UP_S = 20.0
_ID = re.compile(rb"id: [0-9a-z]+-(\d+)\n")


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """The requests to make, and their targets."""

    address: str
    token: str
    seconds: float
    handovers_per_s: float
    """Each is two events: a link goes, a link comes."""
    watchers: int
    links: dict[str, str]
    """The base station of each device at the beginning."""
    stations: list[str]
    seed: int = 0


@dataclass(slots=True)
class ServiceAnswers:
    """The answers."""

    sent_events: int = 0
    refused: list[str] = field(default_factory=list)
    change_ms: list[float] = field(default_factory=list)
    look_ms: list[float] = field(default_factory=list)
    watched: int = 0
    """Watchers that saw every message from their first to the last."""
    gaps: int = 0
    messages: int = 0
    links: dict[str, str] = field(default_factory=dict)
    """The base station of each device at the end."""


class _Connections:
    """A few connections that are kept open; a request takes one that is free."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        self.host, self.port, self.token = parts.hostname or "", parts.port or 80, token
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self, count: int) -> None:
        for _ in range(count):
            self._free.put_nowait(await asyncio.open_connection(self.host, self.port))

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        lines = (
            f"{method} /api/v1{path} HTTP/1.1",
            f"Host: {self.host}",
            f"Authorization: Bearer {self.token}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        )
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        reader, writer = await self._free.get()
        try:
            data = b"" if body is None else json.dumps(body).encode()
            writer.write(self.head(method, path, len(data)) + data)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE).group(1))  # type: ignore[union-attr]
            return int(head.split(b" ", 2)[1]), await reader.readexactly(length)
        finally:
            self._free.put_nowait((reader, writer))


class _Watcher:
    """A client of the live stream that checks that nothing is missing."""

    def __init__(self, connections: _Connections) -> None:
        self.connections = connections
        self.first: int | None = None
        self.last = 0
        self.gaps = 0
        self.count = 0

    async def watch(self) -> None:
        reader, writer = await asyncio.open_connection(self.connections.host, self.connections.port)
        writer.write(self.connections.head("GET", "/stream"))
        left = b""
        while data := await reader.read(65536):
            left += data
            end = left.rfind(b"\n\n")
            if end < 0:
                continue
            whole, left = left[: end + 2], left[end + 2 :]
            self.gaps += whole.count(b"event: reset\n")
            for match in _ID.finditer(whole):
                self._see(int(match.group(1)))

    def _see(self, number: int) -> None:
        if self.first is None:
            self.first = number
        elif number != self.last + 1:
            self.gaps += 1
        self.last = number
        self.count += 1


async def put_under(load: ServiceLoad) -> ServiceAnswers:
    """Does everything for as long as it should."""
    felt = ServiceAnswers(links=dict(load.links))
    connections, lookers = (_Connections(load.address, load.token) for _ in range(2))
    await connections.open(CONNECTIONS)
    await lookers.open(LOOKERS)
    turns = {device: asyncio.Lock() for device in load.links}
    watchers = [_Watcher(connections) for _ in range(load.watchers)]
    watching = [asyncio.create_task(w.watch()) for w in watchers]
    await asyncio.sleep(1.0)
    rng = random.Random(load.seed)
    asked: set[asyncio.Task[None]] = set()
    devices = sorted(load.links)
    begun = time.perf_counter()
    changes = round(load.seconds * load.handovers_per_s)
    due = [(n / load.handovers_per_s, "change") for n in range(changes)]
    due += [(n / LOOKS_PER_S, "look") for n in range(round(load.seconds * LOOKS_PER_S))]
    turn = 0
    for at_s, what in sorted(due):
        await asyncio.sleep(max(0.0, begun + at_s - time.perf_counter()))
        if what == "change":
            device = devices[turn % len(devices)]
            turn += 1
            work = _hand_over(connections, turns[device], device, rng, load, felt, begun + at_s)
        else:
            work = _look(lookers, rng.choice(LOOKS), felt, begun + at_s)
        task = asyncio.create_task(work)
        asked.add(task)
        task.add_done_callback(asked.discard)
    await asyncio.gather(*asked)
    await _catch_up(connections, watchers)
    for task in watching:
        task.cancel()
    felt.watched = sum(w.gaps == 0 and w.first is not None for w in watchers)
    felt.gaps = sum(w.gaps for w in watchers)
    felt.messages = max((w.count for w in watchers), default=0)
    return felt


async def _hand_over(
    connections: _Connections,
    turn: asyncio.Lock,
    device: str,
    rng: random.Random,
    load: ServiceLoad,
    felt: ServiceAnswers,
    due: float,
) -> None:
    """A device goes to another base station: both events in one request, so that it is never without a way.

    It moves on when the coordinator knows where it is.
    """
    async with turn:
        old = felt.links[device]
        new = rng.choice([s for s in load.stations if s != old])
        events = [
            {"event": "link_removed", "source": device, "target": old},
            {"event": "link_added", "source": device, "target": new, "latency_ms": 2},
        ]
        felt.sent_events += 2
        status, body = await connections.ask("POST", "/events", {"events": events})
        felt.change_ms.append((time.perf_counter() - due) * 1000)
        if status == 200:
            felt.links[device] = new
        else:
            felt.refused.append(f"{status}: {body[:200].decode()}")


async def _look(connections: _Connections, path: str, felt: ServiceAnswers, due: float) -> None:
    status, body = await connections.ask("GET", path)
    felt.look_ms.append((time.perf_counter() - due) * 1000)
    if status != 200:
        felt.refused.append(f"{path} {status}: {body[:200].decode()}")


async def _catch_up(connections: _Connections, watchers: list[_Watcher]) -> None:
    """Lets watchers see the last events, for as long as one second's worth of news is not theirs."""
    await asyncio.sleep(1.0)
    _, body = await connections.ask("GET", "/metrics")
    found = re.search(rb"meander_live_messages_total ([\d.e+]+)", body)
    goal = int(float(found.group(1))) if found else 0
    deadline = time.monotonic() + CATCH_UP_S
    while any(w.last < goal for w in watchers) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    for watcher in watchers:
        watcher.gaps += watcher.last < goal


if __name__ == "__main__":
    given = ServiceLoad(**json.loads(sys.stdin.read()))
    sys.stdout.write(json.dumps(asdict(asyncio.run(put_under(given)))))
