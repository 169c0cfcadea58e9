"""A program that runs Meander to its end, alone or beside a Spark session of its user's, and says what it saw.

python -m tests.run.beside_a_user FOLDER alone|beside
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.lang import sql
from meander.lang.topology.reader import load
from meander.local.recorded_run import check_results
from meander.local.run_plan import LocalPlan, plan_queries
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import Surroundings
from meander.run.host import Host, HostOptions
from meander.run.oracle.recording import RecordedSink, Recording
from meander.run.session import start_session

TOPOLOGY = """
nodes:
  - {name: sensor, kind: sensor, slots: 1}
  - {name: cloud, kind: cloud, slots: 9}
links:
  - {source: sensor, target: cloud, latency_ms: 1}
streams:
  - name: cars
    schema: "ts timestamp, road string, speed double, lanes int"
    event_time: ts
    nodes: [sensor]
    options: {connector: files, path: cars.csv, tail: false}
  - name: ticks
    schema: "ts timestamp, value long"
    event_time: ts
    nodes: [sensor]
    options: {connector: spark, format: csv, schema: "ts timestamp, value long", path: FOLDER/ticks}
sinks:
  - {name: out, node: cloud, options: {connector: jsonl}}
  - {name: lake, node: cloud, options: {connector: spark, format: parquet, path: "lake/{query}"}}
"""
# sensor - cloud
QUERIES = """
CREATE QUERY load AS SELECT road, hour(window_end) AS at, count(*) AS n, avg(speed) AS v, max(lanes) AS most FROM cars
  GROUP BY road WINDOW TUMBLING(ts, 10 s) INTO out;
CREATE QUERY hours AS SELECT road, hour(ts) AS at, CAST(speed AS INT) AS whole, CAST(ts AS STRING) AS text FROM cars
  WHERE speed > 3 INTO lake;
CREATE QUERY beat AS SELECT count(*) AS n FROM ticks WINDOW TUMBLING(ts, 1 min) INTO lake;
"""
ODD = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.meander.batchesAsJobs": "false",
}


def write_rows(folder: Path) -> None:
    """Three minutes of traffic, while clocks in New York change."""
    lines, begin = ["ts,road,speed,lanes"], datetime(2024, 3, 10, 6, 58, tzinfo=UTC)
    for second in range(180):
        stamp = (begin + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines += [f"{stamp},{road},{(second * k) % 17}.5,{second % 5}" for k, road in ((3, "a1"), (7, "b2"))]
    (folder / "cars.csv").write_text("\n".join(lines) + "\n")
    (folder / "ticks").mkdir()
    (folder / "ticks" / "1.csv").write_text("".join(f"2024-03-10T06:{m}:00Z,{m}\n" for m in range(10, 50)))


def main(folder: Path, beside: bool) -> None:
    user: SparkSession | None = None
    before: dict[str, Any] = {}
    if beside:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder
        for key, value in ODD.items():
            builder = builder.config(key, value)
        user = builder.getOrCreate()
        user.conf.set("spark.sql.shuffle.partitions", "199")
        user.sql("SELECT 1 AS one").createOrReplaceTempView("mine")
        user.udf.register("twice", lambda x: 2 * x, "int")
        before = seen(user)
    write_rows(folder)
    (folder / "world.yaml").write_text(TOPOLOGY.replace("FOLDER", str(folder)))
    world = load(folder / "world.yaml")
    script = sql(QUERIES, world.streams, world.sinks)
    plan = plan_queries(world, list(script.queries), "bottom_up", slots=2)
    spark = start_session("beside")
    said = run(spark, plan, folder)
    own = {key: spark.conf.get(key, None) for key in ODD if key.startswith("spark.sql.")}
    said |= {
        "load": sorted((folder / "load-out.jsonl").read_text().splitlines()),
        "own": own,
        "is_own": user is not None and spark is not user,
    }
    spark.stop()
    if user is not None:
        said |= {"before": before, "after": seen(user), "twice": user.sql("SELECT twice(21) AS x").collect()[0]["x"]}
        said["from_rdd"] = user.sparkContext.parallelize([(1,)]).toDF(["a"]).sparkSession is user
    reader = user or start_session("reader")
    kept = reader.read.parquet(str(folder / "lake" / "hours")).select("road", "at", "whole", "text").collect()
    said["lake"] = sorted(repr(tuple(row)) for row in kept)
    reader.stop()
    sys.stdout.write(json.dumps(said) + "\n")


def run(spark: SparkSession, plan: LocalPlan, folder: Path) -> dict[str, Any]:
    """Runs until all tuples have been taken in, however busy the machine is."""
    around = Surroundings(folder, folder / "work")
    streams = plan.catalog.streams
    recordings = {n: Recording(source_for(s, around), s, 10_000) for n, s in streams.items()}
    sinks = {o.name: RecordedSink(sink_for(o, around)) for o in plan.sink_bindings}
    host = Host(HostOptions(folder / "work", 2), spark)
    try:
        host.install(plan.installation)
        host.start()
        host.warm_up()
        host.deliver(plan.sink_bindings, around, sinks)
        host.feeding.begin(streams.values(), around, recordings)
        until = time.monotonic() + 150
        while time.monotonic() < until and (host.feeding.ingest is None or host.feeding.ingest.metrics().rows < 400):
            time.sleep(0.2)
        drained = host.drain(end_streams=True)
        status = host.status()
        checks, _ = check_results(spark, plan.catalog, plan.sink_bindings, recordings, sinks)
    finally:
        host.stop()
    assert status.delivery is not None
    return {
        "problems": status.problems,
        "limits": status.limits,
        "drained": drained,
        "lost": sum(c.lost for c in checks.values()),
        "double": sum(c.double for c in checks.values()),
        "ticks": status.delivery.sink_bindings["beat > lake"].rows,
    }


def seen(user: SparkSession) -> dict[str, Any]:
    """All that is the user's to set."""
    active = SparkSession.getActiveSession()
    return {
        "settings": dict(user.conf.getAll),
        "views": [t.name for t in user.catalog.listTables()],
        "functions": [f.name for f in user.catalog.listFunctions() if f.name == "twice"],
        "is_active": active is user,
        "is_default": SparkSession._instantiatedSession is user,
        "again": SparkSession.builder.getOrCreate() is user,
        "hour": user.sql("SELECT hour(TIMESTAMP_LTZ'2024-01-01 00:00:00Z') AS h").collect()[0]["h"],
        "half": user.sql("SELECT CAST('x' AS INT) AS n").collect()[0]["n"],
        "streams": len(user.streams.active),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "beside")
