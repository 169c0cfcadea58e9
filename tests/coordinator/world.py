"""A small world for tests of the coordinator: three sensors on two edges, a file that is played, and a client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROWS = 600
EVERY_MS = 20
"""Between two rows of the file."""
WINDOW_MS = 1_000

TOPOLOGY = """
#   s0   s1   s2
#   |    |    |
#   e0 - e1 --+
#     \\  |
#      cloud
nodes:
  - {name: cloud, kind: cloud, slots: 64}
  - {name: e0, kind: edge, slots: 8, lon: 13.3, lat: 52.5}
  - {name: e1, kind: edge, slots: 8, lon: 13.4, lat: 52.5}
  - {name: s0, kind: sensor, slots: 2, mobile: true}
  - {name: s1, kind: sensor, slots: 2, mobile: true}
  - {name: s2, kind: sensor, slots: 2, mobile: true}
links:
  - {source: s0, target: e0, latency_ms: 1}
  - {source: s1, target: e1, latency_ms: 1}
  - {source: s2, target: e1, latency_ms: 1}
  - {source: e0, target: e1, latency_ms: 2}
  - {source: e0, target: cloud, latency_ms: 10, bandwidth_mbps: 1000}
  - {source: e1, target: cloud, latency_ms: 10, bandwidth_mbps: 1000}
streams:
  - name: reading
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: s*
    options: {connector: replay, path: ../readings.csv, speed: 1, event_times: original}
  - name: noise
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: s*
    rate_tps: 20
sinks:
  - {name: out, node: cloud}
  - {name: side, node: e0}
  - {name: broken, node: cloud, options: {connector: http, url: "http://127.0.0.1:9/nobody", retries: 0}}
"""

QUERIES = {
    "large": "SELECT id, value FROM reading WHERE value >= 50 INTO out",
    "counts": "SELECT window_start, count(*) AS n, sum(id) AS total FROM reading "
    "GROUP BY value WINDOW TUMBLING(ts, 1 s) INTO side",
}
"""One without memory, one with: together they use every row of the file."""


def write_world(directory: Path) -> Path:
    """The topology file; the coordinator's directory belongs beside it, in `home`."""
    rows = [f"{1_000_000 + i * EVERY_MS},{i},{i % 100}" for i in range(ROWS)]
    stamps = [f"1970-01-01T00:{16 + t // 60_000:02d}:{t // 1000 % 60:02d}.{t % 1000:03d}Z" for t in _times()]
    lines = [f"{stamp},{row.split(',', 1)[1]}" for stamp, row in zip(stamps, rows, strict=True)]
    (directory / "readings.csv").write_text("ts,id,value\n" + "\n".join(lines) + "\n")
    path = directory / "topology.yaml"
    path.write_text(TOPOLOGY.replace("../readings.csv", str(directory / "readings.csv")))
    return path


def _times() -> list[int]:
    return [i * EVERY_MS for i in range(ROWS)]


def expected_large() -> list[tuple[int, float]]:
    return sorted((i, float(i % 100)) for i in range(ROWS) if i % 100 >= 50)


def expected_counts() -> list[tuple[int, int]]:
    """(count, sum of ids) of each window and value."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, t in enumerate(_times()):
        groups.setdefault((t // WINDOW_MS, i % 100), []).append(i)
    return sorted((len(ids), sum(ids)) for ids in groups.values())


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Browser:
    """Asks over HTTP and gives what comes back, whatever it is."""

    address: str
    token: str | None

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        base: str = "/api/v1",
    ) -> Answer:
        parts = urlsplit(self.address)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            given["Content-Type"] = "application/json"
        try:
            connection.request(method, base + path, data, {**given, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json
