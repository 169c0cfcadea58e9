"""The listener of `http` sources that have a port of their own: few clients at a time, each for a short time.

On this machine's own address anybody here may send, unless there is a token, but no page of another site: requests
with a foreign `Host` or any `Origin` are refused. Any other address needs TLS and a token.
"""

from __future__ import annotations

import hmac
import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.run.connectors.base import ConnectorError
from meander.run.connectors.http_batches import NumberConflictError

LOOPBACK = "127.0.0.1"
LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")
CLIENT, SEQUENCE = "Meander-Client", "Meander-Sequence"
MOST_BYTES = 16_000_000
MOST_CLIENTS = 64
MOST_BUFFERED = 64_000_000
"""Bytes of all bodies that are being read, or wait for their commit."""
SEND_S = 20.0
"""The time that a client may be silent while it sends."""


class Receiver(Protocol):
    """The source behind a listener."""

    timeout_s: float

    def read(self, body: bytes, path: str, client: str | None, sequence: str | None) -> Any: ...

    def offer(self, post: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """The address of a listener, and who may send there."""

    port: int = 0
    host: str = LOOPBACK
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None


class HttpListener(ThreadingHTTPServer):
    """Listens until `close`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: ListenerOptions, source: Receiver) -> None:
        self.options, self.source = options, source
        self._context = None
        if options.certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            try:
                self._context.load_cert_chain(options.certificate, options.key)
            except (OSError, ssl.SSLError) as error:
                raise ConnectorError(f"no certificate with its key at {options.certificate}: {error}") from None
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        self._lock = lock("http listener")
        self._buffered = 0
        try:
            super().__init__((options.host, options.port), _Handler)
        except OSError as error:
            raise ConnectorError(f"cannot listen on port {options.port}: {error}; choose another port") from None
        threading.Thread(target=self.serve_forever, args=(0.1,), name="http source", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """A client for which there is no room is let go at once, so that it does not wait in vain."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is in the client's own thread: one that does not end it keeps nobody out."""
        request.settimeout(SEND_S)
        if self._context is None:
            super().finish_request(request, client_address)
            return
        try:
            wrapped = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        try:
            super().finish_request(wrapped, client_address)
        finally:
            wrapped.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off is no error of ours."""

    def take_room(self, size: int) -> bool:
        """Reserves memory for a body; False if there is none now."""
        with self._lock:
            if self._buffered + size > MOST_BUFFERED:
                return False
            self._buffered += size
            return True

    def give_room(self, size: int) -> None:
        with self._lock:
            self._buffered -= size


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: HttpListener
    protocol_version = "HTTP/1.1"
    timeout = SEND_S
    server_version, sys_version = "Meander", ""

    def do_POST(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self.close_connection = True
            return self._answer(*refusal)
        length = int(self.headers["Content-Length"])
        if not self.server.take_room(length):
            self.close_connection = True
            return self._answer(429, "too many bytes wait; send this batch again later")
        try:
            self._receive(length)
        finally:
            self.server.give_room(length)
        return None

    def _refusal(self) -> tuple[int, str] | None:
        """The status and the reason with which a request is refused before its body is read."""
        options, headers = self.server.options, self.headers
        if headers.get("Origin") is not None:
            return 403, "pages of browsers may not send here"
        host = (headers.get("Host") or "").rsplit(":", 1)[0] if "]" not in headers.get("Host", "") else LOCAL[2]
        if options.host in LOCAL and host not in LOCAL:
            return 403, f"the header Host is {headers.get('Host')!r}; send to {LOOPBACK} or localhost"
        if options.token is not None:
            shown = (headers.get("Authorization") or "").removeprefix("Bearer ")
            if not hmac.compare_digest(shown.encode(), options.token.encode()):
                return 401, "send `Authorization: Bearer TOKEN` with the token of this stream"
        if headers.get("Transfer-Encoding") is not None:
            return 411, "say with Content-Length how many bytes come"
        length = headers.get("Content-Length") or ""
        if not (length.isascii() and length.isdecimal() and len(length) < 12):
            return 411, "say with Content-Length how many bytes come"
        if int(length) > MOST_BYTES:
            return 413, f"more than {MOST_BYTES} bytes; send smaller batches"
        return None

    def _receive(self, length: int) -> None:
        source = self.server.source
        try:
            body = self.rfile.read(length)
        except OSError:
            self.close_connection = True
            return None
        if len(body) < length:  # the client has gone
            self.close_connection = True
            return None
        try:
            post = source.read(body, self.path, self.headers.get(CLIENT), self.headers.get(SEQUENCE))
            found = source.offer(post)
        except NumberConflictError as error:
            return self._answer(409, str(error))
        except InputError as error:
            return self._answer(400, str(error))
        if found is None:
            return self._answer(429, "too many rows wait; send this batch again later")
        if not found.done.wait(source.timeout_s) or not found.committed:
            return self._answer(503, "not committed yet; send this batch again with the same number")
        return self._answer(200, accepted=found.accepted, malformed=found.malformed)

    def _answer(self, status: int, error: str | None = None, **more: Any) -> None:
        body = json.dumps({**({"error": error} if error else {}), **more}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are counted, not printed."""
