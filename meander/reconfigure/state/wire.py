"""Messages of a migration query on a socket. Needs nothing but the standard library: relays start in an instant.

A message is a header and a body, each with a checksum; only chunks check themselves, at the sink. The sender opens a
transfer and names the path; the sink answers where to resume, and after each chunk how many it has taken. Relays pass
everything on.
"""

from __future__ import annotations

import json
import socket
import struct
import zlib
from dataclasses import asdict, dataclass, replace
from enum import IntEnum

from meander.reconfigure.state.hops import Forwarding

_HEADER = struct.Struct("!4sB3xQQI")  # magic, kind, number, length of the body, its checksum
_CHECK = struct.Struct("!I")
HEADER_BYTES = _HEADER.size + _CHECK.size
MAGIC = b"MDRm"
MOST_CONTROL_BYTES = 1 << 20
MOST_CHUNK_BYTES = 1 << 31
SOCKET_BUFFER_BYTES = 1 << 19
PART_TIMEOUT_S = 2.0

Address = tuple[str, int]


class MessageKind(IntEnum):
    """What a message says."""

    OPEN = 1
    """Down: a transfer begins or goes on; the body is an `Opening`."""
    CHUNK = 2
    """Down: a chunk with its number."""
    CANCEL = 3
    """Down: drop what has arrived."""
    RESUME = 4
    """Up: the number of the first chunk that is missing."""
    TAKEN = 5
    """Up: how many chunks have taken effect."""
    AGAIN = 6
    """Up: something broke, with the reason; connect again."""
    REFUSED = 7
    """Up: it will not work, with the reason."""
    CANCELLED = 8
    """Up: nothing is left."""


class WireError(ConnectionError):
    """The other side is gone, or does not speak this protocol. Connect again and resume."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the sender asks for, and the addresses still ahead; the last one is the sink's."""

    transfer: str
    export: int
    chunks: int
    forwarding: Forwarding
    path: tuple[Address, ...]

    def beyond(self) -> Opening:
        """As the next hop gets it."""
        return replace(self, path=self.path[1:])

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self) | {"forwarding": self.forwarding.value}).encode()

    @staticmethod
    def from_bytes(body: bytes | bytearray) -> Opening:
        try:
            known = json.loads(body)
            path = tuple((str(host), int(port)) for host, port in known["path"])
            mode = Forwarding(known["forwarding"])
            return Opening(str(known["transfer"]), int(known["export"]), int(known["chunks"]), mode, path)
        except (ValueError, KeyError, TypeError) as problem:
            raise WireError(f"an opening cannot be read ({problem})") from problem


@dataclass(frozen=True, slots=True)
class Head:
    kind: MessageKind
    number: int
    length: int
    checksum: int = 0

    def to_bytes(self) -> bytes:
        packed = _HEADER.pack(MAGIC, self.kind, self.number, self.length, self.checksum)
        return packed + _CHECK.pack(zlib.crc32(packed))


def message(kind: MessageKind, number: int = 0, body: bytes = b"") -> bytes:
    """A message that is no chunk."""
    return Head(kind, number, len(body), zlib.crc32(body)).to_bytes() + body


def read_head(sock: socket.socket) -> Head | None:
    """The next message's header; None when the other side ended properly between two messages."""
    data = _exactly(sock, HEADER_BYTES, may_end=True)
    if not data:
        return None
    packed = data[: _HEADER.size]
    magic, kind, number, length, checksum = _HEADER.unpack(packed)
    if magic != MAGIC or _CHECK.unpack(data[_HEADER.size :]) != (zlib.crc32(packed),):
        raise WireError("a message's header is damaged")
    if length > (MOST_CHUNK_BYTES if kind == MessageKind.CHUNK else MOST_CONTROL_BYTES):
        raise WireError(f"a message claims {length:,} bytes")
    try:
        return Head(MessageKind(kind), number, length, checksum)
    except ValueError:
        raise WireError(f"a message is of the unknown kind {kind}") from None


def read_body(sock: socket.socket, found: Head) -> bytearray:
    """The body behind a header; of a chunk as it comes."""
    body = _exactly(sock, found.length)
    if found.kind is not MessageKind.CHUNK and zlib.crc32(body) != found.checksum:
        raise WireError(f"the body of {found.kind.name} is damaged")
    return body


def _exactly(sock: socket.socket, length: int, *, may_end: bool = False) -> bytearray:
    buffer, at = bytearray(length), 0
    view = memoryview(buffer)
    while at < length:
        got = sock.recv_into(view[at:])
        if not got:
            if may_end and at == 0:
                return bytearray()
            raise WireError("the connection ended within a message")
        at += got
    return buffer


def connected(address: Address, timeout_s: float) -> socket.socket:
    """A connection, blocking from then on."""
    try:
        sock = socket.create_connection(address, timeout=timeout_s)
    except OSError as problem:
        raise WireError(f"{shown(address)} cannot be reached: {problem}") from problem
    sock.settimeout(None)
    tuned(sock)
    return sock


def tuned(sock: socket.socket) -> None:
    """Small buffers, so that back-pressure is felt soon, and no waiting for more to send."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)


def hang_up(sock: socket.socket) -> None:
    """Ends a connection, also for a thread that waits on it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.close()


def part(sock: socket.socket, last_words: bytes = b"") -> None:
    """Ends a connection so that the other side reads the last words, although it may be sending still."""
    try:
        sock.settimeout(PART_TIMEOUT_S)
        if last_words:
            sock.sendall(last_words)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass  # the other side is gone already
    finally:
        hang_up(sock)


def shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
