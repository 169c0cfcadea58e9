"""Any Structured Streaming source, and any batch sink, by format and options."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget, Stream
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.connectors.base import SinkBinding
from meander.run.delivery.delivery import Delivery
from meander.run.ingest.ingest import Ingest
from meander.run.store.commit import Commit
from meander.run.store.store import Store
from tests.run.connectors.streams import Clock, add_channels, around, channels_for, held, opened, stream

TRIES = 600


def rate(columns: str = "ts timestamp, value bigint", select: str = "timestamp AS ts, value", **more: str) -> Stream:
    options = {"connector": "spark", "format": "rate", "rowsPerSecond": "200", "select": select, **more}
    return stream("s", columns, nodes=2, options=options)


class Rig:
    """Ingest from Spark, which can crash."""

    def __init__(self, path: Path, given: Stream) -> None:
        self.path, self.stream, self.channels = path, given, channels_for(given)
        self.begin()

    def begin(self) -> None:
        self.store = Store.open(self.path / "store")
        add_channels(self.store, self.stream, self.channels)
        self.ingest = Ingest(self.store, [self.stream], self.channels, surroundings=around(self.path))

    def until(self, rows: int) -> None:
        """Ticks until so many rows are in."""
        for _ in range(TRIES):
            self.ingest.tick()
            metrics = self.ingest.metrics()
            assert metrics.streams["s"].paused is None
            if metrics.rows >= rows:
                return
            self.store.wait(self.store.changes, 0.1)
        raise AssertionError(f"only {self.ingest.metrics().rows} rows came")

    def crash(self) -> None:
        self.ingest.stop()
        self.store.close()
        self.begin()

    def values(self) -> list[int]:
        return sorted(v for c in self.channels.values() for v in held(self.store, c[0]).column("value").to_pylist())


def test_rate_comes_in_exactly_once_through_a_restart(tmp_path: Path, spark: SparkSession) -> None:
    rig = Rig(tmp_path, rate())
    rig.until(100)
    before = rig.ingest.metrics().rows
    rig.crash()
    rig.until(before + 100)
    values = rig.values()
    rig.ingest.stop()
    rig.store.close()
    assert values == list(range(len(values)))
    assert len(values) >= 200


def test_types_are_checked_before_the_first_batch(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InputError) as caught:
        opened(rate("ts timestamp, value string"), tmp_path)
    assert str(caught.value) == (
        "stream 's': column 'value' is int64 in Spark's rate source, but string in the stream; "
        "correct the stream's schema or convert the data"
    )
    with pytest.raises(InputError, match=r"stream 's': Spark refuses this source: .*nosuch"):
        opened(rate(format="nosuch"), tmp_path)


def test_checkpoints_that_belong_to_another_stream_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InputError, match="does not hold the notes of the query that was committed"):
        opened(rate(), tmp_path, {"query": "another", "batch": 3, "dealt": 0})


def test_results_written_by_spark_are_there_once_after_a_crash(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema([("_newest", pa.int64()), ("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    options = {"connector": "spark", "format": "parquet", "path": "out/{query}", "compression": "gzip"}
    binding = SinkBinding("q", SinkTarget("s", "cloud", options), ChannelId(1))
    store = Store.open(tmp_path / "store", clock=Clock())
    store.commit(Commit(add=(ChannelSpec(ChannelId(1), schema),)))

    def results(*ids: int) -> None:
        table = pa.table([[0] * len(ids), list(ids), [i * 1000 for i in ids]], schema=schema)
        store.commit(Commit(appends=(ChannelAppend.one(ChannelId(1), table),)))

    results(1, 2)
    assert Delivery(store, [binding], clock=Clock(), surroundings=around(tmp_path)).tick() == 2
    results(3)
    broken = Delivery(store, [binding], clock=Clock(), surroundings=around(tmp_path))
    commit = store.commit

    def crash(given: Commit) -> object:
        if given.consumed:
            raise KeyboardInterrupt
        return commit(given)

    store.commit = crash  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        broken.tick()
    store.commit = commit  # type: ignore[method-assign]
    results(4)
    after = Delivery(store, [binding], clock=Clock(), surroundings=around(tmp_path))
    assert [after.tick(), after.tick()] == [1, 1]
    store.close()
    written = spark.read.parquet(str(tmp_path / "out" / "q")).orderBy("id")
    assert written.columns == ["id", "at", "batch"]
    assert [(r.id, r.batch) for r in written.collect()] == [(1, 0), (2, 0), (3, 2), (4, 3)]
    assert next((tmp_path / "out" / "q" / "batch=000000000000").glob("*.gz.parquet")).exists()
