"""A relay: one hop of a migration query, as a process of its own. It knows nothing about state.

    python -m meander.reconfigure.state.relay --bandwidth-mbps 200 --latency-ms 2

Whoever connects names the rest of the path; the relay connects to the next address and passes on what comes, block by
block, or with `whole` forwarding once everything has come. It keeps nothing: after a break the sender and the sink know
where to resume. The first line on standard output is the address it listens at.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from contextlib import suppress
from typing import Protocol

from meander.reconfigure.state.hops import Forwarding, Hop
from meander.reconfigure.state.link import BLOCK_BYTES, PacedLink
from meander.reconfigure.state.wire import (
    Address,
    Head,
    MessageKind,
    Opening,
    WireError,
    connected,
    hang_up,
    message,
    part,
    read_body,
    read_head,
    shown,
    tuned,
)

CONNECT_TIMEOUT_S = 5.0


class Relay:
    """Listens, and relays each connection in threads of its own. `hop` is the link that leaves it."""

    def __init__(self, hop: Hop | None = None, listen: Address = ("127.0.0.1", 0), name: str = "relay") -> None:
        self.name, self._hop = name, hop or Hop()
        self._listening = socket.create_server(listen)
        self.address: Address = self._listening.getsockname()[:2]
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> Relay:
        threading.Thread(target=self.serve, name=self.name, daemon=True).start()
        return self

    def serve(self) -> None:
        """Accepts connections until closed."""
        while not self._closed:
            try:
                upstream, _ = self._listening.accept()
            except OSError:
                return
            tuned(upstream)
            threading.Thread(target=self._relay, args=(upstream,), name=self.name, daemon=True).start()

    def close(self) -> None:
        """Ends all connections, as if the process had died."""
        self._closed = True
        hang_up(self._listening)
        with self._lock:
            for sock in self._connections:
                hang_up(sock)

    def _kept(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._connections.add(sock)
        return sock

    def _relay(self, upstream: socket.socket) -> None:
        downstream: socket.socket | None = None
        last_words = b""
        try:
            self._kept(upstream)
            opening = _opening(upstream)
            downstream = self._kept(self._onward(opening))
            link = PacedLink(downstream, self._hop)
            back = threading.Thread(target=_copy_back, args=(downstream, upstream, link), daemon=True)
            back.start()
            link.put(message(MessageKind.OPEN, 0, opening.beyond().to_bytes()))
            _pass_on(upstream, link, opening)
            link.close()
            downstream.shutdown(socket.SHUT_WR)
            back.join()
        except OSError as problem:
            last_words = message(MessageKind.AGAIN, 0, f"{self.name} at {shown(self.address)}: {problem}".encode())
        finally:
            if downstream is not None:
                hang_up(downstream)
            part(upstream, last_words)
            with self._lock:
                self._connections -= {s for s in (upstream, downstream) if s is not None}

    def _onward(self, opening: Opening) -> socket.socket:
        if not opening.path:
            raise WireError("the path ends at a relay; the last address must be a sink's")
        return connected(opening.path[0], CONNECT_TIMEOUT_S)


def _opening(upstream: socket.socket) -> Opening:
    first = read_head(upstream)
    if first is None or first.kind is not MessageKind.OPEN:
        raise WireError("a connection must begin with an opening")
    return Opening.from_bytes(read_body(upstream, first))


def _pass_on(upstream: socket.socket, link: PacedLink, opening: Opening) -> None:
    """Until the sender ends. With whole forwarding, chunks are held back until the last one is here."""
    held: list[bytes] = []
    while (found := read_head(upstream)) is not None:
        whole = opening.forwarding is Forwarding.WHOLE and found.kind is MessageKind.CHUNK
        put = held.append if whole else link.put
        put(found.to_bytes())
        _blocks(upstream, found, put, link.block_bytes)
        if whole and found.number == opening.chunks - 1:
            for block in held:
                link.put(block)
            held.clear()


def _blocks(upstream: socket.socket, found: Head, put: _Put, most_bytes: int) -> None:
    left = found.length
    while left:
        block = upstream.recv(min(left, most_bytes))
        if not block:
            raise WireError("the sender ended within a message")
        put(block)
        left -= len(block)


class _Put(Protocol):
    """Takes one block."""

    def __call__(self, block: bytes, /) -> None: ...


def _copy_back(downstream: socket.socket, upstream: socket.socket, link: PacedLink) -> None:
    """What the sink answers, as it comes; when it is gone the whole connection ends."""
    with suppress(OSError):
        while data := downstream.recv(BLOCK_BYTES):
            upstream.sendall(data)
    link.abandon("the next hop is gone")
    with suppress(OSError):
        upstream.shutdown(socket.SHUT_WR)


def main() -> None:
    parser = argparse.ArgumentParser(description="One hop of a migration query.")
    parser.add_argument("--listen", default="127.0.0.1:0", help="address to listen at; port 0 takes a free one")
    parser.add_argument("--name", default="relay", help="how errors call it")
    parser.add_argument("--bandwidth-mbps", type=float, default=None, help="limit of the link that leaves it")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of the link that leaves it")
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    relay = Relay(Hop(given.latency_ms, given.bandwidth_mbps), (host, int(port)), given.name)
    sys.stdout.write(f"{shown(relay.address)}\n")
    sys.stdout.flush()
    relay.serve()


if __name__ == "__main__":
    main()
