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
END_MS = 86_340_000
SITES: Mapping[str, tuple[str, ...]] = {"west": ("s0", "e0"), "east": ("s1", "e1")}
MOVABLE = ("e0", "e1", "cloud")
RELINKED = (("s0", "e0", "e1"), ("s1", "e1", "e0"))
STREAM = "reading"
GROUPS, BURST, GAP_MS = 50, 15, 300
"""Rows come in pairs, one of each sensor; of so many pairs the first ones are a burst, and then there is a gap."""
QUERIES = {
    "counts": f"SELECT window_start, value, count(*) AS n, sum(id) AS total FROM {STREAM} "
    "GROUP BY value WINDOW TUMBLING(ts, 1 s) INTO out",
    "large": f"SELECT id, value FROM {STREAM} WHERE value >= 5 INTO side",
    "joined": f"SELECT a.id AS one, b.id AS other FROM {STREAM} AS a JOIN {STREAM} AS b "
    "ON a.pair = b.pair AND a.id < b.id WITHIN 100 ms WHERE a.value = 4 INTO out",
    "bursts": f"SELECT value, count(*) AS n, sum(id) AS total FROM {STREAM} WHERE pair < {BURST} "
    f"GROUP BY value WINDOW SESSION(ts, {GAP_MS} ms) INTO side",
    "followed": f"SELECT a.id AS one, b.id AS other FROM {STREAM} AS a, {STREAM} AS b "
    "MATCH a THEN b WITHIN 60 ms WHERE a.value = 2 AND b.value = 5 INTO out",
}
APPLIED = {
    "applied": f"SELECT e.id, e.twice FROM APPLY('lab.testbed.user_functions:doubled', {STREAM}) "
    "RETURNS (ts timestamp, id bigint, value double, twice bigint) AS e WHERE e.value = 9 INTO out",
}
"""A query with a user function: Spark plans each of its batches anew, which takes a good part of a core."""
FUNCTIONS = "lab.testbed.user_functions"
SINKS = {
    "counts": ("home", "out"),
    "large": ("east", "side"),
    "joined": ("home", "out"),
    "bursts": ("east", "side"),
    "followed": ("home", "out"),
    "applied": ("home", "out"),
}
"""The host and the sink where a query's results come out."""
COLUMNS = {
    "large": ("id", "value"),
    "joined": ("one", "other"),
    "bursts": ("value", "n", "total"),
    "followed": ("one", "other"),
    "applied": ("id", "twice"),
}
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
    schema: {ts: timestamp, id: bigint, value: double, pair: bigint}
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
    rows.write_text("node,ts,id,value,pair\n")
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
        self._append(f"s{i % 2},{_stamp(i * EVERY_MS)},{i},{i % VALUES},{_pair(i)}\n" for i in numbers)
        self.count += count

    def end(self) -> None:
        """A last row for each sensor, so late that all windows before it close; its own never does."""
        self._append(f"s{i},{_stamp(END_MS)},-1,0,{GROUPS}\n" for i in range(2))

    def _append(self, lines: Any) -> None:
        with self._path.open("a") as file:
            file.write("".join(lines))


def _pair(i: int) -> int:
    return i // 2 % GROUPS


def _stamp(ms: int) -> str:
    return f"1970-01-01T{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}Z"


# ---------------------------------------------------------------- the oracle

Result = tuple[int, ...]


def expected(query: str, rows: int) -> Counter[Result]:
    """The complete results of a query, by a plain loop over the rows."""
    match query:
        case "large":
            return Counter((i, i % VALUES) for i in range(rows) if i % VALUES >= 5)
        case "joined":  # both rows of a pair; the next pair of this number is two seconds later
            return Counter((i, i + 1) for i in range(rows - 1) if i % VALUES == 4)
        case "followed":
            return Counter((i, i + 3) for i in range(rows - 3) if i % VALUES == 2)
        case "applied":
            return Counter((i, 2 * i) for i in range(rows) if i % VALUES == 9)
        case "bursts":
            return Counter((value, len(ids), sum(ids)) for value, ids in _sessions(rows))
    groups: dict[tuple[int, int], list[int]] = {}
    for i in range(rows):
        groups.setdefault((i * EVERY_MS // WINDOW_MS, i % VALUES), []).append(i)
    return Counter((window, value, len(ids), sum(ids)) for (window, value), ids in groups.items())


def _sessions(rows: int) -> list[tuple[int, list[int]]]:
    """The rows of each session, with their value."""
    found: list[tuple[int, list[int]]] = []
    newest: dict[int, list[int]] = {}
    for i in (i for i in range(rows) if _pair(i) < BURST):
        ids = newest.get(i % VALUES)
        if ids is None or (i - ids[-1]) * EVERY_MS > GAP_MS:
            found.append((i % VALUES, ids := []))
            newest[i % VALUES] = ids
        ids.append(i)
    return found


def closed(query: str, rows: int) -> Counter[Result]:
    """The results that a query must have given while more rows may come: windows that both sensors have left behind."""
    if query == "bursts":
        over = rows - 3 - GAP_MS // EVERY_MS
        return Counter((value, len(ids), sum(ids)) for value, ids in _sessions(rows) if ids[-1] < over)
    if query != "counts":
        return expected(query, rows)
    windows = max(0, rows - 3) * EVERY_MS // WINDOW_MS
    return expected(query, windows * WINDOW_MS // EVERY_MS)


def found(query: str, results: Path) -> Counter[Result]:
    """The results of a query so far, as its sink wrote them."""
    sink = SINKS[query][1]
    rows = [row for path in sorted(results.glob(f"*{query}*{sink}*")) for row in _rows(path)]
    if query in COLUMNS:
        return Counter(tuple(int(r[column]) for column in COLUMNS[query]) for r in rows)
    return Counter((_window(r), int(r["value"]), int(r["n"]), int(r["total"])) for r in rows)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last may be on its way."""
    text = path.read_text(errors="replace")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _window(row: Mapping[str, Any]) -> int:
    """The number of a window, from its start such as 1970-01-01T00:01:05Z or with a space instead of the T."""
    clock = str(row["window_start"]).replace("T", " ").split(" ")[-1]
    hours, minutes, seconds = clock.removesuffix("Z").split("+")[0].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(float(seconds))


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
