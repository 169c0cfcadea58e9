"""HTTP on loopback: pushed rows are acknowledged after their commit; results are called back with numbers."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.connectors.base import SinkBinding
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
