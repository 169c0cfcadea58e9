"""The process of a slot's source answers Spark before it imports anything that takes long on a busy machine."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.model.errors import OutsideError
from meander.run.host import Host, HostOptions
from meander.run.slot import LATE, OnBatch, Slot
from meander.run.slot_process import early
from meander.run.slot_worker import SOURCE_RUNNER, compiled_first

SECRET = "a secret of Spark's"
BUSY = """
import os, time
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
"""
"""A PySpark that takes for ever to import, until somebody lets it go."""
RUNNER = """
from pyspark.worker_util import get_sock_file_to_executor
with get_sock_file_to_executor(timeout=None) as file:
    file.write(b"ran" + file.read(4))
    file.flush()
"""


def test_a_process_connects_before_it_imports_pyspark(tmp_path: Path) -> None:
    executable = early(tmp_path)
    assert executable is not None
    package = tmp_path / "modules" / "pyspark"
    (package / "sql" / "streaming").mkdir(parents=True)
    (package / "__init__.py").write_text(BUSY)
    (package / "worker_util.py").write_text("")
    for folder in ("sql", "sql/streaming"):
        (package / folder / "__init__.py").write_text("")
    (package / "sql" / "streaming" / "python_streaming_source_runner.py").write_text(RUNNER)
    go = tmp_path / "go"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        environment = {
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            "GO": str(go),
        }
        process = subprocess.Popen([executable, "-m", SOURCE_RUNNER], env=environment)
        try:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as file:
                (size,) = struct.unpack(">i", file.read(4))
                assert file.read(size).decode() == SECRET
                file.write(struct.pack(">i", 2) + b"ok")
                file.flush()
                (number,) = struct.unpack(">i", file.read(4))
                assert number == process.pid
                assert not go.exists()  # all that was before PySpark is imported
                go.touch()
                file.write(b" now")
                file.flush()
                assert file.read(7) == b"ran now"
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def test_other_modules_run_as_python_would_run_them(tmp_path: Path) -> None:
    executable = early(tmp_path / "with space")
    assert executable is None  # there is no such folder
    (tmp_path / "with space").mkdir()
    executable = early(tmp_path / "with space")
    assert executable is not None
    (tmp_path / "shown.py").write_text("import sys; print(sys.executable, sys.argv[1:], sys.path[0])")
    command: list[str | Path] = [executable, "-m", "shown", "a", "b c"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.strip() == f"{sys.executable} ['a', 'b c'] {tmp_path}"


def test_an_installed_pyspark_is_found_before_the_archive(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "version.py").touch()
    archives = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.zip"]
    assert compiled_first([*archives, "/mine", str(tmp_path)]) == ["/mine", str(tmp_path), *archives]


def test_slots_run_in_processes_that_connect_early(spark: SparkSession, tmp_path: Path) -> None:
    host = Host(HostOptions(tmp_path, slots=2), spark)
    try:
        host.start()
        host.wait_for_slots()
        lines = [Path(f"/proc/{n}/cmdline") for n in os.listdir("/proc") if n.isdigit()]
        shown = [line.read_bytes().decode() for line in lines if line.exists()]
        mine = [text for text in shown if SOURCE_RUNNER in text and "slot_worker.py" in text]
        assert len(mine) >= 2
        assert host.status().problems == ()
    finally:
        host.stop()


def test_a_slot_whose_process_was_late_goes_on_with_its_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(Slot, "start", lambda slot, spark, on_batch: started.append(slot.writer))
    slot = Slot(0, tmp_path)
    kept = slot.directory / "checkpoint" / "offsets"
    kept.mkdir()
    before = slot.writer
    for sign in LATE:
        slot.trouble = f"org.apache.spark.SparkException: Python {sign}."
        slot.revive(spark, lambda batch_id: None)
    assert kept.exists()
    assert started == [before] * len(LATE)
    slot.trouble = "the offset log is damaged"
    slot.revive(spark, lambda batch_id: None)
    assert not kept.exists()
    assert slot.writer != before
    slot.stop()


def test_a_slot_that_never_runs_is_named_with_the_reason(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(slot: Slot, session: SparkSession, on_batch: OnBatch) -> None:
        slot.revivals += 1
        slot.trouble = "Python worker failed to connect back."
        raise OSError("no more processes")

    monkeypatch.setattr(Slot, "start", lambda slot, session, on_batch: None)
    monkeypatch.setattr(Slot, "revive", refuse)
    host = Host(HostOptions(tmp_path), spark)
    try:
        host.start()
        with pytest.raises(OutsideError, match="slot 0 did not begin to run within 1 s: Python worker failed to"):
            host.wait_for_slots(timeout_s=1)
    finally:
        host.stop()
