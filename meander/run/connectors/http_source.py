"""`http`: rows that others POST, at the coordinator's own API or at a port of the source; the answer comes after the
commit.

A client that names itself and numbers its batches may send a batch again after a failure: a number that is committed is
acknowledged and not taken twice. Without numbers, a batch that is sent again is taken again.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.model.streams import Stream
from meander.run.connectors.base import Polled, SourceKind, Surroundings
from meander.run.connectors.formats import Format, Parsed, joined
from meander.run.connectors.http_batches import NumberedBatches, Numbering, content_of
from meander.run.connectors.http_listener import LOCAL, LOOPBACK, SEQUENCE, HttpListener, ListenerOptions
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import only_here
from meander.run.connectors.rows import Dealer

API = "api"
"""The value of `port` with which a source has none of its own."""
LONGEST_CLIENT, MOST_DIGITS = 200, 18


@dataclass(slots=True)
class PostedRows:
    """A posted batch, and its outcome."""

    rows: list[dict[str, Any]]
    content: str = ""
    producer: int | None = None
    client: str | None = None
    sequence: int = 0
    accepted: int = 0
    malformed: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    committed: bool = False
    on_done: list[Callable[[], None]] = field(default_factory=list)

    def settle(self) -> None:
        """Wakes all who wait for the outcome."""
        self.done.set()
        for told in self.on_done:
            told()


class HttpPush:
    """Implements `SourceConnector`. Requests wait in a queue; `committed` answers those that the last batch held."""

    def __init__(self, stream: Stream, surroundings: Surroundings) -> None:
        options = ConnectorOptions(stream.options, f"stream {stream.name!r}")
        self.stream = stream
        self._has_listener = options.text("port") != API
        self._port = options.whole("port", 0) if self._has_listener else 0
        self._host = options.text("listen", LOOPBACK)
        self._token = options.secret("token")
        base = surroundings.base
        self._pair = [
            options.path(n, base, f"{n}.pem") if n in options.values else None for n in ("certificate", "key")
        ]
        if (self._pair[0] is None) != (self._pair[1] is None):
            raise InputError(f"stream {stream.name!r}: a certificate needs its key; give options certificate and key")
        if self._host not in LOCAL and (self._token is None or self._pair[0] is None):
            raise InputError(
                f"stream {stream.name!r}: others reach {self._host}, so it needs options certificate, key and token; "
                f"or leave `listen` out, and let them post to the coordinator with `port: {API}`"
            )
        self._most_waiting = options.whole("queue", 100_000, least=1)
        self.timeout_s = (options.duration("timeout", 30_000) or 0) / 1000
        self._format = Format(stream)
        self._dealer = Dealer(stream, None)
        self._lock = lock("http source")
        self._queue: deque[PostedRows] = deque()
        self._taken: list[PostedRows] = []
        self._batches = NumberedBatches()
        self._dealt = 0
        self._listener: HttpListener | None = None
        self.is_open = False
        self._arrived: Callable[[], None] = lambda: None

    def announce(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    @property
    def port(self) -> int:
        """The port of the source's own listener while it is open."""
        assert self._listener is not None
        return self._listener.port

    def open(self, stream: Stream, offset: Any | None, clock_ms: int) -> None:
        self.stream = stream
        self._batches = NumberedBatches(offset["clients"] if offset else None)
        self._dealt = int(offset["dealt"]) if offset else 0
        if self._has_listener:
            token = None if self._token is None else self._token.read()
            self._listener = HttpListener(ListenerOptions(self._port, self._host, token, *self._pair), self)
        self.is_open = True

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
            if self._format.node_column is None:
                dealt = self._dealer.in_turn(post.accepted, self._dealt)
                self._dealt += post.accepted if post.producer is None else 0
                producers = dealt if post.producer is None else np.full(post.accepted, post.producer, np.int64)
                parsed = Parsed(parsed.table, producers, parsed.malformed)
            parts.append(parsed)
        with self._lock:
            for post in self._taken:
                if post.client is not None:
                    self._batches.take(post.client, post.sequence, post.content)
            offset = {"clients": self._batches.saved(), "dealt": self._dealt}
        table, producers, malformed = joined(parts, self._format, 0)
        return Polled(table, producers, offset, malformed, more=more)

    def committed(self) -> None:
        with self._lock:
            taken, self._taken = self._taken, []
        for post in taken:
            post.committed = True
            post.settle()

    def close(self) -> None:
        """Requests that wait are told to come again."""
        self.is_open = False
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with self._lock:
            waiting = [*self._taken, *self._queue]
            self._taken = []
            self._queue.clear()
        for post in waiting:
            post.settle()

    # Called by request threads

    def offer(self, post: PostedRows) -> PostedRows | None:
        """Queues a batch, or finds the one it repeats; None if too much waits already.

        Raises NumberConflictError for a number that is neither the client's next one nor a repetition.
        """
        with self._lock:
            if not self.is_open:
                return None
            if post.client is not None:
                waiting = {p.sequence: p for p in (*self._taken, *self._queue) if p.client == post.client}
                contents = {number: each.content for number, each in waiting.items()}
                place = self._batches.numbering(post.client, post.sequence, post.content, contents)
                if place is Numbering.REPEATED and post.sequence in waiting:
                    return waiting[post.sequence]
                if place is Numbering.REPEATED:
                    post.committed = True
                    post.settle()
                    return post
            if sum(len(p.rows) for p in self._queue) >= self._most_waiting:
                return None
            self._queue.append(post)
        self._arrived()
        return post

    def read(self, body: bytes, path: str, client: str | None, sequence: str | None) -> PostedRows:
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
        post = PostedRows(rows)
        if node := parse_qs(urlsplit(path).query).get("node"):
            if node[0] not in self.stream.nodes:
                raise InputError(self._dealer.reason(node[0]))
            post.producer = self.stream.nodes.index(node[0])
        if client is not None:
            if sequence is None or not (sequence.isascii() and sequence.isdecimal()) or len(sequence) > MOST_DIGITS:
                shown = None if sequence is None else sequence[:40]
                raise InputError(f"header {SEQUENCE} is {shown!r}; a client with a name numbers its batches 1, 2, ...")
            if len(client) > LONGEST_CLIENT:
                raise InputError(f"the client's name has more than {LONGEST_CLIENT} characters; choose a shorter one")
            post.client, post.sequence, post.content = client, int(sequence), content_of(body)
        return post


def make(stream: Stream, surroundings: Surroundings) -> HttpPush:
    return HttpPush(stream, surroundings)


KIND = SourceKind(
    make,
    (
        ConnectorOption(
            "port", "where to listen; `api`: nowhere, clients post to the coordinator's own API", "a free one"
        ),
        ConnectorOption("listen", "the address to listen on; another one needs a certificate and a token", LOOPBACK),
        ConnectorOption("token", "where the token is that clients need: `env:NAME` or `secret:PATH`", "none"),
        ConnectorOption("certificate", "a file: the certificate to show", "plain HTTP"),
        ConnectorOption("key", "a file: the key of the certificate"),
        ConnectorOption(
            "node_column", "the key that names the node a row comes from", "`?node=` in the address, or in turn"
        ),
        ConnectorOption("timeout", "how long a request waits for the commit", "30 s"),
        ConnectorOption("queue", "how many rows may wait before requests are answered with 429", "100000"),
    ),
    only_here("rows are sent to that machine"),
)
