"""The executors' path: rows are fetched and brought by executors, and the result is that of the driver's path."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import meander.run.execution.executors.runner as runner_module
from meander.model.errors import InputError
from meander.run.execution.executors.encryption import certificate_for, own_certificate
from meander.run.execution.executors.part import PartsAddress, PartsServerUnreachableError, _connected, fetching
from meander.run.execution.executors.runner import ROWS_SETTING, ExecutorsRunner, has_executors
from meander.run.execution.executors.server import Attempt, PartsServer
from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import PlainRunner
from meander.run.failures import Cause, failure_of
from tests.run.execution.tasks import CHOSEN, FAST, SUMS, content, task_of

ROWS = pa.table({"a": list(range(10))})


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def server(request: pytest.FixtureRequest) -> Iterator[PartsServer]:
    found = PartsServer("127.0.0.1", None, own_certificate() if request.param else None)
    yield found
    found.shutdown()


def fetched(contact: PartsAddress, batch: str, part: int, parts: int) -> list[int]:
    numbers = iter([pa.RecordBatch.from_pydict({"id": [part]})])
    return [v for found in fetching(contact, batch, 0, parts)(numbers) for v in found.column(0).to_pylist()]


def bring(server: PartsServer, batch: str, attempt: Attempt, rows: pa.Table) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {server.contact.secret}".encode())])
    with _connected(server.contact) as client:
        path = flight.FlightDescriptor.for_path(batch, *map(str, attempt))
        writer, _ = client.do_put(path, rows.schema, options)
        with writer:
            writer.write_table(rows)


def test_every_row_is_in_one_part(server: PartsServer) -> None:
    batch = server.offer([ROWS])
    assert [fetched(server.contact, batch, part, 3) for part in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_only_attempts_that_the_job_names_count(server: PartsServer) -> None:
    """A task that was tried twice has brought its part twice."""
    batch = server.offer([ROWS])
    for attempt, rows in ((Attempt(1, 7), ROWS.slice(5)), (Attempt(0, 5), ROWS), (Attempt(0, 6), ROWS.slice(0, 5))):
        bring(server, batch, attempt, rows)
    found = server.brought(batch, [Attempt(1, 7), Attempt(0, 6)])
    assert pa.Table.from_batches(found).column(0).to_pylist() == list(range(10))
    server.forget(batch)
    bring(server, batch, Attempt(0, 9), ROWS)  # comes too late, and is nobody's
    assert batch not in server._brought


def test_nobody_gets_in_without_the_proof_and_nothing_is_left_when_it_is_over(server: PartsServer) -> None:
    batch = server.offer([ROWS])
    with pytest.raises(PartsServerUnreachableError, match="only executors"):
        fetched(replace(server.contact, secret="guessed"), batch, 0, 1)
    server.forget(batch)
    with pytest.raises(PartsServerUnreachableError, match="nobody waits"):
        fetched(server.contact, batch, 0, 1)


def test_with_a_certificate_only_those_who_got_it_with_the_job_talk() -> None:
    encrypted, other = PartsServer("127.0.0.1", None, own_certificate()), own_certificate()
    batch, contact = encrypted.offer([ROWS]), encrypted.contact
    for wrong in (
        replace(contact, certificate=other.certificate),
        replace(contact, certificate=None, address=contact.address.replace("grpc+tls", "grpc")),
    ):
        with pytest.raises(PartsServerUnreachableError):
            fetched(wrong, batch, 0, 1)
    assert fetched(contact, batch, 0, 1) == list(range(10))
    encrypted.shutdown()


@pytest.mark.parametrize(
    ("settings", "is_encrypted"),
    [({}, False), ({"spark.network.crypto.enabled": "true"}, True), ({"spark.ssl.rpc.enabled": "true"}, True)],
)
def test_executors_talk_encrypted_where_spark_does(settings: dict[str, str], is_encrypted: bool) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: settings))
    assert (certificate_for(session) is not None) is is_encrypted


@pytest.mark.parametrize("text", [FAST, SUMS[0], CHOSEN])
def test_what_executors_bring_is_what_the_driver_gives(
    spark: SparkSession, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of which only some columns travel, an aggregate that meets on executors, and a join with a memory."""
    if text == FAST:
        monkeypatch.setattr(runner_module, "certificate_for", lambda session: own_certificate())
    executors = ExecutorsRunner(spark, least_rows=100)
    runner, plain = PreparedRunner(spark, executors=executors), PlainRunner(spark)
    task = task_of(text, 400)
    assert content(task.stage, runner.run(*task)) == content(task.stage, plain.run(*task))
    assert executors.batches == 1
    small = task_of(text, 30)
    assert content(small.stage, runner.run(*small)) == content(small.stage, plain.run(*small))
    assert executors.batches == 1  # so few rows go with the task
    runner.close()


def test_executors_that_could_not_reach_the_site_were_taken_for_bad_data(spark: SparkSession) -> None:
    executors = ExecutorsRunner(spark, least_rows=100)
    executors.close()
    with pytest.raises(PySparkException) as caught:
        executors.run(lambda frames: frames[0], [ROWS])
    failure = failure_of(caught.value)
    assert failure.cause is Cause.INFRASTRUCTURE
    assert failure.reason.startswith("meander.run.execution.executors.part.PartsServerUnreachableError: grpc://")


def test_from_how_many_rows_on_executors_fetch_can_be_set(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(ROWS_SETTING, "7")
    executors = ExecutorsRunner(other)
    assert executors.least_rows == 7
    executors.close()
    other.conf.set(ROWS_SETTING, "many")
    with pytest.raises(InputError, match="must be a number of rows such as 500000, not 'many'"):
        ExecutorsRunner(other)


def test_this_session_has_no_executors_of_its_own(spark: SparkSession) -> None:
    assert not has_executors(spark)


@pytest.mark.slow
def test_a_host_on_a_cluster_that_loses_an_executor(tmp_path: Path) -> None:
    """Real executors, one of which is killed while a batch is under way: the results are the oracle's."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.run.cluster", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["drained"], told
    assert not told["problems"], told
    assert told["killed"] == 2, told
    assert told["batches"] >= 4, told
    assert told["equal"] == {"fast": True, "load": True}, told
    assert min(told["expected"].values()) > 10
