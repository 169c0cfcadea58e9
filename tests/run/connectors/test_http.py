"""HTTP on loopback: pushed rows are acknowledged after their commit; results are called back with numbers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.coordinator.security.certificates import make
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.connectors.base import SinkBinding
from meander.run.connectors.http_batches import MOST_CLIENTS, MOST_OF_ONE, NumberedBatches, Numbering
from meander.run.connectors.http_listener import MOST_CLIENTS as LISTENER_CLIENTS
from meander.run.connectors.http_source import HttpPush
from meander.run.delivery.delivery import Delivery
from meander.run.ingest.ingest import Ingest
from meander.run.store.commit import Commit
from meander.run.store.store import Store
from tests.run.connectors.streams import Clock, add_channels, around, channels_for, held, stream

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, named, method="POST")
    try:
        with OPENER.open(request, timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Pushed:
    """A stream that is pushed to, with a store that can crash."""

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self.stream = stream("s", "ts bigint, id int", nodes=2, options={"connector": "http", **options})
        self.channels = channels_for(self.stream)
        self.begin()

    def begin(self) -> None:
        self.store = Store.open(self.path / "store", clock=Clock())
        add_channels(self.store, self.stream, self.channels)
        self.source = HttpPush(self.stream, around(self.path))
        self.ingest = Ingest(
            self.store,
            [self.stream],
            self.channels,
            clock=Clock(),
            surroundings=around(self.path),
            sources={"s": self.source},
        )
        self.ingest.tick()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.source.port}/"

    def crash(self) -> None:
        self.source.close()
        self.store.close()
        self.begin()

    def until_done(self, answer: Future[tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
        while not answer.done():
            self.ingest.tick()
        return answer.result()

    def ids(self) -> list[list[int]]:
        return [held(self.store, c[0]).column("id").to_pylist() for c in self.channels.values()]


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    rig = Pushed(tmp_path)
    yield rig
    rig.ingest.stop()
    rig.store.close()


@pytest.fixture
def client() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_rows_are_acknowledged_after_the_commit(pushed: Pushed, client: ThreadPoolExecutor) -> None:
    rows = [{"ts": 1, "id": 1}, {"ts": 2, "id": 2}, {"ts": None, "id": 3}]
    answer = client.submit(post, pushed.url + "?node=s-2", rows)
    assert pushed.until_done(answer) == (200, {"accepted": 2, "malformed": 1})
    assert pushed.ids() == [[], [1, 2]]
    answer = client.submit(post, pushed.url, b'{"ts": 4, "id": 4}\n{"ts": 5, "id": 5}\n')
    assert pushed.until_done(answer)[0] == 200
    assert pushed.ids() == [[4], [1, 2, 5]]


def test_without_a_commit_there_is_no_acknowledgement(tmp_path: Path) -> None:
    rig = Pushed(tmp_path, timeout="50ms")
    status, answer = post(rig.url, [{"ts": 1, "id": 1}])
    assert status == 503
    assert "send this batch again" in answer["error"]
    rig.ingest.stop()


def test_a_numbered_batch_counts_once_however_often_it_is_sent(pushed: Pushed, client: ThreadPoolExecutor) -> None:
    def send(number: int) -> Future[tuple[int, dict[str, Any]]]:
        row = [{"ts": number, "id": number}]
        return client.submit(post, pushed.url + "?node=s-1", row, Meander_Client="c", Meander_Sequence=str(number))

    for number in (1, 1, 2):
        assert pushed.until_done(send(number))[0] == 200
    pushed.crash()
    for number in (2, 3):
        assert pushed.until_done(send(number))[0] == 200
    assert pushed.ids() == [[1, 2, 3], []]


@pytest.mark.parametrize(
    ("path", "body", "headers", "message"),
    [
        ("", b"{", {}, "the body is no JSON"),
        ("", b"[1]", {}, "the body holds something that is no object"),
        ("?node=s-9", b"[]", {}, "no producer 's-9'; known producers: s-2, s-1"),
        ("", b"[]", {"Meander_Client": "c"}, "a client with a name numbers its batches"),
    ],
)
def test_mistakes_are_named(pushed: Pushed, path: str, body: bytes, headers: dict[str, str], message: str) -> None:
    status, answer = post(pushed.url + path, body, **headers)
    assert status == 400
    assert message in answer["error"]


def test_a_full_queue_asks_to_come_again(tmp_path: Path, client: ThreadPoolExecutor) -> None:
    rig = Pushed(tmp_path, queue="1")
    first = client.submit(post, rig.url, [{"ts": 1, "id": 1}])
    while not rig.source._queue:
        pass
    assert post(rig.url, [{"ts": 2, "id": 2}])[0] == 429
    assert rig.until_done(first)[0] == 200
    rig.ingest.stop()


def numbered(rig: Pushed, client: ThreadPoolExecutor, name: str, number: int, value: int) -> int:
    row = [{"ts": value, "id": value}]
    sent = client.submit(post, rig.url + "?node=s-1", row, Meander_Client=name, Meander_Sequence=str(number))
    return rig.until_done(sent)[0]


def test_a_great_number_in_its_name_silences_no_device(pushed: Pushed, client: ThreadPoolExecutor) -> None:
    assert numbered(pushed, client, "c", 1, 1) == 200
    for forged in (3, 1_000_000, 10**17):
        assert numbered(pushed, client, "c", forged, 666) == 409
    assert numbered(pushed, client, "c", 2, 2) == 200
    pushed.crash()
    assert numbered(pushed, client, "c", 10**17, 666) == 409
    assert numbered(pushed, client, "c", 3, 3) == 200
    assert pushed.ids() == [[1, 2, 3], []]


def test_a_batch_that_somebody_else_sent_under_its_number_is_not_taken_for_the_devices(
    pushed: Pushed, client: ThreadPoolExecutor
) -> None:
    assert numbered(pushed, client, "c", 1, 1) == 200
    assert numbered(pushed, client, "c", 2, 666) == 200
    status, answer = post(pushed.url, [{"ts": 2, "id": 2}], Meander_Client="c", Meander_Sequence="2")
    assert (status, "its next number is 3" in answer["error"].lower()) == (409, True)
    for number in range(3, 10):
        assert numbered(pushed, client, "c", number, number) == 200
    assert numbered(pushed, client, "c", 1, 1) == 409, "long ago: it is not known whether it was the same"


def test_clients_without_end_take_no_more_room(pushed: Pushed) -> None:
    batches = NumberedBatches()
    for number in range(MOST_CLIENTS + 50):
        batches.take(f"c{number}", 1, "a")
    assert len(batches.saved()) == MOST_CLIENTS
    owned = NumberedBatches()
    owned.take("other/x", 1, "a")
    for number in range(MOST_OF_ONE + 50):
        owned.take(f"mallory/{number}", 1, "a")
    assert len(owned.saved()) == MOST_OF_ONE + 1
    assert "other/x" in owned.saved()


def test_numbers_of_a_version_before_go_on() -> None:
    batches = NumberedBatches({"c": 7})
    assert batches.numbering("c", 7, "anything", {}) is Numbering.REPEATED
    assert batches.numbering("c", 8, "next", {}) is Numbering.NEXT


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 400),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": "9" * 30}, 411),
        ({"Content-Length": "17000000"}, 413),
        ({"Transfer-Encoding": "chunked"}, 411),
        ({"Meander-Client": "c", "Meander-Sequence": "9" * 5000}, 400),
    ],
)
def test_requests_that_no_device_makes_are_refused(pushed: Pushed, headers: dict[str, str], status: int) -> None:
    with socket.create_connection(("127.0.0.1", pushed.source.port), 10) as raw:
        said = {"Host": "127.0.0.1", "Content-Length": "1", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        raw.sendall(f"POST / HTTP/1.1\r\n{lines}\r\n{{".encode())
        assert raw.makefile("rb").readline().split()[1] == str(status).encode()


def test_clients_that_never_end_their_request_keep_only_so_many_places(
    pushed: Pushed, client: ThreadPoolExecutor
) -> None:
    idle = [socket.create_connection(("127.0.0.1", pushed.source.port), 10) for _ in range(LISTENER_CLIENTS + 20)]
    for each in idle:
        with contextlib.suppress(OSError):  # those for whom there is no room are let go
            each.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n[")
    threads = [t for t in threading.enumerate() if "process_request_thread" in t.name]
    assert len(threads) <= LISTENER_CLIENTS
    for each in idle:
        each.close()
    deadline = time.monotonic() + 20
    while True:  # places come back
        with contextlib.suppress(OSError):
            answer = client.submit(post, pushed.url, [{"ts": 1, "id": 1}])
            assert pushed.until_done(answer)[0] == 200
            break
        assert time.monotonic() < deadline


def test_a_token_is_needed_where_one_is_set(
    tmp_path: Path, client: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_TOKEN", "correct horse")
    rig = Pushed(tmp_path, token="env:FLEET_TOKEN")
    row = [{"ts": 1, "id": 1}]
    assert post(rig.url, row)[0] == 401
    assert post(rig.url, row, Authorization="Bearer wrong")[0] == 401
    assert rig.until_done(client.submit(post, rig.url, row, Authorization="Bearer correct horse"))[0] == 200
    rig.ingest.stop()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listen": "0.0.0.0"}, "needs options certificate, key and token"),
        ({"listen": "0.0.0.0", "token": "env:T"}, "needs options certificate, key and token"),
        ({"certificate": "a.pem"}, "a certificate needs its key"),
        ({"token": "hunter2"}, "is a secret written out"),
    ],
)
def test_a_source_that_would_stand_open_is_refused(tmp_path: Path, options: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as told:
        HttpPush(stream("s", "ts bigint, id int", options=options), around(tmp_path))
    assert "hunter2" not in str(told.value)


def test_rows_come_over_tls_and_a_client_that_never_shakes_hands_keeps_nobody_out(
    tmp_path: Path, client: ThreadPoolExecutor
) -> None:
    (pair,) = make(tmp_path, ["device-hub"])
    rig = Pushed(tmp_path, certificate=str(pair.certificate), key=str(pair.key))
    silent = [socket.create_connection(("127.0.0.1", rig.source.port), 10) for _ in range(5)]
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def send() -> int:
        connection = HTTPSConnection("127.0.0.1", rig.source.port, timeout=20, context=context)
        connection.request("POST", "/", json.dumps([{"ts": 1, "id": 1}]))
        return connection.getresponse().status

    answer = client.submit(send)
    while not answer.done():
        rig.ingest.tick()
    assert answer.result() == 200
    for each in silent:
        each.close()
    rig.ingest.stop()


class Receiver:
    """A server that takes results and fails when it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, list[dict[str, Any]]]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                rows = [json.loads(line) for line in body.splitlines()]
                numbers = int(self.headers["Meander-First-Row"]), int(self.headers["Meander-Rows"])
                receiver.requests.append((*numbers, rows))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_results_are_called_back_with_numbers(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock()
    store = Store.open(tmp_path / "store", clock=clock)
    schema = pa.schema([("_newest", pa.int64()), ("id", pa.int64())])
    store.commit(Commit(add=(ChannelSpec(ChannelId(1), schema),)))
    url = f"http://127.0.0.1:{receiver.server.server_address[1]}/results"
    options = {"connector": "http", "url": url, "backoff": "10ms"}
    delivery = Delivery(store, [SinkBinding("q", SinkTarget("s", "cloud", options), ChannelId(1))], clock=clock)

    def results(*ids: int) -> None:
        table = pa.table([[0] * len(ids), list(ids)], schema=schema)
        store.commit(Commit(appends=(ChannelAppend.one(ChannelId(1), table),)))

    results(1, 2)
    assert delivery.tick() == 2
    receiver.status = 500
    results(3)
    assert delivery.tick() == 0
    results(4)
    receiver.status = 200
    clock.forward(1000)
    assert [delivery.tick(), delivery.tick()] == [1, 1]  # the batch that failed is sent again as it was
    sent = [(first, count, [r["id"] for r in rows]) for first, count, rows in receiver.requests]
    assert sent == [(0, 2, [1, 2]), (2, 1, [3]), (2, 1, [3]), (3, 1, [4])]
    store.close()
