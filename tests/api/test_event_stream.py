"""The live stream of a coordinator that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from meander.api.coordinator import Coordinator
from tests.coordinator.world import Browser

Messages = Iterator[tuple[str, str, Any]]


def stream(coordinator: Coordinator, token: str, last: str | None = None, kinds: str | None = None) -> Messages:
    """(id, kind, value) of each message; the greeting has no id."""
    parts = urlsplit(coordinator.address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
    connection.request("GET", "/api/v1/stream" + (f"?kinds={kinds}" if kinds else ""), headers=headers)
    response = connection.getresponse()
    assert (response.status, response.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
    fields: dict[str, str] = {}
    for raw in response:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
    connection.close()


def until_kinds(messages: Messages, wanted: set[str]) -> dict[str, tuple[str, Any]]:
    """The first message of each kind."""
    found: dict[str, tuple[str, Any]] = {}
    for number, kind, value in messages:
        if kind in wanted and kind not in found:
            found[kind] = number, value
        if wanted <= found.keys():
            break
    return found


def test_a_watcher_sees_what_happens_and_can_go_on_later(
    coordinator: Coordinator, operator: Browser, reader_token: str
) -> None:
    messages = stream(coordinator, reader_token)
    _, kind, greeting = next(messages)
    assert (kind, set(greeting)) == ("hello", {"epoch", "last_id"})
    text = "SELECT id, value + 1 AS more FROM noise WHERE value >= 0 INTO side"
    assert operator.ask("POST", "/queries", {"text": text, "name": "watched"}).status == 201
    added = {"event": "node_added", "name": "seen", "kind": "edge"}
    assert operator.ask("POST", "/events", {"events": [added]}).status == 200
    found = until_kinds(messages, {"query", "topology", "moves", "reconfiguration", "metrics"})
    assert found["query"][1]["id"]
    assert {m["operator"] for m in found["moves"][1]}
    assert found["reconfiguration"][1]["status"] in ("under_way", "committed")
    assert set(found["metrics"][1]) == {"at_ms", "queries", "host", "links"}

    first, _ = found["query"]
    again = stream(coordinator, reader_token, first)
    next(again)
    number, _, _ = next(again)
    assert int(number.rsplit("-")[-1]) == int(first.rsplit("-")[-1]) + 1

    removed = stream(coordinator, reader_token, kinds="query_removed")
    next(removed)
    assert operator.ask("DELETE", "/queries/watched").status == 202
    assert next(removed)[1:] == ("query_removed", {"id": "watched"})


def test_positions_that_somebody_tells_are_shown(
    coordinator: Coordinator, operator: Browser, reader_token: str
) -> None:
    messages = stream(coordinator, reader_token, kinds="positions")
    next(messages)
    coordinator.positions({"train": (1.0, 2.0)})
    assert next(messages)[1:] == ("positions", {"train": {"x": 1.0, "y": 2.0}})
    assert operator.get("/positions") == {"train": {"x": 1.0, "y": 2.0}}
