"""A site and a coordinator of the version before: they speak that one's protocol until both are updated."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from meander.membership.client import MembershipClient
from meander.membership.fence import Fence
from meander.membership.http_client import CoordinatorClient, RequestRefusedError
from meander.membership.protocol import OLDEST_PROTOCOL, PROTOCOL, Description

REGISTRATION = {"protocol", "site", "instance", "version", "now_ms", "address", "broker", "nodes", "seen"}
HEARTBEAT = {"session", "protocol", "now_ms", "measures", "seen"}
"""The fields that version 3 had; it refused all others."""


class OlderCoordinator(ThreadingHTTPServer):
    """A coordinator of version 3, or of another one that is as strict; it can be updated."""

    def __init__(self, speaks: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.speaks, self.registered = speaks, list[int]()
        self.beats: dict[int, int] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        spoken, oldest = body["protocol"], self.speaks if self.speaks < PROTOCOL else OLDEST_PROTOCOL
        common = {"epoch": 1, "coordinator": "c", "now_ms": body["now_ms"]}
        if not oldest <= spoken <= self.speaks:
            code = "protocol" if path.endswith("/sites") else "session"
            detail = f"the site speaks version {spoken} of the protocol, the coordinator {self.speaks}; update one"
            return 422 if code == "protocol" else 410, {"code": code, "detail": detail}
        if path.endswith("/sites"):
            assert body.keys() <= REGISTRATION
            self.registered.append(spoken)
            terms = {"session": "s", "heartbeat_ms": 5, "session_timeout_ms": 1_000, "nodes": ["e0"]}
            return 201, {**common, **terms, "protocol": spoken}
        assert body.keys() <= HEARTBEAT
        self.beats[spoken] = self.beats.get(spoken, 0) + 1
        told = {} if self.speaks == OLDEST_PROTOCOL else {"speaks": self.speaks}
        return 200, {**common, "state": "here", "peers": None, **told}


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        assert isinstance(server, OlderCoordinator)
        status, answer = server.answer(self.path, body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def older() -> Iterator[OlderCoordinator]:
    server = OlderCoordinator(OLDEST_PROTOCOL)
    yield server
    server.shutdown()
    server.server_close()


def client_of(server: OlderCoordinator) -> MembershipClient:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    site = Description("edge", ({"name": "e0"},), "grpc://edge:1", "one", "9.9", "hub:9092")
    return MembershipClient(CoordinatorClient(address, "token"), site, Fence())


def beaten(server: OlderCoordinator, version: int) -> None:
    ended = threading.Event()
    for _ in range(3_000):
        if server.beats.get(version, 0) > 2:
            return
        ended.wait(0.01)
    raise AssertionError(f"it does not speak version {version}: {server.beats}")


def test_a_site_speaks_the_version_before_until_its_coordinator_is_updated(older: OlderCoordinator) -> None:
    client = client_of(older)
    client.start()
    try:
        client.wait_joined(30)
        beaten(older, OLDEST_PROTOCOL)
        assert older.registered == [OLDEST_PROTOCOL]
        older.speaks = PROTOCOL
        beaten(older, PROTOCOL)
        assert older.registered == [OLDEST_PROTOCOL, PROTOCOL]
    finally:
        client.stop()


def test_a_coordinator_two_versions_older_is_refused_with_what_to_do(older: OlderCoordinator) -> None:
    older.speaks = OLDEST_PROTOCOL - 1
    client = client_of(older)
    client.start()
    try:
        with pytest.raises(RequestRefusedError, match="version 3 of the protocol, the coordinator 2; update one"):
            client.wait_joined(30)
    finally:
        client.stop()
