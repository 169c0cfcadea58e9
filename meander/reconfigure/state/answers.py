"""What comes back to the sender of a transfer: where to resume, what was taken, why it ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from meander.reconfigure.state.wire import MessageKind, WireError, read_body, read_head


class RefusedError(Exception):
    """The sink does not want the transfer: trying again would not help."""


class Answers:
    """Listens on one connection, in a thread of its own."""

    def __init__(self, sock: socket.socket, on_taken: Callable[[int], None], on_gone: Callable[[str], None]) -> None:
        """`on_taken` hears how many chunks the sink has, `on_gone` why nothing comes any more."""
        self.resume: int | None = None
        self.taken = 0
        self.cancelled = False
        self._sock, self._on_taken, self._on_gone = sock, on_taken, on_gone
        self._reason = "the connection broke"
        self._refused = self._gone = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="answers", daemon=True)
        self._thread.start()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Waits until it has; raises why it never will."""
        with self._changed:
            self._changed.wait_for(lambda: happened() or self._gone)
            if not happened():
                raise self.problem()

    def problem(self) -> Exception:
        """Why the connection is of no use any more."""
        return RefusedError(self._reason) if self._refused else WireError(self._reason)

    def nudge(self) -> None:
        """Lets waiting threads look again."""
        with self._changed:
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join()

    def _listen(self) -> None:
        try:
            while (found := read_head(self._sock)) is not None:
                self._note(found.kind, found.number, read_body(self._sock, found))
                self.nudge()
        except OSError as problem:
            if self._reason == "the connection broke":
                self._reason = str(problem)
        self._gone = True
        self.nudge()
        self._on_gone(self._reason)

    def _note(self, kind: MessageKind, number: int, body: bytearray) -> None:
        match kind:
            case MessageKind.RESUME:
                self.resume = self.taken = number
            case MessageKind.TAKEN:
                self.taken = max(self.taken, number)
                self._on_taken(self.taken)
            case MessageKind.CANCELLED:
                self.cancelled = True
            case MessageKind.AGAIN | MessageKind.REFUSED:
                self._reason = body.decode(errors="replace")
                self._refused = kind is MessageKind.REFUSED
                raise WireError(self._reason)
            case _:
                raise WireError(f"a sink does not answer {kind.name}")
