"""The coordinator under load: 200 topology events a second and 50 watchers, while queries run on Spark.

Devices change base stations, each with one request of two events. Is every event applied, does every watcher see every
message, and how long do requests take? The load comes from a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.report import Figure, Report
from lab.load.service import ServiceAnswers, ServiceLoad
from meander.api.coordinator import Coordinator, running
from meander.coordinator.options import CoordinatorOptions

EVENTS_PER_S = 200
WATCHERS = 50
SECONDS, QUICK_SECONDS = 60.0, 20.0
P99_GOAL_MS = 200.0
STATIONS, DEVICES, PRODUCERS = 10, 200, 10
RATE_TPS = 5.0
QUERIES = {
    "large": "SELECT id, value FROM reading WHERE value > 0.5 INTO out",
    "mean": "SELECT id, avg(value) AS mean FROM reading GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO out",
    "pairs": "SELECT window_start, count(*) AS n FROM reading GROUP BY id WINDOW TUMBLING(ts, 5 s) INTO side",
}
Progress = Callable[[str], None]


def run(quick: bool, progress: Progress) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="meander-service-") as work:
        directory = Path(work)
        topology = directory / "topology.yaml"
        topology.write_text(_topology())
        progress("starting the coordinator")
        options = CoordinatorOptions(port=0, first=QUERIES)
        with running(directory / "home", topology, options) as coordinator:
            progress(f"{EVENTS_PER_S} events/s and {WATCHERS} watchers for {seconds:g} s")
            felt = _loaded(coordinator, seconds)
            progress("comparing")
            seen = _Seen.of(coordinator, felt)
    return Report(
        "service",
        f"{DEVICES} devices on {STATIONS} base stations, {PRODUCERS} of them produce what {len(QUERIES)} queries read; "
        f"{EVENTS_PER_S} events/s in requests of two, {WATCHERS} watchers, 10 looks/s, {seconds:g} s",
        1,
        _figures(felt, seen, seconds),
        ("latency counts from when a request was due; the load generator shares the machine's cores",),
    )


def _topology() -> str:
    lines = ["nodes:", "  - {name: cloud, kind: cloud, slots: 64}"]
    lines += [f"  - {{name: station-{n}, kind: edge, slots: 32}}" for n in range(STATIONS)]
    lines += [f"  - {{name: device-{n}, kind: sensor, slots: 2, mobile: true}}" for n in range(DEVICES)]
    lines += ["links:"]
    lines += [f"  - {{source: station-{n}, target: cloud, latency_ms: 8}}" for n in range(STATIONS)]
    lines += [
        f"  - {{source: station-{n}, target: station-{(n + 1) % STATIONS}, latency_ms: 2}}" for n in range(STATIONS)
    ]
    lines += [f"  - {{source: {d}, target: {s}, latency_ms: 2}}" for d, s in _links().items()]
    producers = ", ".join(f"device-{n * (DEVICES // PRODUCERS)}" for n in range(PRODUCERS))
    lines += [
        "streams:",
        "  - name: reading",
        "    schema: {ts: timestamp, id: bigint, value: double}",
        "    event_time: ts",
        f"    nodes: [{producers}]",
        f"    rate_tps: {RATE_TPS}",
        "    options: {connector: random, range.value: 0..1, range.id: 0..9}",
        "sinks:",
        "  - {name: out, node: cloud}",
        "  - {name: side, node: station-0}",
    ]
    return "\n".join(lines) + "\n"


def _links() -> dict[str, str]:
    return {f"device-{n}": f"station-{n % STATIONS}" for n in range(DEVICES)}


def _loaded(coordinator: Coordinator, seconds: float) -> ServiceAnswers:
    stations = [f"station-{n}" for n in range(STATIONS)]
    load = ServiceLoad(coordinator.address, coordinator.token, seconds, EVENTS_PER_S / 2, WATCHERS, _links(), stations)
    done = subprocess.run(
        [sys.executable, "-m", "lab.load.service"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 120,
    )
    return ServiceAnswers(**json.loads(done.stdout))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of the coordinator at the end."""

    applied: int
    """Events whose outcome it knows."""
    wrong_links: int
    summary: dict[str, Any]

    @staticmethod
    def of(coordinator: Coordinator, felt: ServiceAnswers) -> _Seen:
        applied, since = 0, 0
        history = coordinator.service.history
        while found := history.events(since, 1000):
            since = found[-1]["seq"]
            links = [e for e in found if e["event"]["event"] in ("link_removed", "link_added")]
            applied += sum(e["outcome"]["state"] == "applied" for e in links)
        shown = {frozenset((link["a"], link["b"])) for link in coordinator.service.views.topology()["links"]}
        wrong = sum(frozenset(pair) not in shown for pair in felt.links.items())
        return _Seen(applied, wrong, coordinator.summary())


def _figures(felt: ServiceAnswers, seen: _Seen, seconds: float) -> tuple[Figure, ...]:
    both = [*felt.change_ms, *felt.look_ms]
    p99 = float(np.quantile(both, 0.99)) if both else float("nan")
    summary = seen.summary
    return (
        Figure.of("API latency p99", "ms", [p99], P99_GOAL_MS),
        Figure.of("events without an outcome", "", [felt.sent_events - seen.applied], 0),
        Figure.of("requests refused", "", [len(felt.refused)], 0),
        Figure.of("devices that are not where they were sent", "", [seen.wrong_links], 0),
        Figure.of("watchers that missed a message", "", [WATCHERS - felt.watched], 0),
        Figure.of("events sent", "/s", [felt.sent_events / seconds], 0.99 * EVENTS_PER_S, at_least=True),
        *(
            Figure.of(f"{name} latency {label}", "ms", [float(np.quantile(values, share))])
            for name, values in (("change", felt.change_ms), ("look", felt.look_ms))
            for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("longest", 1.0))
        ),
        Figure.of("batches", "", [summary["changes"]]),
        Figure.of("operators placed anew", "", [summary["moves"]]),
        Figure.of("reconfigurations", "", [summary["reconfigurations"]]),
        Figure.of("aborted", "", [summary["aborted"]]),
        Figure.of("messages to each watcher", "", [felt.messages]),
        Figure.of("results meanwhile", "", [summary["tuples_out"]]),
    )
