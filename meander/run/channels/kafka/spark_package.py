"""Spark's Kafka connector, brought into a session that runs: fetched when it is first needed, not at every start.

A site that shares no broker never looks for it, and one that cannot fetch it says so and goes on trying. The connector
is not released with every Spark; `CONNECTOR` is the newest, and runs on the Spark that we have.
"""

from __future__ import annotations

import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.locks import lock
from meander.run.channels.flight.client import AwayError
from meander.run.java_errors import said

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
TOKENS_VERSION = "4.0.0"
"""The connector's small companion has not changed since, and not every repository has its later releases."""
KNOWN = (
    "org.slf4j:slf4j-api",
    "at.yawk.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "com.google.code.findbugs:jsr305",
)
"""The classes that the connector needs and Spark has."""
PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
QUIET = 0
_fetching = lock("kafka connector")
_threads = threading.local()


def fetch(spark: SparkSession, coordinates: str, *, without: tuple[str, ...] = (), alone: bool = False) -> list[str]:
    """The files of a Maven artifact and, unless it comes alone, of its dependencies; from this user's cache if
    possible.

    Raises AwayError when they cannot be had.
    """
    jvm: Any = spark._jvm
    options = f"transitive={'false' if alone else 'true'}" + (f"&exclude={','.join(without)}" if without else "")
    try:
        jvm.org.apache.ivy.util.Message.setDefaultLogger(jvm.org.apache.ivy.util.DefaultMessageLogger(QUIET))
        uri = jvm.java.net.URI(f"ivy://{coordinates}?{options}")
        found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(uri)
        return [str(found.apply(i)) for i in range(found.size())]
    except Py4JError as error:
        raise AwayError(
            f"{coordinates} cannot be fetched ({said(error)}); let this machine reach Maven's repository once, "
            "or put the files among Spark's jars"
        ) from None


def use(spark: SparkSession) -> None:
    """Lets this thread use the connector, and fetches it if the session lacks it. Raises AwayError if that fails."""
    if getattr(_threads, "spark", None) is spark:
        return
    jvm: Any = spark._jvm
    loader = _session(spark).sharedState().jarClassLoader()
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    with _fetching:
        if not _has(jvm, loader):
            files = fetch(spark, CONNECTOR, without=(*KNOWN, TOKENS))
            files += fetch(spark, f"{TOKENS}:{TOKENS_VERSION}", alone=True)
            try:
                for file in files:
                    _session(spark).sessionState().resourceLoader().addJar(file)
            except (Py4JError, PySparkException) as error:
                raise AwayError(f"Spark does not take its Kafka connector: {said(error)}") from None
    _threads.spark = spark


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _has(jvm: Any, loader: Any) -> bool:
    try:
        jvm.java.lang.Class.forName(PROVIDER, False, loader)
    except Py4JError:
        return False
    return True
