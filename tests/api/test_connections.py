"""The HTTP server under clients that want it to wait: they lose their places, others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import meander.api.connections as connections
from meander.api.connections import BoundedConnection
from meander.api.server import Server
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.certificates import make
from meander.coordinator.security.tls import Tls
from meander.coordinator.security.tokens import Tokens
from meander.coordinator.service.service import Service

MOST = 6


class FewConnections(BoundedConnection):
    most = MOST


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body; `/slow` takes half a second."""
    assert scope["type"] == "http"
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": str(size % 10).encode()})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(echo, http=FewConnections, lifespan="off", log_config=None, timeout_keep_alive=30)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    listening.close()


def opened(port: int, said: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), 10)
    found.sendall(said)
    return found


def is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1_000) == b""
    except ConnectionResetError:
        return True


def asked(port: int, path: str = "/") -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().status


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
    ],
    ids=["nothing", "half a header", "half a body", "half a chunk"],
)
def test_a_request_that_does_not_end_loses_its_connection(port: int, said: bytes) -> None:
    with opened(port, said) as client:
        assert is_ended(client)
    assert asked(port) == 200


def test_a_byte_now_and_then_gives_no_more_time(port: int) -> None:
    with opened(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n") as client:
        for _ in range(200):
            try:
                client.sendall(b"x")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it was let go on for ten seconds")


def test_a_request_that_takes_long_to_answer_and_one_after_a_pause_are_served(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    for path in ("/slow", "/", "/slow"):
        connection.request("POST", path, b"123")
        assert connection.getresponse().read() == b"3"
        time.sleep(0.4)  # longer than a request may take: it is the time between two that counts


def test_idle_connections_give_way_to_new_ones(port: int) -> None:
    idle = [opened(port) for _ in range(5 * MOST)]
    assert asked(port) == 200
    for each in idle:
        each.close()


def test_an_answer_that_is_under_way_gives_way_to_nobody(port: int) -> None:
    with opened(port, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        time.sleep(0.05)
        idle = [opened(port) for _ in range(3 * MOST)]
        assert b"200 OK" in client.recv(1_000)
        for each in idle:
            each.close()


def test_with_mutual_tls_only_those_with_a_certificate_are_answered(tmp_path: Path) -> None:
    ours, client = make(tmp_path / "ours", ["hub", "anna"])
    (stranger,) = make(tmp_path / "theirs", ["mallory"])
    authority = tmp_path / "ours" / "ca.pem"
    service = Service(Hub("test"), Tokens(), ChangeReader({}, {}))
    server = Server(service, "127.0.0.1", 0, Tls(ours.certificate, ours.key, authority))
    server.start()

    def status(*shown: Path) -> int:
        context = ssl.create_default_context(cafile=str(authority))
        if shown:
            context.load_cert_chain(shown[0], shown[1])
        connection = HTTPSConnection("127.0.0.1", int(server.address.rsplit(":", 1)[1]), timeout=10, context=context)
        connection.request("GET", "/api/v1/health")
        return connection.getresponse().status

    try:
        assert status(client.certificate, client.key) == 200
        for shown in ((), (stranger.certificate, stranger.key)):
            with pytest.raises((ssl.SSLError, OSError)):
                status(*shown)
    finally:
        server.stop()
