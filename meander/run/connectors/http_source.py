"""`http`: rows that others POST to a small server on this machine; the answer comes after the commit.

A client that names itself and numbers its batches may send a batch again after a failure: a number that is committed is
acknowledged and not taken twice. Without numbers, a batch that is sent again is taken again.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.model.streams import Stream
from meander.run.connectors.base import ConnectorError, Polled, SourceKind, Surroundings
from meander.run.connectors.elsewhere import only_here
from meander.run.connectors.formats import Format, Parsed, joined
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.rows import Dealer

LOOPBACK = "127.0.0.1"
CLIENT, SEQUENCE = "Meander-Client", "Meander-Sequence"
MOST_BYTES = 16_000_000


@dataclass(slots=True)
class Posted:
    """A posted batch, and its outcome."""

    rows: list[dict[str, Any]]
    producer: int | None = None
    client: str | None = None
    sequence: int = 0
    accepted: int = 0
    malformed: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    committed: bool = False


class HttpPush:
    """Implements `SourceConnector`. Requests wait in a queue; `committed` answers those that the last batch held."""

    def __init__(self, stream: Stream, surroundings: Surroundings) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self.stream = stream
        self._wanted_port = options.whole("port", 0)
        self._most_waiting = options.whole("queue", 100_000, least=1)
        self.timeout_s = (options.duration("timeout", 30_000) or 0) / 1000
        self._format = Format(stream)
        self._dealer = Dealer(stream, None)
        self._lock = lock("http source")
        self._queue: deque[Posted] = deque()
        self._taken: list[Posted] = []
        self._clients: dict[str, int] = {}
        self._dealt = 0
        self._server: ThreadingHTTPServer | None = None
        self._arrived: Callable[[], None] = lambda: None

    def announce(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    @property
    def port(self) -> int:
        """The port of the server while the source is open."""
        assert self._server is not None
        return int(self._server.server_address[1])

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self.stream = stream
        self._clients = dict(offset["clients"]) if offset else {}
        self._dealt = int(offset["dealt"]) if offset else 0
        handler = type("Handler", (_Handler,), {"source": self})
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, self._wanted_port), handler)
        except OSError as error:
            raise ConnectorError(f"cannot listen on port {self._wanted_port}: {error}; choose another port") from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http source", daemon=True).start()

    def poll(self, now_ms: int, most_rows: int) -> Polled | None:
        with self._lock:
            rows = 0
            while self._queue and rows < most_rows:
                self._taken.append(self._queue.popleft())
                rows += len(self._taken[-1].rows)
            more = bool(self._queue)
        if not self._taken:
            return None
        parts: list[Parsed] = []
        for post in self._taken:
            parsed = self._format.values(post.rows)
            post.accepted, post.malformed = len(parsed.table), len(parsed.malformed)
            if post.client is not None:
                self._clients[post.client] = post.sequence
            if self._format.node_column is None:
                dealt = self._dealer.in_turn(post.accepted, self._dealt)
                self._dealt += post.accepted if post.producer is None else 0
                producers = dealt if post.producer is None else np.full(post.accepted, post.producer, np.int64)
                parsed = Parsed(parsed.table, producers, parsed.malformed)
            parts.append(parsed)
        table, producers, malformed = joined(parts, self._format, 0)
        return Polled(table, producers, {"clients": dict(self._clients), "dealt": self._dealt}, malformed, more=more)

    def committed(self) -> None:
        with self._lock:
            taken, self._taken = self._taken, []
        for post in taken:
            post.committed = True
            post.done.set()

    def close(self) -> None:
        """Requests that wait are told to come again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._lock:
            waiting = [*self._taken, *self._queue]
            self._taken = []
            self._queue.clear()
        for post in waiting:
            post.done.set()

    # Called by request threads

    def offer(self, post: Posted) -> Posted | None:
        """Queues a batch, or finds the one it repeats; None if too much waits already."""
        with self._lock:
            if post.client is not None:
                for other in (*self._taken, *self._queue):
                    if (other.client, other.sequence) == (post.client, post.sequence):
                        return other
                if post.sequence <= self._clients.get(post.client, -1):
                    post.committed = True
                    post.done.set()
                    return post
            if sum(len(p.rows) for p in self._queue) >= self._most_waiting:
                return None
            self._queue.append(post)
        self._arrived()
        return post

    def read(self, body: bytes, path: str, client: str | None, sequence: str | None) -> Posted:
        """A request as a batch; raises InputError if it is none."""
        try:
            text = body.decode()
            if text.lstrip().startswith("["):
                rows = json.loads(text)
            else:
                rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            raise InputError(f"the body is no JSON: {error}; send an array of objects, or an object a line") from None
        if not all(isinstance(row, dict) for row in rows):
            raise InputError(
                "the body holds something that is no object; send an array of objects, or an object a line"
            )
        post = Posted(rows)
        if node := parse_qs(urlsplit(path).query).get("node"):
            if node[0] not in self.stream.nodes:
                raise InputError(self._dealer.reason(node[0]))
            post.producer = self.stream.nodes.index(node[0])
        if client is not None:
            if sequence is None or not sequence.isdecimal():
                raise InputError(
                    f"header {SEQUENCE} is {sequence!r}; a client with a name numbers its batches 1, 2, ..."
                )
            post.client, post.sequence = client, int(sequence)
        return post


class _Handler(BaseHTTPRequestHandler):
    """One request. `source` is set by the server's own subclass."""

    source: HttpPush
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BYTES:
            self.close_connection = True
            return self._answer(413, {"error": f"more than {MOST_BYTES} bytes; send smaller batches"})
        body = self.rfile.read(length)
        try:
            post = self.source.read(body, self.path, self.headers.get(CLIENT), self.headers.get(SEQUENCE))
        except InputError as error:
            return self._answer(400, {"error": str(error)})
        found = self.source.offer(post)
        if found is None:
            return self._answer(429, {"error": "too many rows wait; send this batch again later"})
        if not found.done.wait(self.source.timeout_s) or not found.committed:
            return self._answer(503, {"error": "not committed yet; send this batch again with the same number"})
        return self._answer(200, {"accepted": found.accepted, "malformed": found.malformed})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are counted, not printed."""


def make(stream: Stream, surroundings: Surroundings) -> HttpPush:
    return HttpPush(stream, surroundings)


KIND = SourceKind(
    make,
    (
        ConnectorOption("port", "where to listen, on 127.0.0.1", "a free one"),
        ConnectorOption(
            "node_column", "the key that names the node a row comes from", "`?node=` in the address, or in turn"
        ),
        ConnectorOption("timeout", "how long a request waits for the commit", "30 s"),
        ConnectorOption("queue", "how many rows may wait before requests are answered with 429", "100000"),
    ),
    only_here("rows are sent to that machine"),
)
