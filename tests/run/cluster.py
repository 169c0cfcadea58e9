"""A host on a small cluster, as a process of its own; one of the cluster's executors is killed meanwhile.

    python -m tests.run.cluster DIRECTORY

Prints as JSON how its results compare with the oracle's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.memory import MemorySink
from meander.run.execution.executors.runner import ExecutorsRunner
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import PlainRunner
from meander.run.frames import END, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import compare
from meander.run.session import start_session
from meander.run.store.commit import Commit
from tests.run.harness import SINKS, Plane, queries, rows_of
from tests.run.standalone import standalone

CORES = 2
"""Of the worker; each executor has one of them."""
SPARK = {"spark.executor.cores": "1", "spark.executor.memory": "1g", "spark.cores.max": str(CORES)}
TEXT = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS mean FROM cars
GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO two;
"""
MOMENTS, KILLED_AT = 4, 2


def run(directory: Path, master: str) -> dict[str, object]:
    spark = start_session("cluster", extra={"spark.master": master, **SPARK})
    executors = ExecutorsRunner(spark, least_rows=30)
    wanted = queries(TEXT)
    plane = Plane(directory / "plan", PlainRunner(spark), wanted)
    plane.store.close()
    host = Host(HostOptions(directory / "host"), spark, PreparedRunner(spark, executors=executors))
    sinks = {"fast > one": MemorySink(), "load > two": MemorySink()}
    results = plane.installation.results
    sink_bindings = [
        SinkBinding(name, SINKS[sink], results[running.sinks[0]])
        for (name, running), sink in zip(plane.catalog.plan.queries.items(), ("one", "two"), strict=True)
    ]
    rng, tables = np.random.default_rng(5), []
    killed = 0
    host.install(plane.installation)
    host.start()
    host.deliver(sink_bindings, Surroundings(directory, directory), sinks)
    channels = plane.installation.ingest["cars", "s0"]
    for moment in range(MOMENTS):
        times = np.arange(moment * 1000, moment * 1000 + 1000, 5)
        tables.append(rows_of("cars", rng, times))
        hidden = with_hidden(tables[-1], "ts", 0, moment * 1000 - 1)
        host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, int(times[-1])) for c in channels)))
        if moment == KILLED_AT:
            killed = kill_one_executor()
        deadline = time.monotonic() + 60
        while executors.batches <= moment and time.monotonic() < deadline:
            time.sleep(0.05)
    ends = [c for readers in plane.installation.ingest.values() for c in readers]
    host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in ends)))
    drained = host.drain(timeout_s=240)
    status = host.status()
    host.stop()
    whole = pa.concat_tables(tables)
    inputs = {
        "cars": whole.append_column(PRODUCER, pa.array(["s0"] * len(whole))),
        "rain": rows_of("rain", rng, np.arange(0)).append_column(PRODUCER, pa.array([], pa.string())),
    }
    compared = {
        query.id: compare(expected, sinks[f"{query.id} > {sink}"].table)
        for query in wanted
        for sink, expected in oracle(spark, query.plan, inputs).items()
    }
    spark.stop()
    return {
        "drained": drained,
        "problems": list(status.problems),
        "killed": killed,
        "batches": executors.batches,
        "equal": {query: c.equal for query, c in compared.items()},
        "expected": {query: c.expected for query, c in compared.items()},
    }


def kill_one_executor() -> int:
    """SIGKILL for the first executor of this process; says how many there were."""
    mine = {os.getpid()}
    found = []
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda p: int(p.name)):  # children have larger numbers
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if parent in mine:
            mine.add(int(path.name))
            if b"CoarseGrainedExecutorBackend" in command:
                found.append(int(path.name))
    if found:
        os.kill(found[0], signal.SIGKILL)
    return len(found)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with standalone(place / "cluster", CORES, "2g") as address:
        found = run(place, address)
    sys.stdout.write(json.dumps(found) + "\n")
