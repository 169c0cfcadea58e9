"""Rows that devices post to the coordinator's own API: with a token, each batch once, nobody in another's name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meander.api.server import Server
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.tokens import Role, Tokens
from meander.coordinator.service.service import Service
from meander.run.connectors.http_source import API, HttpPush
from tests.coordinator.world import Answer, Browser
from tests.run.connectors.streams import around, stream


class Receiving:
    """A server, and a source behind it whose batches are committed as they come."""

    def __init__(self, directory: Path) -> None:
        self.tokens, self.ids = Tokens(), list[int]()
        self.service = Service(Hub("test"), self.tokens, ChangeReader({}, {}))
        declared = stream("pushed", "ts bigint, id int", nodes=2, options={"connector": "http", "port": API})
        self.source = HttpPush(declared, around(directory))
        self.source.open(declared, None, 0)
        self.service.receivers = {"pushed": self.source}
        self.server = Server(self.service, "127.0.0.1", 0)
        self._arrived, self._ending = threading.Event(), False
        self.source.announce(self._arrived.set)
        self._thread = threading.Thread(target=self._commit, daemon=True)

    def start(self) -> None:
        self.server.start()
        self._thread.start()

    def stop(self) -> None:
        self._ending = True
        self._arrived.set()
        self._thread.join()
        self.source.close()
        self.server.stop()

    def _commit(self) -> None:
        while not self._ending:
            self._arrived.wait()
            self._arrived.clear()
            while (polled := self.source.poll(0, 1_000)) is not None:
                self.ids += polled.table.column("id").to_pylist()
                self.source.committed()

    def user(self, name: str, role: Role) -> Browser:
        return Browser(self.server.address, self.tokens.make(name, role))


@pytest.fixture
def receiving(tmp_path: Path) -> Iterator[Receiving]:
    found = Receiving(tmp_path)
    found.start()
    yield found
    found.stop()


def send(browser: Browser, value: int, number: int | None = None, query: str = "?node=pushed-1", **more: Any) -> Answer:
    headers = {} if number is None else {"Meander-Sequence": str(number)}
    return browser.ask(
        "POST", f"/streams/pushed/rows{query}", [{"ts": value, "id": value}], headers={**headers, **more}
    )


def test_a_device_sends_rows_and_sees_nothing(receiving: Receiving) -> None:
    device = receiving.user("train-7", Role.DEVICE)
    sent = send(device, 1)
    assert (sent.status, sent.json) == (200, {"accepted": 1, "malformed": 0})
    assert receiving.ids == [1]
    assert device.ask("GET", "/topology").status == 403
    assert send(receiving.user("anna", Role.READER), 2).status == 403
    assert send(Browser(receiving.server.address, None), 2).status == 401
    assert receiving.ids == [1]


def test_a_numbered_batch_counts_once_and_another_device_cannot_use_its_name(receiving: Receiving) -> None:
    device, mallory = receiving.user("train-7", Role.DEVICE), receiving.user("train-8", Role.DEVICE)
    assert [send(device, 1, 1).status for _ in range(3)] == [200] * 3
    assert send(mallory, 666, 10**17, **{"Meander-Client": "train-7"}).status == 200, "a client of its own"
    assert send(device, 2, 10**17).status == 409
    assert send(device, 2, 2).status == 200
    assert receiving.ids == [1, 666, 2]


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [("?node=pushed-9", 422, "no producer 'pushed-9'"), ("?node=pushed-1%26x", 422, "no producer 'pushed-1&x'")],
)
def test_mistakes_are_named(receiving: Receiving, query: str, status: int, reason: str) -> None:
    refused = send(receiving.user("train-7", Role.DEVICE), 1, query=query)
    assert (refused.status, reason in refused.json["detail"]) == (status, True)


def test_a_stream_that_is_not_there_or_not_taken_in_says_so(receiving: Receiving) -> None:
    device = receiving.user("train-7", Role.DEVICE)
    missing = device.ask("POST", "/streams/nothing/rows", [])
    assert (missing.status, "streams with it: pushed" in missing.json["detail"]) == (404, True)
    receiving.source.close()
    assert send(device, 1).status == 503
