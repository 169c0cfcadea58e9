"""A user's Spark session as host: Meander runs on a session of its own beside it, and changes nothing in the user's.

Sessions of one Spark share its context and have settings, views and sources of their own. So the settings that SQL
takes at any time are set on a new session. Those that only a context takes when it starts cannot be had any more:
`limits` says which ones differ from those in `session.settings`, and the cost of each. Everything works without them.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from pyspark.core.rdd import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin

from meander.model.errors import InputError

_log = logging.getLogger(__name__)

COSTS: Mapping[str, str] = {
    "spark.sql.codegen.cache.maxEntries": "with many distinct queries every step compiles its plans again",
    "spark.driver.extraJavaOptions": "a slot may overflow Java's stack when it stops; add -Xss16m",
    "spark.scheduler.mode": "large batches wait for other jobs of this Spark instead of sharing its cores",
    "spark.default.parallelism": "stages that are not prepared are cut into more parts than they need",
    "spark.hadoop.fs.file.impl": "Spark's own checkpoints take a few milliseconds longer",
    "spark.python.authenticate.socketTimeout": "on a busy machine a slot starts over when Python answers late",
    "spark.python.worker.faulthandler.enabled": "less is known when a Python worker ends",
    "spark.rpc.message.maxSize": "a batch that runs as a job must be smaller",
}
"""The cost of a differing setting that only a new context takes; settings that are not named cost nothing."""

LONG = 100
"""Settings that are longer are not shown."""
KEPT = tuple(
    f"spark.sql.{name}"
    for name in ("avro.", "catalog.", "files.", "hive.", "orc.", "parquet.", "sources.", "streaming.", "warehouse.")
)
"""Settings by which sources and sinks of the user's Spark are found and read: they hold for Meander as well."""


class GuestSession(SparkSession):
    """A session beside a user's own; it never becomes the active one of a thread, nor the default."""

    limits: tuple[str, ...] = ()
    """Settings that the user's context has otherwise, with the costs."""
    to_frame: Any = None
    """The original conversion of the user's RDDs to frames."""

    def createDataFrame(  # noqa: N802 - Spark's name
        self, data: Any, *more: Any, **named: Any
    ) -> DataFrame:
        """PySpark's makes the session the active one first, for the whole process. Arrow tables need none of that."""
        if isinstance(data, pa.Table) and not more and not named:
            return SparkConversionMixin.createDataFrame(self, data)
        active = SparkSession._activeSession
        try:
            return super().createDataFrame(data, *more, **named)
        finally:
            self._activate(active)

    def _activate(self, session: SparkSession | None) -> None:
        SparkSession._activeSession = session
        sessions = SparkSession._get_j_spark_session_class(cast(Any, self._jvm))
        if session is None:
            sessions.clearActiveSession()
        else:
            sessions.setActiveSession(session._jsparkSession)

    @contextmanager
    def as_active(self) -> Iterator[None]:
        """Inside, requests of this thread to Spark that name no session (a type's text, say) use this one's
        settings; Spark would take the user's. Python is told nothing: there the active session is one for all
        threads."""
        sessions = SparkSession._get_j_spark_session_class(cast(Any, self._jvm))
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._jsparkSession)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def newSession(self) -> GuestSession:  # noqa: N802 - Spark's name
        """Another one with the same settings: Spark's own would have the user's again."""
        found = _made(self)
        for key, value in self.conf.getAll.items():
            if self.conf.isModifiable(key) and found.conf.get(key, None) != value:
                found.conf.set(key, value)
        found.limits, found.to_frame = self.limits, self.to_frame
        found.leave_rdds()
        return found

    def leave_rdds(self) -> None:
        """RDDs become frames of the user's session again: PySpark takes the session that it has wrapped last."""
        if self.to_frame is not None:
            RDD.toDF = self.to_frame  # type: ignore[method-assign]

    def stop(self) -> None:
        """The context is the user's to stop."""


def guest_of(user: SparkSession, wanted: Mapping[str, str]) -> GuestSession:
    """A session beside the user's with these settings; settings that cannot be made any more are logged with their
    costs."""
    if not hasattr(user, "_jsparkSession"):
        raise InputError(
            "Meander runs inside Spark's driver, and this session is one of Spark Connect; give a classic one"
        )
    found = _made(user)
    for key in found.conf.getAll:
        if (
            key.startswith("spark.sql.")
            and not key.startswith(KEPT)
            and key not in wanted
            and found.conf.isModifiable(key)
        ):
            found.conf.unset(key)
    own = {key: value for key, value in user.conf.getAll.items() if key.startswith("spark.meander.")}
    for key, value in wanted.items():
        if found.conf.isModifiable(key):
            own.setdefault(key, value)
    for key, value in own.items():
        found.conf.set(key, value)
    found.limits = tuple(_limits(user, wanted))
    for limit in found.limits:
        _log.warning("beside a Spark session that is not Meander's: %s", limit)
    return found


def _made(beside: SparkSession) -> GuestSession:
    """A new session of the same context."""
    to_frame = getattr(RDD, "toDF", None)
    found = GuestSession(beside.sparkContext, cast(Any, beside._jsparkSession).newSession())
    found.to_frame = to_frame
    found.leave_rdds()
    return found


def _limits(user: SparkSession, wanted: Mapping[str, str]) -> list[str]:
    context = user.sparkContext.getConf()
    found: list[str] = []
    for key, cost in COSTS.items():
        value, given = wanted.get(key), context.get(key)
        if value is None or user.conf.isModifiable(key) or _holds(key, given, value):
            continue
        has = f"is {given or 'not set'} instead of {value}" if len(given or "") < LONG else f"lacks {value}"
        found.append(f"{key} {has}: {cost}")
    python = _worker_python(user)
    if python != sys.executable:
        found.append(
            f"Python workers run {python} instead of {sys.executable}: slots start only if Meander is installed there "
            "too; set PYSPARK_PYTHON before Spark starts"
        )
    return found


def _worker_python(user: SparkSession) -> str:
    """The executable with which Spark starts its Python workers."""
    jvm = cast(Any, user._jvm)
    named = user.sparkContext.getConf().get("spark.pyspark.python") or jvm.java.lang.System.getenv("PYSPARK_PYTHON")
    return shutil.which(named or "python3") or str(named)


def _holds(key: str, given: str | None, wanted: str) -> bool:
    if key == "spark.driver.extraJavaOptions":
        return "-Xss" in (given or "")
    if given is not None and given.isdecimal() and wanted.isdecimal():
        return int(given) >= int(wanted) if key.endswith(("maxEntries", "maxSize")) else given == wanted
    return given == wanted
