"""Simulated sites over the real protocol: they join, are heard of, leave and come again, in a process of its own.

    python -m lab.load.sites < load.json > felt.json

Joins and departures are due at fixed times, whether earlier ones are answered or not; a request that had to wait is
late from when it was due.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from meander.membership.protocol import PROTOCOL

CONNECTIONS = 64
HEARTBEAT_S = 1.0
ENDING_S = 60.0
"""The time that the last answers may take."""


@dataclass(frozen=True, slots=True)
class SitesLoad:
    """The requests to make, and their targets."""

    address: str
    tokens: dict[str, str]
    """Of each site; its node has the same name."""
    neighbours: list[str]
    """Nodes to which sites link theirs."""
    seconds: float
    per_s: float
    """Joins a second, and as many departures."""


@dataclass(slots=True)
class SiteAnswers:
    """The answers."""

    join_ms: list[float] = field(default_factory=list)
    leave_ms: list[float] = field(default_factory=list)
    beat_ms: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    joining_s: float = 0.0
    """From when the first join was due until the last was answered."""
    leaving_s: float = 0.0
    present: list[str] = field(default_factory=list)
    """Sites that are there at the end."""
    most_at_once: int = 0


class _Connections:
    """A few connections that are kept open; a request takes one that is free."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self, count: int) -> None:
        for _ in range(count):
            self._free.put_nowait(await asyncio.open_connection(self._host, self._port))

    async def ask(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
        """The site's clock is read when a connection is free."""
        reader, writer = await self._free.get()
        stamped = None if body is None else {**body, "now_ms": time.time_ns() // 1_000_000}
        data = b"" if stamped is None else json.dumps(stamped).encode()
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + data)
            found = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", found, re.IGNORECASE).group(1))  # type: ignore[union-attr]
            return int(found.split(b" ", 2)[1]), json.loads(await reader.readexactly(length) or b"null")
        finally:
            self._free.put_nowait((reader, writer))


class _Site:
    """One simulated site; its joins and departures follow each other."""

    def __init__(self, name: str, neighbour: str, token: str, ways: _Connections, felt: SiteAnswers) -> None:
        self.name, self.neighbour, self.token, self.ways, self.felt = name, neighbour, token, ways, felt
        self.session: str | None = None
        self.turn = asyncio.Lock()
        self._path = "/sites/" + quote(name)

    async def join(self, due: float) -> None:
        async with self.turn:
            body = {
                "protocol": PROTOCOL,
                "site": self.name,
                "instance": "simulated",
                "version": "0.1.0",
                "address": f"grpc://{self.name}:1",
                "nodes": [{"name": self.name, "kind": "edge", "slots": 0, "links": [{"target": self.neighbour}]}],
            }
            status, answer = await self.ways.ask("POST", "/sites", self.token, body)
            self.felt.join_ms.append((time.perf_counter() - due) * 1000)
            if status == 201:
                self.session = answer["session"]
            else:
                self.felt.refused.append(f"join {status}: {answer.get('detail')}")

    async def leave(self, due: float) -> None:
        async with self.turn:
            status, answer = await self.ways.ask("DELETE", f"{self._path}?session={self.session}", self.token)
            self.felt.leave_ms.append((time.perf_counter() - due) * 1000)
            self.session = None
            if status != 200:
                self.felt.refused.append(f"leave {status}: {answer.get('detail')}")

    async def beat(self) -> None:
        async with self.turn:
            if self.session is None:
                return
            body = {"session": self.session, "protocol": PROTOCOL}
            begun = time.perf_counter()
            status, answer = await self.ways.ask("POST", f"{self._path}/heartbeats", self.token, body)
            self.felt.beat_ms.append((time.perf_counter() - begun) * 1000)
            if status != 200:
                self.felt.refused.append(f"heartbeat {status}: {answer.get('detail')}")


async def put_under(load: SitesLoad) -> SiteAnswers:
    """Joins from the first moment on; when half of the sites are there, one leaves for each that joins."""
    felt, ways = SiteAnswers(), _Connections(load.address)
    await ways.open(CONNECTIONS)
    names = sorted(load.tokens)
    sites = [
        _Site(name, load.neighbours[n % len(load.neighbours)], load.tokens[name], ways, felt)
        for n, name in enumerate(names)
    ]
    stay = len(sites) // 2
    asked: set[asyncio.Task[None]] = set()
    beating = asyncio.create_task(_beats(sites, felt))
    begun = joined = time.perf_counter()
    joins = round(load.seconds * load.per_s)
    for turn in range(joins + stay):
        due = begun + turn / load.per_s
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        works = [sites[turn % len(sites)].join(due)] if turn < joins else []
        works += [sites[(turn - stay) % len(sites)].leave(due)] if turn >= stay else []
        for work in works:
            task = asyncio.create_task(work)
            asked.add(task)
            task.add_done_callback(asked.discard)
        if turn == joins - 1:
            await asyncio.gather(*asked)
            joined = time.perf_counter()
    await asyncio.wait_for(asyncio.gather(*asked), ENDING_S)
    felt.joining_s, felt.leaving_s = joined - begun, time.perf_counter() - begun - stay / load.per_s
    beating.cancel()
    felt.present = [s.name for s in sites if s.session is not None]
    return felt


async def _beats(sites: list[_Site], felt: SiteAnswers) -> None:
    """Every site is heard of once a second."""
    while True:
        begun = time.perf_counter()
        felt.most_at_once = max(felt.most_at_once, sum(s.session is not None for s in sites))
        await asyncio.gather(*(site.beat() for site in sites))
        await asyncio.sleep(max(0.0, HEARTBEAT_S - (time.perf_counter() - begun)))


if __name__ == "__main__":
    given = SitesLoad(**json.loads(sys.stdin.read()))
    sys.stdout.write(json.dumps(asdict(asyncio.run(put_under(given)))))
