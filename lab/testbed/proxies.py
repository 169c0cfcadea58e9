"""A network in user space: between any two hosts of a test bed, connections go through a proxy that can fail.

A kernel that can pull cables cannot always delay, cut a connection in the middle of a message, or lose what goes one
way only. A proxy can, and it needs nothing of the kernel but the network namespaces that hosts are in: a host has the
addresses of all others as its own, where proxies listen, and these connect to the real host over the cables.

    host A: client -> proxy at B's address  ~~ cables ~~>  gate at B -> server of B
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lab.testbed.port_forward import entered

CHUNK, WAITING_CHUNKS = 32_768, 64
LOOK_S, BREAK_S = 0.02, 0.5
CONNECT_S = 10.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is closed is reset, as if its host had gone."""
Pair = tuple[str, str]
Address = tuple[str, int]


@dataclass(slots=True)
class Direction:
    """The conditions for bytes from one host to another, whoever made the connection."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    is_mute: bool = False
    """Nothing arrives until it is false again, as if packets were lost and sent anew."""


@dataclass(eq=False, slots=True)
class Connection:
    """One connection of a client to a server, in two halves."""

    client: socket.socket
    server: socket.socket
    is_over: threading.Event = field(default_factory=threading.Event)
    breaks: threading.Event = field(default_factory=threading.Event)
    """Set when it is to be reset in the middle of the next message."""
    is_half_open: threading.Event = field(default_factory=threading.Event)
    """Set when its server knows nothing of it any more, and its client has not heard of that."""

    def reset(self) -> None:
        self.is_over.set()
        _reset(self.client)
        _reset(self.server)

    def half_close(self) -> None:
        """The server's end is gone; the client hears of that only when it sends something."""
        self.is_half_open.set()
        _reset(self.server)


