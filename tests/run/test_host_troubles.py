"""Trouble around a running host: it says what is wrong, goes on with all else, and loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.run.commit import Commit
from meander.run.comparison import compare
from meander.run.connectors.base import Outlet, Surroundings
from meander.run.connectors.memory import Memory
from meander.run.exchange.base import ChannelAppend
from meander.run.frames import END, with_hidden
from meander.run.host import Host, HostOptions
from meander.run.journal import DiskFullError
from meander.run.oracle import PRODUCER, oracle
from meander.run.prepared import PreparedRunner
from meander.run.store import Store
from tests.run.harness import SINKS, Plane, queries, rows_of

TEXT = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO two;
"""
FULL = 3
"""How often the disk is full."""


class Broken(Memory):
    """A sink that nobody listens to until somebody mends it."""

    mended = False

    def write(self, table: pa.Table, first: int) -> Any:
        if not self.mended:
            raise OSError("nobody answers")
        return super().write(table, first)


@pytest.fixture
def plane(spark: SparkSession, tmp_path: Path) -> Plane:
    planned = Plane(tmp_path / "plan", PreparedRunner(spark), queries(TEXT))
    planned.store.close()
    return planned


@pytest.mark.slow
def test_a_broken_sink_and_a_full_disk_stop_nothing_else(
    spark: SparkSession, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, refused = Store.commit, 0
    said: set[str] = set()

    def full(store: Store, change: Commit) -> Any:
        nonlocal refused
        if change.writer.startswith("slot") and refused < FULL:
            refused += 1
            raise DiskFullError("no room left for the journal; free some space")
        return commit(store, change)

    monkeypatch.setattr(Store, "commit", full)
    host = Host(HostOptions(tmp_path / "host"), spark)
    broken = Broken()
    sinks = {"fast > one": broken, "load > two": Memory()}
    options = {"retries": "1", "backoff": "10ms"}
    outlets = [
        Outlet(name, type(SINKS[sink])(sink, "cloud", options), plane.installation.results[running.sinks[0]])
        for (name, running), sink in zip(plane.catalog.plan.queries.items(), ("one", "two"), strict=True)
    ]
    table = rows_of("cars", np.random.default_rng(5), np.arange(0, 4000, 25))
    channels = plane.installation.ingest["cars", "s0"]
    ends = [c for readers in plane.installation.ingest.values() for c in readers]
    try:
        host.install(plane.installation)
        host.start()
        host.deliver(outlets, Surroundings(tmp_path, tmp_path), sinks)
        commit(
            host.store,
            Commit(appends=tuple(ChannelAppend.one(c, with_hidden(table, "ts", 0), 3975) for c in channels)),
        )
        commit(host.store, Commit(appends=tuple(ChannelAppend.one(c, None, END) for c in ends)))
        while refused < FULL or not host.status().problems:
            said.update(host.status().problems)
            host.store.wait(host.store.commits, 0.02)
        assert not host.drain(timeout_s=200)
        status = host.status()
        assert status.problems == ("outlet fast > one is paused: OSError: nobody answers",)
        assert status.alive
        assert not status.healthy
        broken.mended = True
        assert host.delivery is not None
        host.delivery.resume("fast > one")
        assert host.drain(timeout_s=200)
        assert host.status().healthy
    finally:
        host.stop()
    assert "slot 0 waits: no room left for the journal; free some space" in said
    inputs = {
        "cars": table.append_column(PRODUCER, pa.array(["s0"] * len(table))),
        "rain": rows_of("rain", np.random.default_rng(0), np.arange(0)).append_column(
            PRODUCER, pa.array([], pa.string())
        ),
    }
    for query in plane.queries:
        for sink, expected in oracle(spark, query.plan, inputs).items():
            assert compare(expected, sinks[f"{query.id} > {sink}"].table).equal
