"""Files of Spark's Kafka connector: those that were tested are loaded, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from meander.run.channels.flight.client import AwayError
from meander.run.channels.kafka import spark_package
from meander.run.channels.kafka.spark_package import CONNECTOR, TOKENS, TOKENS_VERSION, check_tested


def test_only_files_that_were_tested_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, changed, unknown = (tmp_path / f"{name}.jar" for name in ("good", "changed", "unknown"))
    for path in (good, changed, unknown):
        path.write_bytes(b"classes")
    tested = {"good.jar": hashlib.sha256(b"classes").hexdigest(), "changed.jar": hashlib.sha256(b"others").hexdigest()}
    monkeypatch.setattr(spark_package, "TESTED", tested)
    check_tested([good.as_uri(), str(good)])
    for bad in (changed, unknown):
        with pytest.raises(AwayError, match="not the file that was tested"):
            check_tested([str(good), str(bad)])


def test_the_versions_that_are_fetched_are_those_that_were_tested() -> None:
    for coordinates in (CONNECTOR, f"{TOKENS}:{TOKENS_VERSION}"):
        assert f"{coordinates.replace(':', '_', 1).replace(':', '-')}.jar" in spark_package.TESTED
