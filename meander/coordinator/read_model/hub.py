"""The hub: messages about events, for all watchers. Server-sent events that can be resumed.

There is one list of the newest messages, shared by all; each watcher only has its place in it. So a watcher that is
slow costs nothing: when its next message is gone from the list, it is told to load everything again. A message is
written as bytes once, for all watchers.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from meander.model.locks import lock

KEPT = 8192
PAUSE_S = 0.05
"""Messages of so much time go out together: watchers are many, and each write costs."""
ALIVE_S = 10.0
"""The time of silence after which a comment is sent, so that no proxy closes the connection."""


@dataclass(frozen=True, slots=True)
class HubMessage:
    number: int
    kind: str
    frame: bytes


class Hub:
    """Publish from any thread; watch from the event loop that was bound."""

    def __init__(self, epoch: str, kept: int = KEPT) -> None:
        """`epoch` tells the numbers of this process from those of the one before it."""
        self.epoch = epoch
        self._messages: deque[HubMessage] = deque(maxlen=kept)
        self._last = 0
        self._lock = lock("hub")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakers: set[asyncio.Event] = set()
        self._woken = False
        self._closed = False

    @property
    def last(self) -> int:
        """The number of the newest message."""
        return self._last

    @property
    def watchers(self) -> int:
        return len(self._wakers)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watchers run in this event loop."""
        self._loop = loop

    def publish(self, kind: str, data: Any) -> None:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        with self._lock:
            self._last += 1
            frame = f"id: {self.epoch}-{self._last}\nevent: {kind}\ndata: {text}\n\n".encode()
            self._messages.append(HubMessage(self._last, kind, frame))
        self._wake()

    def close(self) -> None:
        """Ends all watching."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is None or self._woken or loop.is_closed():
            return
        self._woken = True
        try:
            loop.call_soon_threadsafe(self._wake_all)
        except RuntimeError:  # the loop was closed meanwhile: there are no watchers
            self._woken = False

    def _wake_all(self) -> None:
        self._woken = False
        for waker in self._wakers:
            waker.set()

    def _after(self, number: int) -> list[HubMessage] | None:
        """Messages behind a number; None when some of them are gone."""
        with self._lock:
            if number >= self._last:
                return []
            first = self._messages[0].number
            if number + 1 < first:
                return None
            return [self._messages[i] for i in range(number + 1 - first, len(self._messages))]

    def _place(self, last_seen: str | None) -> int | None:
        """The position to begin at; None when the last seen message is not known here."""
        if last_seen is None:
            return self._last
        epoch, _, number = last_seen.rpartition("-")
        if epoch != self.epoch or not number.isdecimal() or len(number) > 18 or int(number) > self._last:
            return None
        return int(number)

    async def watch(self, last_seen: str | None = None, kinds: Collection[str] | None = None) -> AsyncIterator[bytes]:
        """Frames from now on, or behind the last one seen; ends when the hub is closed."""
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            place = self._place(last_seen)
            yield self._greeting(reset=place is None)
            place = self._last if place is None else place
            while not self._closed:
                waker.clear()
                found = self._after(place)
                if found is None:
                    place = self._last
                    yield self._greeting(reset=True)
                elif found:
                    place = found[-1].number
                    frames = b"".join(m.frame for m in found if kinds is None or m.kind in kinds)
                    if frames:
                        yield frames
                    await asyncio.sleep(PAUSE_S)
                else:
                    try:
                        await asyncio.wait_for(waker.wait(), ALIVE_S)
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._wakers.discard(waker)

    def _greeting(self, *, reset: bool) -> bytes:
        """Says where the watcher is; with `reset`, that it has missed something and must load everything again."""
        kind = "reset" if reset else "hello"
        data = json.dumps({"epoch": self.epoch, "last_id": f"{self.epoch}-{self._last}"})
        return f"event: {kind}\ndata: {data}\n\n".encode()
