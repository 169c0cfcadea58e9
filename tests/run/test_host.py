"""The site host on real streaming queries: fragments come, go and move while the slots run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.channels.base import ChannelAppend
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.memory import MemorySink
from meander.run.execution.prepared import PreparedRunner
from meander.run.frames import END, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.oracle.batch import PRODUCER, oracle
from meander.run.oracle.comparison import compare
from meander.run.store.commit import Commit
from tests.run.harness import SINKS, Plane, queries, rows_of

TEXT = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO two;
"""


@pytest.mark.slow
def test_fragments_move_between_slots_while_the_same_streaming_queries_run(spark: SparkSession, tmp_path: Path) -> None:
    wanted = queries(TEXT)
    plane = Plane(tmp_path / "plan", PreparedRunner(spark), wanted, slots=2)
    plane.store.close()
    host = Host(HostOptions(tmp_path / "host", slots=2), spark)
    sinks = {"fast > one": MemorySink(), "load > two": MemorySink()}
    results = plane.installation.results
    sink_bindings = [
        SinkBinding(name, SINKS[sink], results[running.sinks[0]])
        for (name, running), sink in zip(plane.catalog.plan.queries.items(), ("one", "two"), strict=True)
    ]
    rng, tables = np.random.default_rng(5), []
    try:
        host.install(plane.installation)
        host.start()
        host.deliver(sink_bindings, Surroundings(tmp_path, tmp_path), sinks)
        before = host.status()
        for moment in range(8):
            table = rows_of("cars", rng, np.arange(moment * 500, moment * 500 + 500, 25))
            tables.append(table)
            hidden = with_hidden(table, "ts", 0, moment * 500 - 1)
            channels = plane.installation.ingest["cars", "s0"]
            mark = moment * 500 + 475
            host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, hidden, mark) for c in channels)))
            moved = {f: int(rng.integers(2)) for f in host.routing.fragments if rng.random() < 0.5}
            with host.between_steps(moved):
                host.routing.rebind(moved)
            host.wake()
        ends = [c for readers in plane.installation.ingest.values() for c in readers]
        host.store.commit(Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in ends)))
        assert host.drain(timeout_s=200)
        after = host.status()
    finally:
        host.stop()
    assert after.healthy, after.problems
    assert after.slots == before.slots
    assert len(after.slots) == 2
    whole = pa.concat_tables(tables)
    inputs = {
        "cars": whole.append_column(PRODUCER, pa.array(["s0"] * len(whole))),
        "rain": rows_of("rain", rng, np.arange(0)).append_column(PRODUCER, pa.array([], pa.string())),
    }
    for query in wanted:
        for sink, expected in oracle(spark, query.plan, inputs).items():
            comparison = compare(expected, sinks[f"{query.id} > {sink}"].table)
            assert comparison.equal, comparison
            assert comparison.expected > 10
