"""Spark's Kafka connector, brought into a session that runs: fetched when it is first needed, not at every start.

A site that shares no broker never looks for it, and one that cannot fetch it says so and goes on trying. The connector
is not released with every Spark; `CONNECTOR` is the newest, and runs on the Spark that we have.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
TESTED = {
    "org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "org.apache.kafka_kafka-clients-3.9.2.jar": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "com.github.luben_zstd-jni-1.5.6-4.jar": "793ca8734aa15687e7e64564eab8b6ae9ee2720eae27aa663074682144b1c386",
    "org.apache.commons_commons-pool2-2.13.1.jar": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
}
"""The files that were tested, by SHA-256: no others are loaded, wherever a repository got them from."""
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


def check_tested(files: Iterable[str]) -> None:
    """Raises unless these are the files that were tested."""
    for file in files:
        path = Path(urlsplit(file).path)
        if hashlib.sha256(path.read_bytes()).hexdigest() != TESTED.get(path.name):
            raise AwayError(
                f"{path} is not the file that was tested, so it is not loaded; remove it to let it be fetched again, "
                "or put files of your own among Spark's jars"
            )


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
            check_tested(files)
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
