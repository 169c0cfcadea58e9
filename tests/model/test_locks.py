"""Locks refuse any order but the one that is written down, and no lock of the program is left out of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meander.model import locks
from meander.model.locks import LockOrderError, condition, lock, reentrant_lock
from meander.run.step.step_lock import StepLock

ROOT = Path(__file__).parents[2]
CODE = {p: p.read_text() for p in (ROOT / "meander").rglob("*.py")}
MADE = re.compile(r'\b(?:lock|reentrant_lock|condition)\("([^"]+)"\)')


@pytest.fixture
def _forgiven() -> Iterator[None]:
    yield
    locks.violations.clear()


def test_locks_are_taken_from_the_outside_in() -> None:
    with lock("slot step"), lock("store"), lock("journal sync"):
        assert locks.held() == ["slot step", "store", "journal sync"]
    assert locks.held() == []


@pytest.mark.usefixtures("_forgiven")
@pytest.mark.parametrize("outer", [lock, reentrant_lock])
def test_another_order_is_refused_and_remembered(outer: object) -> None:
    assert callable(outer)
    with outer("store"):
        with pytest.raises(LockOrderError, match="'slot step' is taken while 'store' is held"):
            lock("slot step").acquire()
        assert locks.held() == ["store"]
    assert locks.violations == ["'slot step' is taken while 'store' is held: it stands before it in locks.ORDER"]


@pytest.mark.usefixtures("_forgiven")
def test_two_locks_of_one_name_are_refused_but_for_those_that_are_numbered() -> None:
    with lock("hub"), pytest.raises(LockOrderError):
        lock("hub").acquire()
    first, second = StepLock(), StepLock()
    with first, second:
        assert locks.held() == ["slot step", "slot step"]


def test_a_thread_that_does_not_wait_may_try_any_lock() -> None:
    with lock("store"):
        tried = lock("slot step")
        assert tried.acquire(blocking=False)
        tried.release()


def test_an_owner_takes_its_lock_again_and_others_wait() -> None:
    mine = reentrant_lock("store")
    got: list[bool] = []
    with mine, mine:
        other = threading.Thread(target=lambda: got.append(mine.acquire(blocking=False)))
        other.start()
        other.join()
    assert got == [False]
    assert locks.held() == []


def test_whoever_waits_for_a_condition_holds_nothing_meanwhile() -> None:
    changed, seen = condition("membership client"), []

    def tell() -> None:
        with changed:
            seen.append(list(locks.held()))
            changed.notify_all()

    with changed:
        thread = threading.Thread(target=tell)
        thread.start()
        assert changed.wait_for(lambda: bool(seen), 10)
        assert locks.held() == ["membership client"]
    thread.join()
    assert seen == [["membership client"]]


def test_a_name_that_is_not_in_the_order_is_refused() -> None:
    with pytest.raises(LockOrderError, match="'nonsense' is not in locks"):
        lock("nonsense")


def test_every_lock_of_the_program_has_a_name_in_the_order() -> None:
    bare = [
        f"{path.relative_to(ROOT)}: {found}"
        for path, text in CODE.items()
        if path.name != "locks.py"
        for found in re.findall(r"threading\.(?:R?Lock|Condition)\(\)", text)
    ]
    assert bare == [], "make it with meander.model.locks"
    made = {name for text in CODE.values() for name in MADE.findall(text)} | {"slot step"}
    assert made == set(locks.ORDER)
    assert len(set(locks.ORDER)) == len(locks.ORDER)


def test_the_page_on_threads_names_every_lock_in_order_and_every_thread() -> None:
    page = (ROOT / "docs" / "concepts" / "threads.md").read_text()
    listed = re.findall(r"^\d+\. `([^`]+)`", page, flags=re.M)
    assert tuple(listed) == locks.ORDER
    names = {
        name
        for text in CODE.values()
        for name in re.findall(r'Thread\([^)]*name=f?"([a-z ]+)', text)
        + (re.findall(r'super\(\).__init__\("([a-z ]+)"', text) if "PeriodicThread" in text else [])
        + re.findall(r'ThreadPoolExecutor\([^"\n]*, "([a-z ]+)"', text)
    }
    missing = [name for name in sorted(names) if f"`{name.strip()}" not in page]
    assert missing == []
