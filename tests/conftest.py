"""What all tests share: the hypothesis profile and one Spark session."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from meander.model import locks
from meander.model.durable_files import Files
from meander.run.session import start_session

# Machines differ and share their cores, so no example has a deadline; a failure prints how to repeat it. In CI the same
# examples run every time, so that a change is judged by what it changed; elsewhere every run explores new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.register_profile("dev", deadline=None, print_blob=True, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test that takes the `spark` fixture, so that `-m "not spark"` leaves them all out."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: starting one takes seconds, sharing it nothing."""
    session = start_session("meander-tests", cores=2)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power does not fail under a test, but on a disk of its own."""
    monkeypatch.setattr(Files, "sync", lambda *_: None)
    monkeypatch.setattr(Files, "sync_directory", lambda *_: None)


@pytest.fixture(autouse=True)
def _locks_in_order() -> Iterator[None]:
    """A thread in the background that took locks in a wrong order fails the test during which it did."""
    yield
    found = list(locks.violations)
    locks.violations.clear()
    assert found == []
