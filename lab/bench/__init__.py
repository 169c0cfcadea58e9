"""Experiments that measure. One experiment, one file; `BENCHES` is the ordered table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.bench import chaos, service, soak, topology
from lab.bench.dataplane import bench as dataplane
from lab.bench.handover import bench as handover
from lab.bench.isqd import bench as isqd
from lab.bench.isqp import bench as isqp
from lab.bench.latency import bench as latency
from lab.bench.machines import bench as machines
from lab.bench.nova import bench as nova
from lab.bench.rebinding import bench as rebinding
from lab.bench.report import Report
from lab.bench.tcep import bench as tcep
from meander.model.errors import unknown


@dataclass(frozen=True, slots=True)
class Bench:
    """An experiment; `run` takes whether to be quick, and where to report progress."""

    name: str
    about: str
    run: Callable[[bool, Callable[[str], None]], Report]
    run_for: Callable[[bool, Callable[[str], None], float | None], Report] | None = None
    """The same for a number of seconds, of those that can last as long as one likes."""


BENCHES: tuple[Bench, ...] = (
    Bench("topology", "build, memory, link changes and paths of a million nodes", topology.run),
    Bench("isqp", "incremental placement against re-placing whole plans, its scale and its contention", isqp.run),
    Bench("isqd", "changes under running queries against restarts: makespan, latency, moved state", isqd.run),
    Bench("nova", "joins over up to a million nodes: speed, events, overload, latency against published", nova.run),
    Bench("dataplane", "the data plane against plain Spark: throughput, latency, fragments, memory", dataplane.run),
    Bench("latency", "event-time latency by rate and by remembered rows, beside Spark's real-time mode", latency.run),
    Bench(
        "rebinding",
        "150 queries whose binding to slots does not fit the load: static, shared queue, moved",
        rebinding.run,
    ),
    Bench("handover", "a large state that follows a train: stopped, copied ahead, and predicted", handover.run),
    Bench("service", "the coordinator under 200 events/s and 50 watchers: latency, nothing lost", service.run),
    Bench("machines", "sites on other machines: joins and departures a second", machines.run),
    Bench("chaos", "1,000 seeded schedules of trouble on real processes, two beds at once: nothing lost", chaos.run),
    Bench("soak", "hours of load and changes: memory, disk, threads and open files stay flat", soak.run, soak.run),
    Bench("tcep", "mechanisms by demand, learning, a day of transitions, and what a transition takes", tcep.run),
)


def bench(name: str) -> Bench:
    """The experiment of a name, or an error that names them all."""
    for candidate in BENCHES:
        if candidate.name == name:
            return candidate
    raise unknown("bench", name, (b.name for b in BENCHES), plural="benches")
