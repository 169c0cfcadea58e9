"""A Kafka broker as a site uses it: records go through Spark's sink and source, topics through Kafka's own client.

The client is the connector's, in Spark's Java. Every failure raises AwayError with the broker's address, soon: no
caller waits minutes for a broker that does not answer.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX, Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from meander.model.locks import lock
from meander.run.channels.flight.client import AwayError
from meander.run.channels.kafka.address import addresses
from meander.run.channels.kafka.spark_package import use
from meander.run.java_errors import innermost, said

MOST_RECORD_BYTES = 64_000_000
"""A single tuple may be large; records are usually kept far smaller."""
TOPIC = {
    "retention.ms": "-1",  # the reader lets go of what it has
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "segment.bytes": "67108864",
    "max.message.bytes": str(MOST_RECORD_BYTES),
}
CLIENT = {
    "request.timeout.ms": "8000",
    "default.api.timeout.ms": "10000",
    "reconnect.backoff.max.ms": "1000",
}
PRODUCER = {
    "acks": "all",
    # Sequence numbers make repeated records harmless; only their order counts.
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1",
    "max.request.size": str(MOST_RECORD_BYTES),
    "buffer.memory": str(2 * MOST_RECORD_BYTES),
    "max.block.ms": "10000",
    "request.timeout.ms": "8000",
    "delivery.timeout.ms": "20000",
}
CONSUMER = {
    # Under a name that stays the same Spark keeps the consumer for the next read; no other reader uses the group.
    "group.id": "meander",
    "request.timeout.ms": "8000",
    "default.api.timeout.ms": "10000",
}
POLL_MS = "20000"
RECORDS_TO_DELETE = "org.apache.kafka.clients.admin.RecordsToDelete"
REMEDY = "look at the settings of Kafka's clients that --broker-settings names"
CONNECT_S, ANSWER_S = 2.0, 30
ROWS = pa.schema([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """A topic: which one it is, should it be made anew, and the offsets that it has."""

    id: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerMessage:
    topic: str
    offset: int
    key: bytes
    value: bytes


class Broker:
    """One broker, from any thread."""

    def __init__(self, spark: SparkSession, address: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are more settings of Kafka's clients, such as how to show who we are."""
        self.address = address
        self._spark, self._settings = spark, {"bootstrap.servers": address, **(settings or {})}
        self._lock = lock("broker")
        self._client: Any = None
        self._in_doubt = True

    # ---------------------------------------------------------------- records

    def write(self, records: Sequence[tuple[str, bytes, bytes]]) -> None:
        """Appends records (topic, key, value) in this order; all are on the broker's disks when it returns."""
        columns = list(zip(*records, strict=True))
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)], schema=ROWS)
        with self._asking():
            frame = self._spark.createDataFrame(table).coalesce(1)
            frame.write.format("kafka").options(**self._options(PRODUCER)).save()

    def read(self, spans: Mapping[str, tuple[int, int]]) -> list[BrokerMessage]:
        """The records of topics from an offset up to another, in order."""
        first, stop = ({topic: {"0": span[i]} for topic, span in spans.items()} for i in range(2))
        options = {
            **self._options(CONSUMER),
            "subscribe": ",".join(spans),
            "startingOffsets": json.dumps(first),
            "endingOffsets": json.dumps(stop),
            "kafkaConsumer.pollTimeoutMs": POLL_MS,
        }
        with self._asking():
            frame = self._spark.read.format("kafka").options(**options).load()
            found = frame.select("topic", "offset", "key", "value").toArrow().to_pylist()
        records = [BrokerMessage(r["topic"], r["offset"], r["key"] or b"", r["value"] or b"") for r in found]
        return sorted(records, key=lambda r: (r.topic, r.offset))

    def _options(self, more: Mapping[str, str]) -> dict[str, str]:
        return {f"kafka.{key}": value for key, value in {**more, **self._settings}.items()}

    # ---------------------------------------------------------------- topics

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of topics, which differ from those of earlier topics of the same name; missing topics are left
        out."""
        found: dict[str, str] = {}
        with self._asking() as client:
            futures = client.describeTopics(list(topics)).topicNameValues()
            for topic in topics:
                with _unless("UnknownTopicOrPartitionException"):
                    found[topic] = str(self._got(futures.get(topic)).topicId().toString())
        return found

    def spans(self, topics: Collection[str]) -> dict[str, OffsetSpan]:
        """The topics that are there, with the offsets that they have now."""
        found = self.ids(topics)
        if not found:
            return {}
        with self._asking() as client:
            spec, parts = self._jvm.org.apache.kafka.clients.admin.OffsetSpec, {t: self._part(t) for t in found}
            begins, ends = (
                client.listOffsets(self._map((part, at) for part in parts.values()))
                for at in (spec.earliest(), spec.latest())
            )
            spans = {}
            for topic, part in parts.items():
                with _unless("UnknownTopicOrPartitionException"):  # it went meanwhile
                    offsets = [int(self._got(each.partitionResult(part)).offset()) for each in (begins, ends)]
                    spans[topic] = OffsetSpan(found[topic], *offsets)
        return spans

    def make(self, topic: str) -> None:
        """A topic with one partition that keeps its records; no effect if it is there."""
        with self._asking() as client, _unless("TopicExistsException"):
            optional = self._jvm.java.util.Optional
            new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, optional.of(1), optional.empty())
            self._got(client.createTopics([new.configs(self._map(TOPIC.items()))]).all())

    def delete(self, topic: str) -> None:
        with self._asking() as client, _unless("UnknownTopicOrPartitionException"):
            self._got(client.deleteTopics([topic]).all())

    def trim(self, offsets: Mapping[str, int]) -> None:
        """Lets the broker forget records before these offsets."""
        # A static method beside one of the same name that is not: Py4J has to be told which.
        before = JavaMember("beforeOffset", None, STATIC_PREFIX + RECORDS_TO_DELETE, self._jvm._gateway_client)
        with self._asking() as client, _unless("UnknownTopicOrPartitionException"):
            wanted = self._map((self._part(topic), before(offset)) for topic, offset in offsets.items())
            self._got(client.deleteRecords(wanted).all())

    # ---------------------------------------------------------------- asking

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Kafka's client; after a failure only when the broker's port is open, as it would go on trying in silence."""
        use(self._spark)
        if self._in_doubt:
            self._knock()
        try:
            yield self._connected()
            self._in_doubt = False
        except (Py4JError, PySparkException) as error:
            self._in_doubt = True
            raise AwayError(self._problem(error)) from None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                settings = self._map({**CLIENT, **self._settings}.items())
                self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            return self._client

    def _knock(self) -> None:
        """Raises unless the broker's port is open."""
        reason = ""
        for host, port in addresses(self.address):
            try:
                socket.create_connection((host, port), CONNECT_S).close()
                return
            except OSError as error:
                reason = error.strerror or str(error)
        raise AwayError(f"no answer from the broker at {self.address} ({reason}); is it up?")

    def _problem(self, error: Exception) -> str:
        what, reason = innermost(error), said(error)
        if what == "SaslAuthenticationException":
            return f"the broker at {self.address} refuses the login ({reason}); {REMEDY}"
        if what.startswith(("Ssl", "SunCertPath", "CertPath", "Certificate")):
            return f"there is no TLS with the broker at {self.address} ({reason}); {REMEDY}"
        return f"no answer from the broker at {self.address} ({reason}); is it up?"

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(Py4JError):
                client.close(self._jvm.java.time.Duration.ZERO)

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _got(self, future: Any) -> Any:
        return future.get(ANSWER_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _part(self, topic: str) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, 0)

    def _map(self, items: Any) -> Any:
        found = self._jvm.java.util.HashMap()
        for key, value in items:
            found.put(key, value)
        return found


@contextmanager
def _unless(kind: str) -> Iterator[None]:
    """Passes over an answer that says no more than that nothing is to be done."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        if cause is None or cause.getClass().getSimpleName() != kind:
            raise
