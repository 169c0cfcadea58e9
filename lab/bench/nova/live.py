"""The join on the data plane: throughput and latency of Nova and every baseline, and lost or double results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from lab.bench.report import Figure

Progress = Callable[[str], None]

RATE_TPS = 1_000.0
SECONDS, QUICK_SECONDS = 5.0, 0.6
QUICK_NAMES = ("nova", "greedy", "sink_based")
LEAST_SHARE = 0.95

NOTES = (
    "on the data plane: pressure and humidity joined by region and window, 8 sources of 1 kHz, 4 regions; one "
    "query whose join is cut anew from one way of placing to the next; path latencies and node capacities are emulated "
    "in virtual time (a slot makes a step every 20 ms), so that this machine's speed does not matter",
    "throughput is what arrives at the sink of all results there are; latency is from the newest input's event time; "
    "ways of placing that overload nodes fall behind for as long as they run",
)


def figures(quick: bool, progress: Progress) -> list[Figure]:
    from lab.experiments.nova_plane import run
    from meander.run.session import start_session

    progress("starting Spark for the data plane")
    spark = start_session("meander-bench-nova", cores=2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(
                spark,
                Path(folder),
                rate_tps=RATE_TPS,
                seconds=QUICK_SECONDS if quick else SECONDS,
                names=QUICK_NAMES if quick else (),
                progress=progress,
            )
    finally:
        spark.stop()
    found: list[Figure] = []
    nova = next(m for m in outcome.measured if m.name == "nova")
    others = [m for m in outcome.measured if m.name != "nova"]
    for m in outcome.measured:
        share = m.results_tps / outcome.wanted_tps
        goal = LEAST_SHARE if m is nova else None
        found.append(Figure.of(f"data plane, {m.name}: throughput", "of all", [share], goal, at_least=True))
        found.append(Figure.of(f"data plane, {m.name}: results", "1/s", [m.results_tps]))
        for name, value in (("p50", m.latency.p50_ms), ("p95", m.latency.p95_ms)):
            found.append(Figure.of(f"data plane, {m.name}: latency {name}", "ms", [value]))
        found.append(Figure.of(f"data plane, {m.name}: overloaded nodes", "", [m.overloaded]))
        found.append(Figure.of(f"data plane, {m.name}: parts", "", [m.replicas]))
        found.append(Figure.of(f"data plane, {m.name}: cut anew in", "ms", [m.switch_ms]))
    best = min((m.latency.p95_ms for m in others), default=float("nan"))
    found.append(Figure.of("data plane: latency p95, Nova to the best other", "x", [nova.latency.p95_ms / best], 1.0))
    found.append(Figure.of("data plane: results lost", "", [outcome.check.lost], 0.0))
    found.append(Figure.of("data plane: results double", "", [outcome.check.double], 0.0))
    found.append(Figure.of("data plane: results compared", "", [outcome.check.expected]))
    return found
