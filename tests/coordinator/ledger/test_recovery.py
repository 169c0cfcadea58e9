"""A coordinator that is killed goes on where it was: nothing is lost, nothing is double, no request has two effects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.api.coordinator import running
from meander.coordinator.core.commands import CommandKind, Response
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.options import CoordinatorOptions
from tests.coordinator.world import QUERIES, Browser, expected_counts, expected_large, rows_of, write_world

HANDOVER = [
    {"event": "link_removed", "source": "s0", "target": "e0"},
    {"event": "link_added", "source": "s0", "target": "e1", "latency_ms": 1},
]
BACK = [
    {"at_ms": 0, "event": "link_removed", "source": "s1", "target": "e1"},
    {"at_ms": 0, "event": "link_added", "source": "s1", "target": "e0", "latency_ms": 1},
]
SUBMISSION = {"text": "SELECT id FROM noise WHERE value > 0 INTO out", "name": "extra"}


def until(what: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def results(browser: Browser) -> dict[str, int]:
    return {q["id"]: q["results"] for q in browser.get("/queries")}


def links(browser: Browser) -> set[frozenset[str]]:
    return {frozenset((link["a"], link["b"])) for link in browser.get("/topology")["links"]}


@pytest.mark.slow
def test_a_coordinator_that_is_killed_loses_nothing_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    topology, home = write_world(tmp_path), CoordinatorDirectory(tmp_path / "home")
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.coordinator.crash_child", str(home.directory), str(topology)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        told = announced(home)
        assert told is not None
        browser = Browser(address, told.token)
        until(lambda: results(browser)["large"] > 0)
        moved = browser.ask("POST", "/events", {"events": HANDOVER}, headers={"Idempotency-Key": "handover"})
        submitted = browser.ask("POST", "/queries", SUBMISSION, headers={"Idempotency-Key": "submission"})
        assert (moved.status, submitted.status) == (200, 201)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    delivered = len(rows_of(home.results / "large-out.jsonl"))
    assert 0 < delivered < len(expected_large()), "it was killed too late to show anything"

    ledger = Ledger(home.ledger)  # as if it had been killed once more, between accepting a request and applying it
    with ledger.transaction():
        number = ledger.batches.accept(0, BACK, [])
        ledger.answers.expect("back", "anything", 0, number, Response(CommandKind.BATCH).as_json())
    ledger.close()

    with running(home.directory, None, CoordinatorOptions(port=0), spark) as coordinator:
        browser = Browser(coordinator.address, coordinator.token)
        again = browser.ask("POST", "/events", {"events": HANDOVER}, headers={"Idempotency-Key": "handover"})
        assert (again.status, again.json) == (200, moved.json)
        twice = browser.ask("POST", "/queries", SUBMISSION, headers={"Idempotency-Key": "submission"})
        assert (twice.status, twice.json["id"]) == (201, "extra")
        assert {q["id"] for q in browser.get("/queries")} == {*QUERIES, "extra"}
        assert {frozenset(("s0", "e1")), frozenset(("s1", "e0"))} <= links(browser)
        assert not {frozenset(("s0", "e0")), frozenset(("s1", "e1"))} & links(browser)
        applied = [e["outcome"]["state"] for e in browser.get("/events?since=0")]
        assert set(applied) == {"applied"}
        until(lambda: results(browser)["large"] == len(expected_large()))
        until(lambda: results(browser)["counts"] >= len(expected_counts()))
        assert browser.get("/health")["problems"] == []
    found = rows_of(home.results / "large-out.jsonl")
    assert sorted((row["id"], row["value"]) for row in found) == expected_large()
    counted = rows_of(home.results / "counts-side.jsonl")
    assert sorted((row["n"], row["total"]) for row in counted) == expected_counts()
    remembered = Ledger(home.ledger).answers.find("back")
    assert remembered is not None
    assert remembered.status == 200, json.dumps(remembered.body)


@pytest.mark.slow
def test_a_gateway_that_was_killed_before_a_restart_comes_back_with_its_links(
    spark: SparkSession, tmp_path: Path
) -> None:
    topology, home = write_world(tmp_path), CoordinatorDirectory(tmp_path / "home")
    with running(home.directory, topology, CoordinatorOptions(port=0), spark) as coordinator:
        browser = Browser(coordinator.address, coordinator.token)
        before = links(browser)
        coordinator.events([{"event": "node_removed", "node": node} for node in ("e1", "s1")])
        assert len(links(browser)) == len(before) - 4
    with running(home.directory, None, CoordinatorOptions(port=0), spark) as coordinator:
        browser = Browser(coordinator.address, coordinator.token)
        coordinator.restore(["e1"])
        coordinator.restore(["s1"])
        assert links(browser) == before
