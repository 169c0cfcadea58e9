"""The hub: every watcher sees everything once and in order, or is told that it missed something."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from meander.coordinator.read_model.hub import Hub


def numbers(frames: bytes) -> list[int]:
    return [int(line.rsplit(b"-", 1)[1]) for line in frames.split(b"\n") if line.startswith(b"id: ")]


async def read(frames: AsyncIterator[bytes], count: int) -> list[int]:
    """The numbers of so many messages, without greetings."""
    found: list[int] = []
    while len(found) < count:
        found += numbers(await asyncio.wait_for(anext(frames), 10))
    return found


def test_watchers_see_everything_in_order_whatever_the_thread() -> None:
    async def scene() -> list[list[int]]:
        hub = Hub("e")
        hub.bind(asyncio.get_running_loop())
        watchers = [hub.watch() for _ in range(5)]
        greetings = [await anext(w) for w in watchers]
        assert all(g.startswith(b"event: hello") for g in greetings)
        readers = [asyncio.create_task(read(w, 400)) for w in watchers]

        def publish() -> None:
            for n in range(100):
                hub.publish("news", {"n": n})

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        found = await asyncio.gather(*readers)
        for thread in threads:
            thread.join()
        return found

    assert asyncio.run(scene()) == [list(range(1, 401))] * 5


def test_a_watcher_that_was_away_goes_on_where_it_was() -> None:
    async def scene() -> tuple[list[int], bytes, bytes]:
        hub = Hub("e")
        hub.bind(asyncio.get_running_loop())
        for n in range(10):
            hub.publish("news", n)
        resumed = hub.watch("e-4")
        await anext(resumed)
        other_process, nonsense = hub.watch("older-4"), hub.watch("e-nonsense")
        return await read(resumed, 6), await anext(other_process), await anext(nonsense)

    seen, other, nonsense = asyncio.run(scene())
    assert seen == [5, 6, 7, 8, 9, 10]
    assert other.startswith(b"event: reset")
    assert nonsense.startswith(b"event: reset")


def test_a_watcher_that_is_too_slow_is_told_to_load_everything_again() -> None:
    async def scene() -> list[bytes]:
        hub = Hub("e", kept=5)
        hub.bind(asyncio.get_running_loop())
        slow = hub.watch()
        first = await anext(slow)
        for n in range(20):
            hub.publish("news", n)
        second = await anext(slow)
        hub.publish("news", "after")
        return [first, second, await anext(slow)]

    hello, reset, after = asyncio.run(scene())
    assert hello.startswith(b"event: hello")
    assert reset.startswith(b"event: reset")
    assert numbers(after) == [21]


def test_only_the_kinds_that_are_wanted_come_and_closing_ends_it() -> None:
    async def scene() -> tuple[bytes, list[bytes], int]:
        hub = Hub("e")
        hub.bind(asyncio.get_running_loop())
        frames = hub.watch(kinds=("b",))
        await anext(frames)
        for kind in ("a", "b", "a"):
            hub.publish(kind, 1)
        found = await anext(frames)
        hub.close()
        rest = [frame async for frame in frames]
        return found, rest, hub.watchers

    found, rest, watchers = asyncio.run(scene())
    assert numbers(found) == [2]
    assert (rest, watchers) == ([], 0)
