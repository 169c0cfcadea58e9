"""A pipeline over three processes beside the same one in a single process: throughput, and latency at a steady rate.

Source, aggregate and sink are on three nodes in a row. Once every node has a process of its own, once the coordinator's
own host runs them all. Everything is on one machine, so both share its cores.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.bench.report import Figure
from lab.testbed.layout import layout
from lab.testbed.process_test_bed import ProcessTestBed, process_test_bed
from meander.lang.topology.reader import load

ROWS, QUICK_ROWS = 400_000, 60_000
STEADY_TPS, STEADY_S, QUICK_STEADY_S = 500, 20.0, 8.0
READY_S, TIMEOUT_S = 240.0, 300.0
LAST_MS = 3_000_000
DATA = f"source, aggregate and sink on three nodes in a row; {ROWS:,} tuples at once, then {STEADY_TPS} a second"
TOPOLOGY = """
nodes:
  - {name: sensor, kind: sensor, slots: 2}
  - {name: edge, kind: edge, slots: 8}
  - {name: cloud, kind: cloud, slots: 64}
links:
  - {source: sensor, target: edge, latency_ms: 1}
  - {source: edge, target: cloud, latency_ms: 1}
streams:
  - name: many
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: sensor
    options: {connector: files, path: PATH, format: csv}
  - name: steady
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: sensor
    rate_tps: RATE
    options: {connector: random, range.value: 0..1, range.id: 0..9}
sinks:
  - {name: out, node: cloud}
"""
QUERIES = {
    "many": "SELECT id, count(*) AS n FROM many GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO out",
    "steady": "SELECT id, value FROM steady WHERE value > 0.5 INTO out",
}
SITES: dict[str, Mapping[str, tuple[str, ...]]] = {
    "three processes": {"front": ("sensor",), "middle": ("edge",)},
    "one process": {},
}


def figures(quick: bool, progress: Callable[[str], None]) -> tuple[Figure, ...]:
    found: dict[str, tuple[float, float]] = {}
    for name, sites in SITES.items():
        with tempfile.TemporaryDirectory(prefix="meander-pipeline-") as work:
            progress(f"pipeline in {name}")
            found[name] = _measured(Path(work), sites, quick)
    three, one = found["three processes"], found["one process"]
    return (
        Figure.of("pipeline over three processes: throughput", "tuples/s", [three[0]]),
        Figure.of("pipeline in one process: throughput", "tuples/s", [one[0]]),
        Figure.of("throughput of three processes to that of one", "ratio", [three[0] / one[0]]),
        Figure.of("pipeline over three processes: latency p50", "ms", [three[1]]),
        Figure.of("pipeline in one process: latency p50", "ms", [one[1]]),
    )


def _measured(work: Path, sites: Mapping[str, tuple[str, ...]], quick: bool) -> tuple[float, float]:
    rows = QUICK_ROWS if quick else ROWS
    data, topology = work / "rows.csv", work / "topology.yaml"
    data.write_text("ts,id,value\n", encoding="utf-8")
    topology.write_text(TOPOLOGY.replace("PATH", str(data)).replace("RATE", str(STEADY_TPS)), encoding="utf-8")
    with process_test_bed(work / "bed", topology, layout(load(topology).topology, sites)) as found:
        found.wait_ready(READY_S)
        _submit(found, "many")
        _add(data, 0, rows // 20)  # plans are made with the first tuples
        _until(lambda: _counted(found) >= rows // 40, found)
        started, before = time.monotonic(), _counted(found)
        _add(data, rows // 20, rows, last=True)
        _until(lambda: _counted(found) >= rows, found)
        throughput = (rows - before) / (time.monotonic() - started)
        _submit(found, "steady")
        _until(lambda: bool(found.get("/queries/steady")["results"]), found)
        time.sleep(QUICK_STEADY_S if quick else STEADY_S)
        latency = float(found.get("/queries/steady")["latency_ms"]["p50"])
    return throughput, latency


def _submit(found: ProcessTestBed, query: str) -> None:
    found.ask("POST", "/queries", {"text": QUERIES[query], "name": query})
    found.wait_settled([query], READY_S)


def _add(data: Path, first: int, stop: int, *, last: bool = False) -> None:
    """Rows, one each millisecond of event time; after the last ones a row that lets every window close."""
    lines = [f"{_stamp(i)},{i % 10},0.5\n" for i in range(first, stop)]
    if last:
        lines.append(f"{_stamp(LAST_MS)},0,0\n")
    with data.open("a", encoding="utf-8") as file:
        file.write("".join(lines))


def _stamp(ms: int) -> str:
    return f"1970-01-01T00:{ms // 60_000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}Z"


def _counted(found: ProcessTestBed) -> int:
    """Tuples that results speak of so far."""
    paths = found.home.results.glob("many*")
    return sum(json.loads(line)["n"] for path in paths for line in path.read_text(encoding="utf-8").splitlines())


def _until(condition: Callable[[], bool], found: ProcessTestBed) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the pipeline did not get on in time; logs are in {found.directory / 'logs'}")
        time.sleep(0.05)
