r"""The world that chaos is let loose on: two sensors, two edges, a cloud, rows whose results a plain loop can tell.

s0 - e0 - cloud - e1 - s1
       \________/
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY_MS, WINDOW_MS, VALUES = 20, 1_000, 10
"""Between two rows, of one window, and how many different values there are."""
END_MS = 3_000_000
SITES: Mapping[str, tuple[str, ...]] = {"west": ("s0", "e0"), "east": ("s1", "e1")}
MOVABLE = ("e0", "e1", "cloud")
RELINKED = (("s0", "e0", "e1"), ("s1", "e1", "e0"))
STREAM = "reading"
QUERIES = {
    "counts": f"SELECT window_start, value, count(*) AS n, sum(id) AS total FROM {STREAM} "
    "GROUP BY value WINDOW TUMBLING(ts, 1 s) INTO out",
    "large": f"SELECT id, value FROM {STREAM} WHERE value >= 5 INTO side",
}
SINKS = {"counts": ("home", "out"), "large": ("east", "side")}
"""The host and the sink where a query's results come out."""
TOPOLOGY = """
nodes:
  - {name: cloud, kind: cloud, slots: 64}
  - {name: e0, kind: edge, slots: 8}
  - {name: e1, kind: edge, slots: 8}
  - {name: s0, kind: sensor, slots: 2, mobile: true}
  - {name: s1, kind: sensor, slots: 2, mobile: true}
links:
  - {source: s0, target: e0, latency_ms: 1}
  - {source: s1, target: e1, latency_ms: 1}
  - {source: e0, target: e1, latency_ms: 3, bandwidth_mbps: 500}
  - {source: e0, target: cloud, latency_ms: 5, bandwidth_mbps: 200}
  - {source: e1, target: cloud, latency_ms: 5, bandwidth_mbps: 200}
streams:
  - name: reading
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: s*
    options: {connector: files, path: PATH, node_column: node, format: csv}
sinks:
  - {name: out, node: cloud}
  - {name: side, node: e1}
"""


REPLICATED = "replicas: 1\nreplication: async\ntakeover: 1s\n"
"""Sites keep replicas of each other, and another machine soon goes on for one that is gone."""


def write_world(directory: Path, *, replicas: bool = False) -> Path:
    """The topology, and a file of rows that is still empty; with replicas, sites have nothing that others lack."""
    rows = directory / "reading.csv"
    rows.write_text("node,ts,id,value\n")
    path = directory / "topology.yaml"
    path.write_text(topology_with_replicas(directory) if replicas else TOPOLOGY.replace("PATH", str(rows)))
    return path


def topology_with_replicas(directory: Path) -> str:
    """The topology in which sources and sinks of sites are files that all machines reach."""
    results = shared_results(directory) / "{query}-{sink}.jsonl"
    text = TOPOLOGY.replace("PATH", str(directory / "reading.csv")).replace("format: csv", "format: csv, shared: true")
    return REPLICATED + text.replace("node: e1}", f'node: e1, options: {{path: "{results}", shared: true}}}}')


def shared_results(directory: Path) -> Path:
    """Where sites write to, if that is to survive them."""
    return directory / "shared"


class SensorRows:
    """Rows for the sensors in turn, one every 20 ms of event time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "reading.csv"
        self.count = 0

    def write(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self._append(f"s{i % 2},{_stamp(i * EVERY_MS)},{i},{i % VALUES}\n" for i in numbers)
        self.count += count

    def end(self) -> None:
        """A last row for each sensor, so late that all windows before it close; its own never does."""
        self._append(f"s{i},{_stamp(END_MS)},-1,0\n" for i in range(2))

    def _append(self, lines: Any) -> None:
        with self._path.open("a") as file:
            file.write("".join(lines))


def _stamp(ms: int) -> str:
    return f"1970-01-01T00:{ms // 60_000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}Z"


# ---------------------------------------------------------------- the oracle

Result = tuple[int, ...]


def expected(query: str, rows: int) -> Counter[Result]:
    """The complete results of a query, by a plain loop over the rows."""
    if query == "large":
        return Counter((i, i % VALUES) for i in range(rows) if i % VALUES >= 5)
    groups: dict[tuple[int, int], list[int]] = {}
    for i in range(rows):
        groups.setdefault((i * EVERY_MS // WINDOW_MS, i % VALUES), []).append(i)
    return Counter((window, value, len(ids), sum(ids)) for (window, value), ids in groups.items())


def closed(query: str, rows: int) -> Counter[Result]:
    """The results that a query must have given while more rows may come: windows that both sensors have left behind."""
    if query == "large":
        return expected(query, rows)
    windows = max(0, rows - 3) * EVERY_MS // WINDOW_MS
    return expected(query, windows * WINDOW_MS // EVERY_MS)


def found(query: str, results: Path) -> Counter[Result]:
    """The results of a query so far, as its sink wrote them."""
    sink = SINKS[query][1]
    rows = [row for path in sorted(results.glob(f"*{query}*{sink}*")) for row in _rows(path)]
    if query == "large":
        return Counter((int(r["id"]), int(r["value"])) for r in rows)
    return Counter((_window(r), int(r["value"]), int(r["n"]), int(r["total"])) for r in rows)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last may be on its way."""
    text = path.read_text(errors="replace")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _window(row: Mapping[str, Any]) -> int:
    """The number of a window, from its start such as 1970-01-01T00:01:05Z or with a space instead of the T."""
    clock = str(row["window_start"]).replace("T", " ").split(" ")[-1]
    _, minutes, seconds = clock.removesuffix("Z").split("+")[0].split(":")
    return int(minutes) * 60 + int(float(seconds))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of results with the oracle's."""

    expected: int
    lost: int
    double: int
    wrong: int
    """Results that should not be there at all."""

    @property
    def is_good(self) -> bool:
        return self.lost == self.double == self.wrong == 0

    def plus(self, other: Verdict) -> Verdict:
        return Verdict(
            self.expected + other.expected,
            self.lost + other.lost,
            self.double + other.double,
            self.wrong + other.wrong,
        )


def verdict(query: str, rows: int, results: Path, *, ended: bool = True) -> Verdict:
    """Compares the results so far; `ended` says whether every window must be there, or only those that are over."""
    may, got = expected(query, rows), found(query, results)
    must = may if ended else closed(query, rows)
    lost = sum((must - got).values())
    double = sum(count - may[result] for result, count in got.items() if 0 < may[result] < count)
    wrong = sum(count for result, count in got.items() if result not in may)
    return Verdict(sum(must.values()), lost, double, wrong)
