"""Failures: their causes, and the treatment of each.

Data that breaks an expression breaks it again, however often it is tried: its fragment is paused until a user resumes
it. A lost executor, a lost worker or a full disk has nothing to do with the data: the same step is tried again, after a
while. A step that does not fit into memory is tried again with less input. An interrupted job, because its streaming
query is being stopped or Java has ended, counts as no failure.

`SIGNS` is the one place that tells them apart, in this order. Classes of exceptions come first. Texts are searched only
where the class says nothing, because a message may quote a tuple, and tuples may contain any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from meander.run.java_errors import JavaError, causes

LONGEST_REASON = 500
PARTS_SERVER_UNREACHABLE = "meander.run.execution.executors.part.PartsServerUnreachableError"
"""The exception of a task that cannot reach the site."""
WORKER_ENDED = "Python worker exited unexpectedly|Python worker process terminated due to idle timeout"
"""Spark's messages when a worker has ended: it was killed, or a user's function ended it or never returned."""


class Cause(Enum):
    """The cause of a failure."""

    DATA = "data"
    """A tuple, an expression or a user's function; also every failure without a known cause."""
    INFRASTRUCTURE = "infrastructure"
    """An executor, a worker, a disk or a connection."""
    INTERRUPTED = "interrupted"
    """The job was stopped, or Java has ended."""
    MEMORY = "memory"
    """It did not fit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of an error, and its description in a sentence."""

    cause: Cause
    reason: str
    may_be_an_operators: bool = False
    """Whether one operator may be to blame although nothing says so: a worker ended, or memory did not do."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A cause, and its signs: by the name of an exception's class, or by its message."""

    cause: Cause
    names: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None

    def fits(self, each: JavaError) -> bool:
        return each.name in self.names or (self.text is not None and self.text.search(each.message) is not None)


def _named(cause: Cause, *names: str) -> Sign:
    return Sign(cause, frozenset(names))


def _saying(cause: Cause, *texts: str) -> Sign:
    return Sign(cause, text=re.compile("|".join(texts)))


SIGNS: tuple[Sign, ...] = (
    # Failures in a worker's Python: the traceback says which; see `_in_python`.
    _named(Cause.MEMORY, "MemoryError", "ArrowMemoryError"),
    _named(Cause.INFRASTRUCTURE, "PartsServerUnreachableError", "BroughtError"),
    _named(
        Cause.DATA,
        *("PythonException", "SparkArithmeticException", "SparkNumberFormatException", "SparkDateTimeException"),
        *("SparkRuntimeException", "SparkArrayIndexOutOfBoundsException", "SparkIllegalArgumentException"),
        *("SparkUnsupportedOperationException", "SparkNoSuchElementException", "SparkUpgradeException"),
        *("ArithmeticException", "NumberFormatException", "DateTimeException", "AnalysisException", "ParseException"),
        *("ExtendedAnalysisException", "ArrayIndexOutOfBoundsException", "ClassCastException", "NullPointerException"),
        *("UnsupportedOperationException", "DateTimeParseException"),
    ),
    _named(
        Cause.INTERRUPTED,
        *(
            "InterruptedException",
            "ClosedByInterruptException",
            "InterruptedIOException",
            "UncheckedInterruptedException",
        ),
        *("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError"),
    ),
    _saying(
        Cause.INTERRUPTED,
        r"\[SPARK_JOB_CANCELLED\]",
        "cancelled because SparkContext was shut down",
        "stopped SparkContext",
    ),
    _named(Cause.MEMORY, "OutOfMemoryError", "SparkOutOfMemoryError"),
    _saying(
        Cause.MEMORY,
        r"java\.lang\.OutOfMemoryError",
        "UNABLE_TO_ACQUIRE_MEMORY",
        r"bigger than (local )?(spark\.driver\.)?maxResultSize",
    ),
    _named(
        Cause.INFRASTRUCTURE,
        *("ExecutorLostFailure", "FetchFailed", "FetchFailedException", "MetadataFetchFailedException"),
        *("ExecutorDeadException", "TaskKilled", "TaskKilledException", "CommitDeniedException"),
        *("BlockSavedOnDecommissionedBlockManagerException", "BlockNotFoundException", "ShuffleBlockFetchException"),
        *("RpcTimeoutException", "RpcEndpointNotFoundException", "RpcAbortException", "TimeoutException"),
        *(
            "ConnectException",
            "SocketException",
            "SocketTimeoutException",
            "UnknownHostException",
            "NoRouteToHostException",
        ),
        *("ClosedChannelException", "EOFException", "IOException", "FileNotFoundException", "NoSuchFileException"),
        *("FileSystemException", "AccessDeniedException", "UncheckedIOException", "RemoteException"),
        *(
            "OSError",
            "FileNotFoundError",
            "PermissionError",
            "TimeoutError",
            "BlockingIOError",
            "ConnectionAbortedError",
        ),
    ),
    _saying(
        Cause.INFRASTRUCTURE,
        "ExecutorLostFailure",
        WORKER_ENDED,
        "Python worker failed to connect back",
        "failed the maximum allowable number of times",
        "FetchFailed",
        "Missing an output location for shuffle",
        "Failed to get broadcast",
        "Could not find (the )?block",
        "[Ll]ost (executor|worker)",
        "[Ee]xecutor .*(lost|decommission|heartbeat timed out)",
        "Connection reset|Broken pipe|Failed to connect to|Connection refused|Connection from .* closed",
        "No space left on device|Disk quota exceeded|Too many open files|Input/output error",
        "All masters are unresponsive|Master removed our application",
        "cannot run anywhere due to (node and executor|task excluded|executor)",
        "Could not recover from a failed barrier|stage with indeterminate output was failed",
        "Could not execute broadcast in|Futures timed out after",
        "Max number of executor failures|Failed to (fetch|get) (remote )?block",
        "[Bb]lock manager",
    ),
)
"""Ordered: the first sign that fits any exception of the chain decides."""


