"""A small demo that runs on the shared Spark session, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from meander.api.coordinator import Coordinator
from meander.demo.demo import Demo, DemoOptions
from meander.demo.queries import QUERIES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START_S = 120.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class RunningDemo:
    """A demo in a thread of its own."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        queries = {name: QUERIES[name] for name in ("slow_trains", "station_load")}
        options = DemoOptions(
            trains=4, port=0, incidents=False, adapt=False, mechanism="bottom_up", queries=queries
        )  # tests look for operators where this one places them
        self.demo = Demo(directory, options, lambda text: None, spark=spark)
        self.up = threading.Event()
        self.failure: BaseException | None = None
        self.coordinator: Coordinator | None = None
        self.thread = threading.Thread(target=self._run, name="demo", daemon=True)

    def start(self) -> Coordinator:
        self.thread.start()
        assert self.up.wait(START_S), "the demo did not start"
        if self.failure is not None:
            raise self.failure
        assert self.coordinator is not None
        return self.coordinator

    def end(self) -> None:
        self.demo.enough.set()
        self.thread.join(START_S)

    def _run(self) -> None:
        try:
            self.demo.run(self._shown)
        except BaseException as error:
            self.failure = error
        finally:
            self.up.set()

    def _shown(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.up.set()


@pytest.fixture(scope="package")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    running = RunningDemo(tmp_path_factory.mktemp("demo"), spark)
    running.start()
    yield running
    running.end()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window. `scripts/browser.sh` installs one where that is possible."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; run make setup")
    with playwright.sync_playwright() as tools:
        try:
            browser = tools.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        except playwright.Error as error:
            if os.environ.get("MEANDER_CHROMIUM"):
                raise
            reason = str(error).strip().splitlines()[0]
            pytest.skip(f"no Chromium that starts here ({reason}); run scripts/browser.sh --again")
        yield browser
        browser.close()


def chromium() -> str | None:
    """A Chromium: the one that was asked for, or the system's; None for playwright's own."""
    return os.environ.get("MEANDER_CHROMIUM") or next((p for n in NAMES if (p := shutil.which(n))), None)
