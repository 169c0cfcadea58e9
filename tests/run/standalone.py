"""A cluster of Spark for tests: a master and a worker of its own standalone mode, each a process on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from meander.run.java import java_home_for_spark
from meander.run.session import LOOPBACK

DEPLOY = "org.apache.spark.deploy"
TIMEOUT_S = 120.0


@contextmanager
def standalone(directory: Path, cores: int, memory: str) -> Iterator[str]:
    """The address of a master whose one worker has these cores; both end with the block, and executors with them."""
    directory.mkdir(parents=True, exist_ok=True)
    common = ["--host", LOOPBACK, "--webui-port", "0"]
    started = []
    try:
        log = directory / "master.log"
        started.append(_start(log, ["master.Master", *common, "--port", "0"]))
        master = _said(log, r"Starting Spark master at (spark://\S+)")
        log = directory / "worker.log"
        sizes = ["--cores", str(cores), "--memory", memory, "--work-dir", str(directory / "work")]
        started.append(_start(log, ["worker.Worker", master, *common, *sizes]))
        _said(log, r"Successfully registered with (master)")
        yield master
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(log: Path, command: list[str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(home)}
    environment |= {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as file:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"{DEPLOY}.{command[0]}", *command[1:]],
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )


def _said(log: Path, pattern: str) -> str:
    """What a log says at a place that has to come."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
    return found[1]
