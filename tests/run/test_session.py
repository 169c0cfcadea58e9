"""The Spark session: that it starts with our settings and passes Arrow tables through."""

from types import SimpleNamespace
from typing import Self

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from meander.model.errors import OutsideError
from meander.run import session
from meander.run.session import settings, start_session


def test_arrow_in_grouped_arrow_out(spark: SparkSession) -> None:
    table = pa.table({"fragment": [1, 1, 2], "speed": [10.0, 20.0, 5.0]})
    grouped = spark.createDataFrame(table).groupBy("fragment").agg(F.sum("speed").alias("speed"))
    assert grouped.orderBy("fragment").toArrow().to_pydict() == {"fragment": [1, 2], "speed": [30.0, 5.0]}


def test_session_has_the_settings(spark: SparkSession) -> None:
    wanted = settings("meander-tests", cores=2)
    found = {key: spark.sparkContext.getConf().get(key) or "" for key in wanted}
    # Spark puts options of its own before ours.
    java_options = "spark.driver.extraJavaOptions"
    assert found.pop(java_options).endswith(wanted.pop(java_options))
    assert found == wanted


def test_a_running_session_is_returned(spark: SparkSession) -> None:
    assert start_session("another name", cores=1) is spark


class Builder:
    """What settings Spark would start with; it does not."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, key: str, value: str) -> Self:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> SparkSession:  # noqa: N802 - Spark's name
        raise PySparkException("All masters are unresponsive.")


@pytest.mark.parametrize(("master", "is_kept"), [("yarn", False), ("spark://hub:7077", True)])
def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, master: str, is_kept: bool) -> None:
    builder = Builder()
    monkeypatch.setattr(session, "_prepare_environment", lambda *, here: None)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(session, "running_session", lambda: None)
    with pytest.raises(OutsideError, match=f"does not start on {master}: All masters are unresponsive; see that"):
        start_session("elsewhere", cores=1, extra={"spark.master": master})
    assert (session.PLAIN_FILES in builder.settings) is is_kept  # YARN hands out files by another file system


def test_timestamps_are_utc(spark: SparkSession) -> None:
    shown = spark.sql("select cast(timestamp_seconds(0) as string) as t").toArrow()
    assert shown["t"].to_pylist() == ["1970-01-01 00:00:00"]
