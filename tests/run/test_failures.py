"""Failures are told apart by what Spark, Java and Python really say."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import ArithmeticException, PySparkException, PythonException

from meander.model.errors import InputError
from meander.run.execution.executors.runner import BroughtError
from meander.run.failures import Cause, failure_of, reason_of


@dataclass
class Java:
    """An exception of Java as Py4J shows it."""

    name: str
    message: str | None
    cause: Java | None = None

    def getClass(self) -> Java:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self.name

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self.message

    def getCause(self) -> Java | None:  # noqa: N802 - Java's name
        return self.cause


class JavaSaidError(PySparkException):
    def __init__(self, *chain: tuple[str, str | None]) -> None:
        super().__init__("An error occurred while calling o242.getResult.")
        java: Java | None = None
        for name, message in reversed(chain):
            java = Java(name, message, java)
        self.java_exception = java


AWAITED = ("SparkException", "Exception thrown in awaitResult: ")


def aborted(reason: str, executor: str = "0") -> tuple[str, str]:
    """A stage that was aborted, as the driver says it: how its last task ended."""
    text = "Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, most recent failure: "
    lost = f"Lost task 1.0 in stage 3.0 (TID 5) (127.0.0.1 executor {executor}): "
    return "SparkException", f"{text}{lost}{reason}\nDriver stacktrace:"


def spark_said(message: str) -> tuple[str, str]:
    return "SparkException", message


WORKER = (
    "Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled' configuration "
    "to 'true' for the better Python traceback."
)
TRACEBACK = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
    '  File "functions.py", line 28, in scale\n    raise {0}\n{0}\n SQLSTATE: 38000'
)

INVALID = '[CAST_INVALID_INPUT] The value \'Connection reset\' of the type "STRING" cannot be cast to "BIGINT"'
LOST = "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with code 137"
OVERFLOW = "[ARITHMETIC_OVERFLOW] Overflow. SQLSTATE: 22003\n== SQL (line 1, position 1) ==\nround(c1, -1)"
RAISED = "[USER_RAISED_EXCEPTION] Python worker exited unexpectedly SQLSTATE: P0001"
FETCH = (
    "Job aborted due to stage failure: ResultStage 4 (toArrow at x.py:1) has failed the maximum allowable number of "
    "times: 4. Most recent failure reason:\norg.apache.spark.shuffle.FetchFailedException"
)
TOO_LARGE = (
    "Job aborted due to stage failure: Total size of serialized results of 2 tasks (1025.0 MiB) is bigger than "
    "spark.driver.maxResultSize (1024.0 MiB)"
)
EXCLUDED = (
    "Job aborted due to stage failure: \nAborting TaskSet 3.0 because task 0 (partition 0)\ncannot run anywhere due to "
    "node and executor excludeOnFailure.\nMost recent failure:\n\n\nExcludeOnFailure behavior can be configured"
)
NOT_AGAIN = (
    "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. However, "
    "Spark cannot rollback the ResultStage 3 to re-process the input data, and has to fail this job."
)
CANCELLED = "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group g SQLSTATE: XXKDA"
IDLE = "Python worker process terminated due to idle timeout (timeout: 120 seconds)"
NO_DOOR = (
    "meander.run.execution.executors.part.PartsServerUnreachableError: grpc://10.0.0.7:4711: Flight returned "
    "unavailable error, with message: failed to connect to all addresses"
)
NO_NUMBER = "org.apache.spark.SparkNumberFormatException"

DATA: dict[str, Exception] = {
    "a number beyond its type": JavaSaidError(("SparkArithmeticException", OVERFLOW)),
    "a text that is no number and quotes a failure": JavaSaidError(
        AWAITED, aborted(f"{NO_NUMBER}: {INVALID}"), ("SparkNumberFormatException", INVALID)
    ),
    "the same, told by a task alone": JavaSaidError(aborted(f"{NO_NUMBER}: {INVALID}")),
    "an expression that raises what it likes": JavaSaidError(("SparkRuntimeException", RAISED)),
    "a function that raises what it likes": JavaSaidError(
        ("PythonException", TRACEBACK.format("ValueError: Connection reset by SocketException OutOfMemoryError"))
    ),
    "a function whose module is missing": JavaSaidError(
        ("PythonException", TRACEBACK.format("ModuleNotFoundError: No module named 'nosuchmodule'"))
    ),
    "a function that calls its own error as ours is called": JavaSaidError(
        ("PythonException", TRACEBACK.format("fleet.DoorUnreachableError: the door of the train is stuck"))
    ),
    "a function that cannot reach a server of its own": JavaSaidError(
        ("PythonException", TRACEBACK.format("pyarrow._flight.FlightUnavailableError: Connection refused"))
    ),
    "Arrow with a value that does not fit and quotes a failure": pa.ArrowInvalid(
        "Could not convert 'Connection reset' with type str: tried to convert to int64"
    ),
    "a channel that is gone": InputError("no channel 7; known channels: 1, 2"),
    "a mistake of ours": KeyError("c7"),
    "an exception of Java, told by a text": PySparkException(
        "An error occurred while calling o1.run.\n: org.apache.spark.SparkArithmeticException: overflow"
    ),
}
INFRASTRUCTURE: dict[str, Exception] = {
    "a lost executor": JavaSaidError(AWAITED, aborted(LOST)),
    "a lost executor, told by a text": PySparkException(
        f"An error occurred.\n: org.apache.spark.SparkException: {aborted(LOST)[1]}"
    ),
    "a worker that crashed": JavaSaidError(
        AWAITED,
        aborted(f"org.apache.spark.SparkException: {WORKER}\n\tat org.apache.spark.api.python", "driver"),
        spark_said(WORKER),
        ("EOFException", None),
    ),
    "a worker that said nothing for too long": JavaSaidError(
        AWAITED,
        aborted(f"org.apache.spark.api.python.PythonWorkerException: {IDLE}", "driver"),
        ("PythonWorkerException", IDLE),
    ),
    "a worker that is too slow to start": JavaSaidError(
        spark_said("Python worker failed to connect back."), ("SocketTimeoutException", "Timed out")
    ),
    "a stage that could not fetch what others wrote": JavaSaidError(spark_said(FETCH)),
    "a disk that is full": JavaSaidError(spark_said("Job aborted"), ("IOException", "No space left on device")),
    "a connection that was reset": JavaSaidError(spark_said("Job aborted"), ("SocketException", "Connection reset")),
    "an executor that does not reach the site": JavaSaidError(
        AWAITED,
        aborted(f"org.apache.spark.api.python.PythonException: {TRACEBACK.format(NO_DOOR)}"),
        ("PythonException", TRACEBACK.format(NO_DOOR)),
    ),
    "executors that are all excluded": JavaSaidError(AWAITED, spark_said(EXCLUDED)),
    "a stage that cannot be computed again as it was": JavaSaidError(AWAITED, spark_said(NOT_AGAIN)),
    "a stage whose tasks have to run together": JavaSaidError(
        spark_said("Job aborted due to stage failure: Could not recover from a failed barrier ResultStage.")
    ),
    "a table that takes too long to hand out": JavaSaidError(
        spark_said("Could not execute broadcast in 300 secs. You can increase the timeout for broadcasts via ...")
    ),
    "an answer that takes too long, told by a text": PySparkException("Futures timed out after [120 seconds]"),
    "a block that is nowhere": JavaSaidError(spark_said("Failed to get block rdd_3_1, which is not a shuffle block")),
    "rows that executors brought and that are gone": BroughtError("executors brought 7 rows, of which 6 are there"),
    "a disk of the driver that is full": OSError(errno.ENOSPC, "No space left on device"),
}
MEMORY: dict[str, Exception] = {
    "too little memory in Java": JavaSaidError(spark_said("Job aborted"), ("OutOfMemoryError", "Java heap space")),
    "too little memory for an operator": JavaSaidError(
        ("SparkOutOfMemoryError", "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory")
    ),
    "a result that is too large to collect": JavaSaidError(spark_said(TOO_LARGE)),
    "a function that needs more memory than there is": JavaSaidError(
        ("PythonException", TRACEBACK.format("MemoryError"))
    ),
    "Arrow without memory": pa.ArrowMemoryError("malloc of size 64 failed"),
}
INTERRUPTED: dict[str, Exception] = {
    "a job that was cancelled": JavaSaidError(AWAITED, spark_said(CANCELLED)),
    "a context that was shut down": JavaSaidError(
        AWAITED, spark_said("Job 8 cancelled because SparkContext was shut down")
    ),
    "a context that is gone": JavaSaidError(
        ("IllegalStateException", "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was")
    ),
    "a query that is being stopped": PySparkException("java.lang.InterruptedException: the query is being stopped"),
    "Java that has ended": ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    "Java that ends just now": Py4JNetworkError("Answer from Java side is empty"),
}
KINDS = {
    Cause.DATA: DATA,
    Cause.INFRASTRUCTURE: INFRASTRUCTURE,
    Cause.MEMORY: MEMORY,
    Cause.INTERRUPTED: INTERRUPTED,
}
"""What was recorded from Spark 4.3, as far as it could be provoked; otherwise as Spark's sources say it."""
RECORDED = {what: (cause, error) for cause, found in KINDS.items() for what, error in found.items()}


