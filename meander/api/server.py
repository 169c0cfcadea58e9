"""The HTTP server in a thread of its own, so that requests are taken while the decision core thinks."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn

from meander.api import make_app
from meander.api.connections import BoundedConnection
from meander.coordinator.security.tls import Tls
from meander.coordinator.service.service import Service
from meander.model.errors import InputError

START_S = 10.0
BACKLOG = 512


class Server:
    """Binds its socket at once, so that a port that is taken is known before anything else starts."""

    def __init__(self, service: Service, host: str, port: int, tls: Tls | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot listen on {host}, port {port}: {reason}; choose another with --port") from None
        self._host, self._port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            make_app(service),
            http=BoundedConnection,
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            **(tls.for_server() if tls is not None else {}),
        )
        self._scheme = "http" if tls is None else "https"
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )

    @property
    def address(self) -> str:
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{shown}:{self._port}"

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        if not self._server.started:
            raise InputError(f"the HTTP server did not start on {self.address}; look at the log")

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(START_S)
        self._socket.close()
