"""A port forward: a port of this machine that leads to a server in a network namespace, so that people can look inside.

Connections are made by threads that have entered the namespace; nothing inside can look out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
CHUNK = 65536


class PortForward:
    """Listens at once; `close` ends it."""

    def __init__(self, namespace: str, address: tuple[str, int], port: int = 0) -> None:
        self._namespace, self._address = namespace, address
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="porthole", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                outside, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(outside,), daemon=True).start()

    def _lead(self, outside: socket.socket) -> None:
        """A thread of its own for every connection: it stays in the namespace until it ends."""
        try:
            _enter(self._namespace)
            inside = socket.create_connection(self._address, timeout=10)
            inside.settimeout(None)
        except OSError:
            outside.close()
            return
        threading.Thread(target=_copy, args=(outside, inside), daemon=True).start()
        _copy(inside, outside)


def entered(namespace: str, what: Callable[[], T]) -> T:
    """The result of a call that is made inside a namespace, by a thread of its own; passes on its errors."""
    found: Future[T] = Future()

    def call() -> None:
        try:
            _enter(namespace)
            found.set_result(what())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=call, name="inside", daemon=True).start()
    return found.result()


def _enter(namespace: str) -> None:
    """This thread, and no other, is in the namespace from now on."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
    finally:
        os.close(descriptor)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
