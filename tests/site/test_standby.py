"""A fleet of three: a coordinator, its standby, and a site that votes. Real processes that die, or stand still."""

from __future__ import annotations

import json
import signal
import ssl
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from meander.cli.up import STEPPED_DOWN
from meander.coordinator.directory.directory import CoordinatorDirectory
from tests.site.fleet import (
    ROWS,
    SECRETS,
    Fleet,
    Process,
    counts_of,
    counts_query,
    end_rows,
    expected_counts,
    fleet,
    free_port,
    until,
    with_certificate,
    write_rows,
    write_world,
)


class Member:
    """A coordinator that follows another one until it acts."""

    def __init__(self, found: Fleet, name: str, of: str, token: str) -> None:
        self._directory, self.port = found.directory, free_port()
        self.home = CoordinatorDirectory(found.directory / name / "home")
        command = ["up", "--standby", of, "--token", token, "--dir", str(self.home.directory), "--port", str(self.port)]
        self.process = Process(found.directory / name, [*command, *with_certificate(found.directory, name)])
        self.process.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def health(self) -> dict[str, Any]:
        return _health(self._directory, self.port)

    def wait(self, role: str) -> None:
        until(lambda: self.health().get("role") == role and not self.health().get("problems"), lambda: self.process.log)


def _health(directory: Path, port: int) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(directory / SECRETS / "ca.pem"))
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", "/api/v1/health")
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    except (OSError, HTTPException, ValueError):
        return {}
    finally:
        connection.close()


@pytest.mark.slow
def test_standbys_take_over_from_one_that_died_and_one_that_stood_still(tmp_path: Path) -> None:
    """Whatever was known of a coordinator is known by the next one: each result is there once, in one file."""
    topology = write_world(tmp_path, ["noise"])
    with fleet(tmp_path, topology, {"edge": ["e0", "e1", "s0", "s1"]}) as found:
        members: list[Member] = []
        status, made = found.send("POST", "/tokens", {"name": "standby", "role": "admin"})
        assert status == 201
        token = str(made["token"])
        try:
            second = Member(found, "second", found.url, token)
            members.append(second)
            found.submit(counts_query("noise", "out"), "counts")
            write_rows(tmp_path, "noise", 0, 150)
            second.wait("standby")
            until(lambda: bool((_health(tmp_path, found.port).get("standby") or {}).get("in_sync")))
            write_rows(tmp_path, "noise", 150, 300)
            found.wait_for("home", "counts", "out", 40)

            found.coordinator.kill()
            until(lambda: second.health().get("role") == "active", lambda: second.process.log)
            third = Member(found, "third", second.url, token)
            members.append(third)
            write_rows(tmp_path, "noise", 300, 450)
            until(lambda: len(counts_of(second.home.results / "counts-out.jsonl")) >= 70, lambda: second.process.log)
            third.wait("standby")
            until(lambda: bool((second.health().get("standby") or {}).get("in_sync")))

            second.process.signal(signal.SIGSTOP)
            until(lambda: third.health().get("role") == "active", lambda: third.process.log)
            write_rows(tmp_path, "noise", 450, ROWS)
            second.process.signal(signal.SIGCONT)
            assert second.process.wait() == STEPPED_DOWN, second.process.log[-3000:]
            end_rows(tmp_path, "noise")
            until(
                lambda: len(counts_of(third.home.results / "counts-out.jsonl")) >= len(expected_counts()),
                lambda: third.process.log,
            )
            assert counts_of(third.home.results / "counts-out.jsonl") == expected_counts()
            before = counts_of(second.home.results / "counts-out.jsonl")
            assert set(before) <= set(expected_counts())
            assert len(set(before)) == len(before)
        finally:
            for member in members:
                member.process.end()