class Proxies:
    """All proxies of one test bed. `close` ends them, and all connections."""

    def __init__(
        self,
        hosts: Sequence[str],
        namespace: Callable[[str], str],
        address: Callable[[str], str],
        gate: Callable[[str], str],
        ports: Mapping[str, Sequence[int]],
        latency_s: Callable[[str, str], float] = lambda a, b: 0.0,
    ) -> None:
        """`address` is where a host is looked for, `gate` where it really is; `latency_s` the usual delay of a pair."""
        self._namespace, self._address, self._gate, self._latency_s = namespace, address, gate, latency_s
        self._directions = {(a, b): Direction(latency_s(a, b)) for a in hosts for b in hosts if a != b}
        self._closed_to: set[Pair] = set()
        """(A, B) where A cannot connect to B, though B may connect to A."""
        self._connections: dict[Pair, set[Connection]] = {pair: set() for pair in self._directions}
        self._lock = threading.Lock()
        self._listeners: list[socket.socket] = []
        self._rng = random.Random(1)
        self._ended = threading.Event()
        for host in hosts:
            for port in ports[host]:
                self._listen(host, (gate(host), port), partial(self._lead_in, host, port))
                for other in (o for o in hosts if o != host):
                    self._listen(other, (address(host), port), partial(self._lead, other, host, port))

    # ---------------------------------------------------------------- faults

    def delay(self, a: str, b: str, delay_s: float, jitter_s: float) -> None:
        """Bytes between two hosts take longer, more or less of it; with 0 as long as ever."""
        for pair in ((a, b), (b, a)):
            usual = self._latency_s(*pair)
            self._directions[pair].delay_s, self._directions[pair].jitter_s = usual + delay_s, jitter_s

    def throttle(self, a: str, b: str, bytes_per_s: float | None) -> None:
        for pair in ((a, b), (b, a)):
            self._directions[pair].bytes_per_s = bytes_per_s

    def mute(self, a: str, b: str, *, mute: bool) -> None:
        """Nothing that A sends arrives at B; what B sends arrives at A."""
        self._directions[a, b].is_mute = mute

    def close_to(self, a: str, b: str, *, closed: bool) -> None:
        """A reaches B by no connection of its own, old or new; B's connections to A go on."""
        with self._lock:
            (self._closed_to.add if closed else self._closed_to.discard)((a, b))

    def break_off(self, a: str, b: str) -> int:
        """Resets all connections between two hosts in the middle of their next message; says how many there are."""
        found = self._between(a, b)
        for connection in found:
            connection.breaks.set()
        return len(found)

    def leave_half_open(self, a: str, b: str) -> int:
        """The servers of all connections between two hosts forget them, and their clients do not hear of it."""
        found = self._between(a, b)
        for connection in found:
            connection.half_close()
        return len(found)

    def _between(self, a: str, b: str) -> list[Connection]:
        with self._lock:
            return [*self._connections[a, b], *self._connections[b, a]]

    def close(self) -> None:
        self._ended.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            found = [c for connections in self._connections.values() for c in connections]
        for connection in found:
            connection.reset()

    # ---------------------------------------------------------------- connections

    def _listen(self, host: str, where: Address, lead: Callable[[socket.socket], None]) -> None:
        listener = entered(self._namespace(host), lambda: socket.create_server(where))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, lead), name=f"proxy {host}", daemon=True).start()

    def _accept(self, listener: socket.socket, lead: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                found, _ = listener.accept()
            except OSError:
                return
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=lead, args=(found,), name="proxied", daemon=True).start()

    def _lead_in(self, host: str, port: int, client: socket.socket) -> None:
        """The last part of a way, inside a host: nothing happens to it."""
        server = self._connected(host, (self._address(host), port))
        if server is None:
            _reset(client)
            return
        threading.Thread(target=_copy, args=(client, server), name="proxied", daemon=True).start()
        _copy(server, client)

    def _lead(self, host: str, goal: str, port: int, client: socket.socket) -> None:
        """A connection that a host makes to another one."""
        while self._is_closed(host, goal):
            time.sleep(LOOK_S)
        server = None if self._ended.is_set() else self._connected(host, (self._gate(goal), port))
        if server is None:
            _reset(client)
            return
        connection = Connection(client, server)
        with self._lock:
            self._connections[host, goal].add(connection)
        ways = ((client, server, (host, goal)), (server, client, (goal, host)))
        threads = []
        for source, target, direction in ways:
            passed: queue.Queue[tuple[float, bytes]] = queue.Queue(WAITING_CHUNKS)
            given = (connection, (host, goal), direction, target, passed)
            threads.append(threading.Thread(target=self._read, args=(connection, direction, source, passed)))
            threads.append(threading.Thread(target=self._write, args=given))
        for thread in threads:
            thread.daemon = True
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            self._connections[host, goal].discard(connection)
        for each in (client, server):
            each.close()

    def _connected(self, host: str, where: Address) -> socket.socket | None:
        try:
            found = entered(self._namespace(host), lambda: socket.create_connection(where, timeout=CONNECT_S))
        except OSError:
            return None
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def _is_closed(self, host: str, goal: str) -> bool:
        with self._lock:
            return (host, goal) in self._closed_to and not self._ended.is_set()

    def _read(
        self, connection: Connection, way: Pair, source: socket.socket, passed: queue.Queue[tuple[float, bytes]]
    ) -> None:
        """Takes what comes, with the time at which it is to arrive; nothing overtakes anything."""
        direction, due = self._directions[way], 0.0
        while not connection.is_over.is_set():
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            if connection.is_half_open.is_set():
                if source is connection.client:
                    connection.reset()  # it has sent something, or ended
                break
            due = max(due, time.monotonic() + direction.delay_s + self._rng.random() * direction.jitter_s)
            passed.put((due, data))
            if not data:
                return
        passed.put((0.0, b""))

    def _write(
        self,
        connection: Connection,
        pair: Pair,
        way: Pair,
        target: socket.socket,
        passed: queue.Queue[tuple[float, bytes]],
    ) -> None:
        direction, breaks_at = self._directions[way], 0.0
        while not connection.is_over.is_set():
            if connection.breaks.is_set() and not breaks_at:
                breaks_at = time.monotonic() + BREAK_S
            try:
                due, data = passed.get(timeout=LOOK_S)
            except queue.Empty:
                if breaks_at and time.monotonic() > breaks_at:
                    connection.reset()
                continue
            while time.monotonic() < due or direction.is_mute or self._is_closed(*pair):
                if connection.is_over.wait(max(0.0005, min(LOOK_S, due - time.monotonic()))):
                    break
            if direction.bytes_per_s:
                connection.is_over.wait(len(data) / direction.bytes_per_s)
            if connection.is_half_open.is_set():
                continue
            try:
                if connection.breaks.is_set() and data:
                    target.sendall(data[: len(data) // 2])
                    connection.reset()
                elif data:
                    target.sendall(data)
                else:
                    target.shutdown(socket.SHUT_WR)
                    return
            except OSError:
                connection.reset()
        _drain(passed)


def _drain(passed: queue.Queue[tuple[float, bytes]]) -> None:
    """So that its reader is not kept waiting."""
    with contextlib.suppress(queue.Empty):
        while True:
            passed.get_nowait()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _reset(source)
        _reset(target)


def _reset(each: socket.socket) -> None:
    """Also wakes those who read from it."""
    with contextlib.suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