@pytest.mark.parametrize("what", RECORDED)
def test_what_is_said_tells_whose_failure_it_is(what: str) -> None:
    cause, error = RECORDED[what]
    assert failure_of(error).cause is cause


ENDED = ("a worker that crashed", "a worker that said nothing for too long")


@pytest.mark.parametrize("what", [*ENDED, *MEMORY])
def test_what_one_operator_may_be_to_blame_for_is_told_from_what_none_is(what: str) -> None:
    _, error = RECORDED[what]
    assert failure_of(error).may_be_an_operators
    others = {w for w, (cause, _) in RECORDED.items() if cause is not Cause.MEMORY} - set(ENDED)
    assert not any(failure_of(RECORDED[w][1]).may_be_an_operators for w in others)


@pytest.mark.parametrize("kind", [ArithmeticException, PythonException])
def test_what_pyspark_has_made_of_an_exception_of_java_counts_as_well(kind: type[Exception]) -> None:
    assert failure_of(kind("[SOME_CLASS] Lost executor 7: Connection reset")).cause is Cause.DATA


def test_a_cause_in_python_counts_as_well() -> None:
    error = RuntimeError("a stage failed")
    error.__cause__ = JavaSaidError(("FetchFailedException", "Failed to connect to 10.0.0.3"))
    assert failure_of(error).cause is Cause.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("c7"), "KeyError: 'c7'"),
        (InputError("no channel 7; known channels: 1"), "no channel 7; known channels: 1"),
        (PySparkException("failed\nCaused by: a.B: first\nCaused by: a.C: second\n\tat x"), "a.C: second"),
        (PySparkException("failed\nTraceback (most recent call last):\nValueError: closed\n"), "ValueError: closed"),
        (PySparkException("failed\nCaused by: a.B: lost\nCaused by: java.io.EOFException\n\tat x"), "a.B: lost"),
        (PySparkException(TRACEBACK.format("SystemExit: 4")), "SystemExit: 4"),
        (PySparkException(TRACEBACK.format("KeyboardInterrupt")), "KeyboardInterrupt"),
        (PySparkException(TRACEBACK.format("MemoryError")), "MemoryError"),
        (PySparkException(TRACEBACK.format("fleet.rules.RoadClosed: a1")), "fleet.rules.RoadClosed: a1"),
        (PySparkException(TRACEBACK.format("pyarrow.lib.ArrowInvalid: no")), "pyarrow.lib.ArrowInvalid: no"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 5_000), f"ValueError: {'x' * 488}"),
    ],
)
def test_reasons_are_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
