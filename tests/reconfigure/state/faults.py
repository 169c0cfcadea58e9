"""A connection that goes wrong as planned: bytes are cut off or flipped on their way down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from meander.reconfigure.state.wire import Address, hang_up


@dataclass(frozen=True)
class Fault:
    """After so many bytes of one connection, ends it or flips a bit."""

    after_bytes: int
    flip: bool


class FaultyProxy:
    """Passes bytes on to an address; the n-th connection has the n-th fault, later ones have none."""

    def __init__(self, target: Address, faults: Sequence[Fault]) -> None:
        self._target, self._faults = target, list(faults)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listening.getsockname()[:2]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        hang_up(self._listening)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                upstream, _ = self._listening.accept()
                fault = self._faults.pop(0) if self._faults else None
                downstream = socket.create_connection(self._target)
                threading.Thread(target=self._down, args=(upstream, downstream, fault), daemon=True).start()
                threading.Thread(target=self._up, args=(upstream, downstream), daemon=True).start()

    @staticmethod
    def _down(upstream: socket.socket, downstream: socket.socket, fault: Fault | None) -> None:
        passed = 0
        with suppress(OSError):
            while data := upstream.recv(4096):
                hit = fault is not None and passed <= fault.after_bytes < passed + len(data)
                if fault is not None and hit:
                    at = fault.after_bytes - passed
                    if not fault.flip:
                        downstream.sendall(data[:at])
                        hang_up(upstream)
                        break
                    data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
                passed += len(data)
                downstream.sendall(data)
        hang_up(downstream)

    @staticmethod
    def _up(upstream: socket.socket, downstream: socket.socket) -> None:
        with suppress(OSError):
            while data := downstream.recv(4096):
                upstream.sendall(data)
        hang_up(upstream)
