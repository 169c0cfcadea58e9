"""The Spark session: that it starts with our settings and passes Arrow tables through."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

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


def test_timestamps_are_utc(spark: SparkSession) -> None:
    shown = spark.sql("select cast(timestamp_seconds(0) as string) as t").toArrow()
    assert shown["t"].to_pylist() == ["1970-01-01 00:00:00"]
