"""The source's end on a socket: sends an export's chunks over a path of relays until the sink has taken them all.

When the connection breaks anywhere on the path, it connects again and goes on at the first chunk that the sink misses.
It gives up when several attempts in a row brought nothing further.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from meander.model.errors import InputError
from meander.reconfigure.state.answers import Answers, RefusedError
from meander.reconfigure.state.hops import Forwarding, Hop
from meander.reconfigure.state.job import MoveState
from meander.reconfigure.state.link import PacedLink
from meander.reconfigure.state.transfer import Export
from meander.reconfigure.state.wire import Address, Head, MessageKind, Opening, WireError, connected, hang_up, message

CONNECT_TIMEOUT_S = 5.0
ATTEMPTS = 5
PAUSE_S = 0.2


class Sending:
    """Implements `StateMove` over sockets; `path` are the addresses of the relays, then the sink's.

    `hop` is the link that leaves the source; the relays have their own.
    """

    def __init__(
        self,
        export: Export,
        transfer: str,
        path: Sequence[Address],
        *,
        hop: Hop | None = None,
        forwarding: Forwarding = Forwarding.PIPELINED,
        attempts: int = ATTEMPTS,
        pause_s: float = PAUSE_S,
        on_end: Callable[[Sending], None] | None = None,
    ) -> None:
        if not path:
            raise InputError(f"transfer {transfer!r} has no path; name at least the sink's address")
        self.transfer, self.chunks, self.bytes, self.connections = transfer, 0, 0, 0
        self.error: str | None = None
        self._export, self._path, self._hop, self._forwarding = export, tuple(path), hop or Hop(), forwarding
        self._attempts, self._pause_s, self._on_end = attempts, pause_s, on_end
        self._state = MoveState.WAITING
        self._started_s = self._ended_s = 0.0
        self._answers: Answers | None = None
        self._cancelling, self._ended = threading.Event(), threading.Event()

    @property
    def state(self) -> MoveState:
        return self._state

    @property
    def done(self) -> bool:
        return self._state is MoveState.DONE

    @property
    def progress(self) -> float:
        return self.chunks / len(self._export)

    @property
    def seconds(self) -> float:
        if self._state is MoveState.WAITING:
            return 0.0
        return (self._ended_s if self._state.ended else time.perf_counter()) - self._started_s

    def start(self) -> None:
        if self._state is not MoveState.WAITING:
            raise InputError(f"transfer {self.transfer!r} has started already; make another one to move again")
        self._state, self._started_s = MoveState.MOVING, time.perf_counter()
        threading.Thread(target=self._run, name=f"sending {self.transfer}", daemon=True).start()

    def poll(self) -> float | None:
        """Nothing to do: a thread does it all."""
        return None if self._state.ended else 1.0

    def wait(self, timeout_s: float | None = None) -> bool:
        self._ended.wait(timeout_s)
        return self.done

    def cancel(self) -> bool:
        """Asks the sink to drop what it has, and waits for it; False if the state is complete already.

        When the sink cannot be reached any more, `error` says that the transfer has to be cancelled there.
        """
        if self._state is MoveState.WAITING:
            self._end(MoveState.CANCELLED)
        self._cancelling.set()
        if self._answers is not None:
            self._answers.nudge()
        self._ended.wait()
        return not self.done

    def _run(self) -> None:
        fruitless = 0
        while not self._state.ended:
            taken = self.chunks
            try:
                self.connections += 1
                self._connect()
            except RefusedError as refusal:
                self.error = str(refusal)
                self._end(MoveState.FAILED)
            except OSError as broken:
                fruitless = 1 if self.chunks > taken else fruitless + 1
                self._broken(str(broken), fruitless)

    def _broken(self, why: str, fruitless: int) -> None:
        if self._cancelling.is_set():
            self.error = f"the sink cannot be reached ({why}); cancel transfer {self.transfer!r} there"
            self._end(MoveState.CANCELLED)
        elif fruitless >= self._attempts:
            self.error = (
                f"transfer {self.transfer!r} stopped at chunk {self.chunks} of {len(self._export)}: {why}; "
                "check the path, then start it again: it resumes there"
            )
            self._end(MoveState.FAILED)
        else:
            self._cancelling.wait(self._pause_s)

    def _connect(self) -> None:
        """One connection: returns at the end of the transfer, raises when it broke."""
        sock = connected(self._path[0], CONNECT_TIMEOUT_S)
        link = PacedLink(sock, self._hop)
        answers = self._answers = Answers(sock, self._taken, link.abandon)
        opening = Opening(self.transfer, self._export.digest, len(self._export), self._forwarding, self._path[1:])
        try:
            link.put(message(MessageKind.OPEN, 0, opening.to_bytes()))
            answers.wait_for(lambda: answers.resume is not None)
            self._send(link, answers)
        except WireError as broken:
            raise answers.problem() from broken
        finally:
            link.abandon("the transfer is over")
            hang_up(sock)
            answers.join()

    def _send(self, link: PacedLink, answers: Answers) -> None:
        self.chunks = answers.taken
        for number in range(self.chunks, len(self._export)):
            if self._cancelling.is_set():
                break
            chunk = self._export.chunk(number)
            link.put(Head(MessageKind.CHUNK, number, len(chunk)).to_bytes())
            for at in range(0, len(chunk), link.block_bytes):
                link.put(memoryview(chunk)[at : at + link.block_bytes])
            self.bytes += len(chunk)
        answers.wait_for(lambda: answers.taken == len(self._export) or self._cancelling.is_set())
        if answers.taken < len(self._export):
            link.put(message(MessageKind.CANCEL))
            answers.wait_for(lambda: answers.taken == len(self._export) or answers.cancelled)
        self._end(MoveState.CANCELLED if answers.cancelled else MoveState.DONE)

    def _taken(self, chunks: int) -> None:
        self.chunks = chunks

    def _end(self, state: MoveState) -> None:
        self._state, self._ended_s = state, time.perf_counter()
        self._ended.set()
        if self._on_end is not None:
            self._on_end(self)
