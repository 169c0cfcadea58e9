"""The sink's end on a socket: takes transfers that are expected, answers where to resume and what has been taken."""

from __future__ import annotations

import logging
import socket
import threading

from meander.model.errors import InputError
from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.transfer import TransferError
from meander.reconfigure.state.wire import (
    Address,
    Head,
    MessageKind,
    Opening,
    WireError,
    hang_up,
    message,
    part,
    read_body,
    read_head,
    shown,
    tuned,
)
from meander.run.store.commit import CommitConflictError
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)


class Receiver:
    """Listens for transfers. A new connection of a transfer ends its earlier one."""

    def __init__(self, listen: Address = ("127.0.0.1", 0)) -> None:
        self._listening = socket.create_server(listen)
        self.address: Address = self._listening.getsockname()[:2]
        self._sinks: dict[str, StateSink] = {}
        self._current: dict[str, socket.socket] = {}
        self._changed = threading.Condition()
        self._closed = False

    def start(self) -> Receiver:
        threading.Thread(target=self._serve, name="receiver", daemon=True).start()
        return self

    def expect(self, sink: StateSink) -> None:
        """Lets a transfer in."""
        with self._changed:
            self._sinks[sink.transfer] = sink

    def forget(self, transfer: str) -> None:
        """Lets a transfer in no more; its connection ends."""
        with self._changed:
            self._sinks.pop(transfer, None)
            current = self._current.pop(transfer, None)
        if current is not None:
            hang_up(current)

    def wait(self, transfer: str, timeout_s: float | None = None) -> bool:
        """Waits until a transfer is complete; says whether it is."""
        with self._changed:
            sink = self._sinks[transfer]
            return self._changed.wait_for(lambda: sink.complete, timeout_s)

    def close(self) -> None:
        self._closed = True
        hang_up(self._listening)
        for transfer in list(self._sinks):
            self.forget(transfer)

    def _serve(self) -> None:
        while not self._closed:
            try:
                upstream, _ = self._listening.accept()
            except OSError:
                return
            tuned(upstream)
            threading.Thread(target=self._receive, args=(upstream,), name="receiver", daemon=True).start()

    def _receive(self, upstream: socket.socket) -> None:
        last_words = b""
        try:
            opening, sink = self._opened(upstream)
            upstream.sendall(message(MessageKind.RESUME, sink.next(opening.export)))
            while (found := read_head(upstream)) is not None:
                self._take(upstream, found, sink)
        except (TransferError, JournalError, OSError) as problem:
            last_words = _reason(MessageKind.AGAIN, problem)
        except (InputError, CommitConflictError) as problem:
            last_words = _reason(MessageKind.REFUSED, problem)
        finally:
            part(upstream, last_words)

    def _opened(self, upstream: socket.socket) -> tuple[Opening, StateSink]:
        first = read_head(upstream)
        if first is None or first.kind is not MessageKind.OPEN:
            raise WireError("a connection must begin with an opening")
        opening = Opening.from_bytes(read_body(upstream, first))
        if opening.path:
            raise InputError(f"the path goes on behind the sink at {shown(self.address)}; end it here")
        with self._changed:
            sink = self._sinks.get(opening.transfer)
            if sink is None:
                known = ", ".join(map(repr, self._sinks)) or "none"
                raise InputError(f"no transfer {opening.transfer!r} is expected here; expected: {known}")
            if sink.cancelled:
                raise InputError(f"transfer {opening.transfer!r} was cancelled; begin another one under a new name")
            earlier = self._current.get(opening.transfer)
            self._current[opening.transfer] = upstream
        if earlier is not None:
            hang_up(earlier)
        return opening, sink

    def _take(self, upstream: socket.socket, found: Head, sink: StateSink) -> None:
        body = read_body(upstream, found)
        if found.kind is MessageKind.CANCEL:
            if sink.cancel():
                upstream.sendall(message(MessageKind.CANCELLED))
            return
        if found.kind is not MessageKind.CHUNK:
            raise WireError(f"a sender does not send {found.kind.name}")
        with self._changed:
            if self._current.get(sink.transfer) is not upstream:
                raise WireError("the transfer goes on over another connection")
        arrival = sink.take(body)
        if arrival.last:
            with self._changed:
                self._changed.notify_all()
        upstream.sendall(message(MessageKind.TAKEN, arrival.chunk + 1))


def _reason(kind: MessageKind, problem: Exception) -> bytes:
    _log.info("a transfer's connection ends: %s", problem)
    return message(kind, 0, str(problem).encode())
