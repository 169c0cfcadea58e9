"""The plain Spark baseline gives the oracle's rows, so that both sides of an experiment compute the same."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lab.baselines.plain_spark import collect, compiled, read_files
from meander.model.errors import InputError
from meander.run.frames import NEWEST, arrow_schema
from meander.run.oracle.batch import oracle
from meander.run.oracle.comparison import compare
from tests.run.harness import CARS, RAIN, STREAMS, queries, rows_of

QUERIES = """
CREATE QUERY fast AS SELECT id, speed * 3.6 AS kmh, road FROM cars WHERE speed > 10 INTO one;
CREATE QUERY load AS SELECT road, count(*) AS n, avg(speed) AS v, max(speed) AS top FROM cars WHERE id < 3
  GROUP BY road WINDOW SLIDING(ts, 2 s, 1 s) INTO two;
CREATE QUERY wet AS SELECT a.id, a.speed, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road AND a.speed > b.mm
  WITHIN 1 s INTO three;
CREATE QUERY bursts AS SELECT id, count(*) AS n, top_k(speed, 2) AS best FROM cars WHERE id < 3
  GROUP BY id WINDOW SESSION(ts, 300 ms) INTO one;
CREATE QUERY both AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WINDOW TUMBLING(1 s) INTO two;
"""
DISORDER_MS = 300
LAST = {
    "cars": pa.table({"ts": [10**7], "id": [0], "road": ["end"], "speed": [0.0]}, schema=arrow_schema(CARS)),
    "rain": pa.table({"ts": [2 * 10**7], "road": ["stop"], "mm": [0.0]}, schema=arrow_schema(RAIN)),
}
"""Far ahead, and in no result: Spark has no end of a stream, so time must go on for windows to close. They pass the
filters before windows, because Spark filters before it looks at the time."""


def write_batches(directory: Path, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Three batches of each stream, out of order within the disorder; then the last tuple."""
    inputs = {}
    for stream in ("cars", "rain"):
        parts = []
        for batch in range(3):
            newest = np.sort(rng.integers(0, 1500, 40)) + 2000 * batch + 1000
            parts.append(rows_of(stream, rng, newest - rng.integers(0, DISORDER_MS, 40)))
        for number, part in enumerate([*parts, LAST[stream]]):
            path = directory / stream / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, path)
            os.utime(path, (number, number))  # Spark takes files in the order of their times
        inputs[stream] = pa.concat_tables(parts)
    return inputs


@pytest.mark.slow
def test_native_operators_give_the_rows_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    inputs = write_batches(tmp_path, np.random.default_rng(3))
    frames = {name: read_files(spark, STREAMS[name], tmp_path / name) for name in inputs}
    for query in queries(QUERIES):
        for sink, frame in compiled(query.plan, frames, DISORDER_MS, newest=True).items():
            found: list[pa.Table] = []
            running = collect(frame, found.append, tmp_path / f"checkpoint {query.id}", availableNow=True)
            running.awaitTermination()
            rows = pa.concat_tables(found)
            assert rows.column(NEWEST).null_count == 0
            comparison = compare(oracle(spark, query.plan, inputs, DISORDER_MS)[sink], rows)
            assert comparison.equal, (query.id, comparison)
            assert comparison.expected > 5


def test_what_spark_has_no_operator_for_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "cars").mkdir()
    frames = {"cars": read_files(spark, STREAMS["cars"], tmp_path / "cars")}
    counted, nested = queries("""
    CREATE QUERY counted AS SELECT id, count(*) AS n FROM cars GROUP BY id WINDOW COUNT(5) INTO one;
    CREATE QUERY nested AS SELECT id, max(n) AS most FROM (SELECT id, count(*) AS n FROM cars
      GROUP BY id WINDOW TUMBLING(ts, 1 s)) AS x GROUP BY id WINDOW TUMBLING(5 s) INTO two;
    """)
    with pytest.raises(InputError, match="no count windows"):
        compiled(counted.plan, frames)
    with pytest.raises(InputError, match="one such operator on each path"):
        compiled(nested.plan, frames)
