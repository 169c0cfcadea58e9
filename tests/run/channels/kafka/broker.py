"""A real Kafka broker for tests: one process that is its own controller, on the loopback interface, killed for real.

It listens twice: for everybody, and with TLS for who has a login.

Its files come from where Spark's packages come from, once for a user; without a network and without that cache the
tests that need it are skipped.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyspark
from pyspark.sql import SparkSession

from meander.coordinator.security import certificates
from meander.run.channels.kafka.spark_package import fetch, use
from meander.run.java import find_java

KAFKA = "org.apache.kafka:kafka_2.13:3.9.2"
CLUSTER = "bWVhbmRlci10ZXN0cy0xMg"
FETCH_S, START_S = 180.0, 120.0
T = TypeVar("T")

SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config={login} user_{user}="{password}";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={directory}/keystore.pem
log.dirs={directory}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USER, PASSWORD = "meander", "a=b;c#d"
CLIENT = """
# How a site shows who it is, and knows the broker.
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={login} username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
"""


class RealBroker:
    """Start it, kill it, start it again with what it had."""

    def __init__(self, directory: Path, jars: list[str]) -> None:
        scala = [str(path) for path in (Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar")]
        self._java = [str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._java += ["-cp", ":".join(jars + scala)]
        self._directory = directory
        port, secure, controller = _free_ports(3)
        self.address, self.secure_address = f"127.0.0.1:{port}", f"127.0.0.1:{secure}"
        (files,) = certificates.make(directory, ["broker"])
        (directory / "keystore.pem").write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        self._settings = directory / "server.properties"
        self._settings.write_text(
            SETTINGS.format(
                port=port, secure=secure, controller=controller, directory=directory,
                login=LOGIN, user=USER, password=PASSWORD,
            )
        )  # fmt: skip
        self._running: subprocess.Popen[bytes] | None = None
        self._do("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._settings))

    def client_settings(self, password: str = PASSWORD) -> Path:
        """A file of settings with which Kafka's clients get in at `secure_address`."""
        path = self._directory / "client.properties"
        path.write_text(CLIENT.format(login=LOGIN, user=USER, password=password, directory=self._directory))
        return path

    def _do(self, *command: str) -> None:
        done = subprocess.run([*self._java, *command], capture_output=True, text=True, timeout=START_S)
        if done.returncode:
            raise RuntimeError(done.stdout[-1000:] + done.stderr[-1000:])

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._settings)]
            self._running = subprocess.Popen(command, stdout=log, stderr=log)
        host, port = self.address.split(":")
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((host, int(port)), 1.0).close()
                return
            except OSError:
                if self._running.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._directory / "log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.05)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()


def real_broker(spark: SparkSession, directory: Path) -> RealBroker:
    """A broker that runs, and a session that can use it; raises when that cannot be had here."""
    files = _within(FETCH_S, lambda: fetch(spark, KAFKA))
    _within(FETCH_S, lambda: use(spark))
    found = RealBroker(directory, files)
    found.start()
    return found


def _within(seconds: float, what: Callable[[], T]) -> T:
    """A machine whose packets go nowhere would make us wait for a very long time."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(what).result(seconds)
    finally:
        pool.shutdown(wait=False)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return found
