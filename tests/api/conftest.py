"""One coordinator for all tests that only talk to it: starting one takes seconds.

It ends with this package, because a Spark session has room for the slots of one coordinator only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from meander.api.coordinator import Coordinator, running
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.security.failed_logins import FailedLogins
from meander.coordinator.security.tokens import Role
from meander.model.expressions.allowed_functions import allowed
from tests.coordinator.world import Browser, write_world

FIRST = {"steady": "SELECT id, value FROM noise WHERE value >= 0 INTO out DEMAND latency < 60 s, hops <= 9"}
Until = Callable[[Callable[[], Any]], Any]


@pytest.fixture(scope="package")
def coordinator(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    directory = tmp_path_factory.mktemp("coordinator")
    options = CoordinatorOptions(
        port=0,
        functions=allowed(("tests.*", "nowhere.*")),
        first=FIRST,
        samples=[("Everything", FIRST["steady"])],
        session_timeout_ms=600_000,
    )
    with running(directory / "home", write_world(directory), options, spark) as found:
        yield found


@pytest.fixture(autouse=True)
def forgiven(request: pytest.FixtureRequest) -> None:
    """Failed logins of one test make no other one wait."""
    if "coordinator" in request.fixturenames:
        found: Coordinator = request.getfixturevalue("coordinator")
        found.service.authenticator.failed = FailedLogins()


@pytest.fixture
def operator(coordinator: Coordinator) -> Browser:
    return Browser(coordinator.address, coordinator.token)


@pytest.fixture(scope="package")
def reader_token(coordinator: Coordinator) -> str:
    return coordinator.service.authenticator.tokens.make("looker", Role.READER)


@pytest.fixture
def reader(coordinator: Coordinator, reader_token: str) -> Browser:
    return Browser(coordinator.address, reader_token)


@pytest.fixture
def stranger(coordinator: Coordinator) -> Browser:
    return Browser(coordinator.address, None)


@pytest.fixture(scope="session")
def until() -> Until:
    """Waits for something to become true, and gives it; long enough for a machine that has other things to do."""

    def wait(what: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 90
        while not (found := what()):
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)
        return found

    return wait