def failure_of(error: BaseException) -> Failure:
    """The cause of an error."""
    chain = list(_chain(error))
    found = next((sign.cause for sign in SIGNS if any(map(sign.fits, chain))), Cause.DATA)
    ended = found is Cause.INFRASTRUCTURE and any(re.search(WORKER_ENDED, each.message) for each in chain)
    return Failure(found, reason_of(error), ended or found is Cause.MEMORY)


def _chain(error: BaseException) -> Iterator[JavaError]:
    """All exceptions behind an error, those of Python and those of Java; and those that ended a task or a worker."""
    seen: BaseException | None = error
    while seen is not None:
        java = causes(seen)
        yield from _python_names(seen)
        for each in java:
            yield from _with_its_task(each)
        if not java and isinstance(seen, PySparkException | Py4JError):
            yield from _told_in(str(seen))
        seen = seen.__cause__


def _python_names(error: BaseException) -> Iterator[JavaError]:
    """An error under the names of its class and of those above it: an `ENOSPC` is an OSError."""
    for kind in type(error).__mro__:
        if kind in (BaseException, Exception, object):
            return
        yield JavaError(kind.__name__, "")


TRACEBACK = "Traceback (most recent call last):"
_TASK = re.compile(r"most recent failure: Lost task .*?\): (?P<name>[\w.$]+)")
_CLASS = re.compile(r"^(?:Caused by: |: )?(?P<name>(?:[a-z]\w*\.)+[\w$]+)(?:: (?P<message>.*))?$")
_PYTHON = re.compile(r"^(?P<name>[\w.]*(?:Error|Exception|Exit|Interrupt|Warning))(?:: .*)?$")


def _with_its_task(each: JavaError) -> Iterator[JavaError]:
    """An exception, and how a task ended if it says that; for one of a worker what its traceback ends with."""
    task = _TASK.search(each.message)
    if task is not None:
        yield JavaError(_simple(task["name"]), "")
    if _simple(task["name"]) == "PythonException" if task else each.name == "PythonException":
        yield from _in_python(each.message)
        return
    yield each


def _in_python(text: str) -> Iterator[JavaError]:
    """The error that a worker's traceback ends with, where that is not the doing of a function that it ran."""
    ends = [found["name"] for line in text.splitlines() if (found := _PYTHON.match(line.strip()))]
    is_ours = bool(ends) and ends[-1] in ("MemoryError", PARTS_SERVER_UNREACHABLE)
    yield JavaError(_simple(ends[-1]) if is_ours else "PythonException", "")


def _told_in(text: str) -> Iterator[JavaError]:
    """The exceptions that a text names, where there is nothing but a text."""
    lines = text.strip().splitlines()
    found = [JavaError(_simple(m["name"]), m["message"] or "") for line in lines if (m := _CLASS.match(line.strip()))]
    if any(each.name == "PythonException" for each in found):
        yield from _in_python(text)
        return
    for each in found:
        yield from _with_its_task(each)
    if not found:
        yield JavaError("", text)


def _simple(name: str) -> str:
    return name.rsplit(".", 1)[-1].rsplit("$", 1)[-1]


def reason_of(error: BaseException) -> str:
    """The description of an error, without stack traces: the end of a Python traceback, the innermost cause, or the
    first line."""
    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    python = [*_raised(text)] or [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    inner = [line.removeprefix("Caused by: ") for line in lines if re.match(r"Caused by: [\w.$]+: ", line)]
    found = [lines[0], *inner[-1:], *python[-1:]][-1]
    if found is lines[0] and _says_too_little(error):
        found = f"{type(error).__name__}: {found}"
    return found[:LONGEST_REASON]


def _raised(text: str) -> Iterator[str]:
    """The ends of Python tracebacks, whatever the exception's name: the line behind the indented ones."""
    inside = False
    for line in text.splitlines():
        if line.rstrip().endswith(TRACEBACK):
            inside = True
        elif inside and line.strip() and not line[0].isspace():
            inside = False
            yield line.strip()


def _says_too_little(error: BaseException) -> bool:
    """Whether the message of an error needs its name, such as that of a KeyError."""
    return type(error).__module__ == "builtins"
