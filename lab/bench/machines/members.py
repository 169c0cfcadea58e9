"""Sites that join and leave: 50 of each a second, over the real protocol, while a query runs on Spark.

The sites are simulated, in a process of its own; the coordinator is real, with its ledger, its core and its topology.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lab.bench.report import Figure
from lab.load.sites import SiteAnswers, SitesLoad
from meander.api.coordinator import Coordinator, running
from meander.coordinator.options import CoordinatorOptions

GOAL_PER_S, PER_S = 50.0, 60.0
"""The required rate, and the offered one."""
SECONDS, QUICK_SECONDS = 30.0, 8.0
SITES, STATIONS = 200, 10
SHOWN = 5
DATA = f"{SITES} simulated sites join and leave, {PER_S:g} of each a second, while a query runs"
TOPOLOGY = "\n".join(
    [
        "nodes:",
        "  - {name: cloud, kind: cloud, slots: 64}",
        *[f"  - {{name: station-{n}, kind: edge, slots: 32}}" for n in range(STATIONS)],
        "links:",
        *[f"  - {{source: station-{n}, target: cloud, latency_ms: 8}}" for n in range(STATIONS)],
        "streams:",
        "  - name: reading",
        "    schema: {ts: timestamp, id: bigint, value: double}",
        "    event_time: ts",
        "    nodes: station-*",
        "    rate_tps: 20",
        "    options: {connector: random, range.value: 0..1, range.id: 0..9}",
        "sinks:",
        "  - {name: out, node: cloud}",
        "",
    ]
)
QUERIES = {"mean": "SELECT id, avg(value) AS mean FROM reading GROUP BY id WINDOW TUMBLING(ts, 1 s) INTO out"}


def figures(quick: bool, progress: Callable[[str], None]) -> tuple[Figure, ...]:
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="meander-machines-") as work:
        topology = Path(work) / "topology.yaml"
        topology.write_text(TOPOLOGY)
        progress("starting the coordinator")
        with running(Path(work) / "home", topology, CoordinatorOptions(port=0, first=QUERIES)) as coordinator:
            progress(f"{PER_S:g} sites a second join and leave for {seconds:g} s")
            felt = _loaded(coordinator, seconds)
            wrong = _wrong(coordinator, felt)
    for reason in sorted(set(felt.refused))[:SHOWN]:
        progress(f"refused: {reason}")
    joins, leaves = len(felt.join_ms), len(felt.leave_ms)
    return (
        Figure.of("sites that joined", "/s", [joins / felt.joining_s], GOAL_PER_S, at_least=True),
        Figure.of("sites that left", "/s", [leaves / felt.leaving_s], GOAL_PER_S, at_least=True),
        Figure.of("joins and departures refused", "", [len(felt.refused)], 0),
        Figure.of("sites or nodes that are wrong at the end", "", [wrong], 0),
        Figure.of("join, p50", "ms", [_share_of(felt.join_ms, 50)]),
        Figure.of("join, p99", "ms", [_share_of(felt.join_ms, 99)]),
        Figure.of("leave, p99", "ms", [_share_of(felt.leave_ms, 99)]),
        Figure.of("heartbeat, p99", "ms", [_share_of(felt.beat_ms, 99)]),
        Figure.of("sites there at once, most", "", [felt.most_at_once]),
    )


def _loaded(coordinator: Coordinator, seconds: float) -> SiteAnswers:
    made = coordinator.membership_service.membership.make_token
    names = [f"site-{n:03}" for n in range(SITES)]
    tokens = {name: made(name, [name], "operator") for name in names}
    load = SitesLoad(coordinator.address, tokens, [f"station-{n}" for n in range(STATIONS)], seconds, PER_S)
    done = subprocess.run(
        [sys.executable, "-m", "lab.load.sites"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 180,
    )
    return SiteAnswers(**json.loads(done.stdout))


def _wrong(coordinator: Coordinator, felt: SiteAnswers) -> int:
    """Sites whose state the coordinator has wrong, and nodes that should or should not be there."""
    present = set(felt.present)
    sites = set(coordinator.membership_service.membership.roster.present())
    nodes = {n for n, shown in coordinator.service.views.nodes.items() if shown["alive"] and n.startswith("site-")}
    return len(present ^ sites) + len(present ^ nodes)


def _share_of(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")
