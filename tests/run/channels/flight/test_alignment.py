"""A log that lost its end in a power failure, and the copy that has seen more: nothing new is taken for old."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.channels.budgets import ChannelBudget, ChannelBudgets, Overflow
from meander.run.channels.flight import puller
from meander.run.channels.flight.puller import Pulling
from meander.run.store.commit import Commit
from meander.run.store.journal import Durability
from meander.run.store.records.transport import CopyRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.channels.two_stores import SCHEMA, Place, place, rows

LOG = ChannelId(7)
ROUTE = ("sender",)


class Pair:
    """A sender whose store goes back to what it was, and a reader."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sender, self.reader = place(directory, "sender"), place(directory, "reader")
        for each in (self.sender, self.reader):
            each.store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, FragmentId(1), FragmentId(2)),)))
        self.reader.store.commit(Commit(records=(CopyRecord(LOG, ROUTE),)))
        self._meet()

    def _meet(self) -> None:
        self.sender.readers[LOG] = {"reader"}
        self.reader.knows(self.sender)
        self.pulling = Pulling(self.reader.store, self.reader.client_for)

    def write(self, first: int, count: int, watermark: int | None = None) -> None:
        self.sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(first, count), watermark),)))

    def pull(self, times: int = 4) -> None:
        for _ in range(times):
            self.pulling.pull(ROUTE, [LOG])

    def process(self, position: int) -> list[int]:
        """What the reader reads up to a position, and consumes."""
        exchange = self.reader.store.exchange
        chunk = exchange.read(LOG, exchange.start(LOG), position)
        self.reader.store.commit(Commit(consumed={LOG: position}))
        self.reader.store.syncer.sync()  # before that nothing may be forgotten at the sender
        return [int(v) for v in chunk.table.column("id").to_pylist()]

    def rest(self) -> list[int]:
        return self.process(self.reader.store.exchange.end(LOG))

    def remember(self) -> None:
        shutil.copytree(self.directory / "sender", self.directory / "before", dirs_exist_ok=True)

    def power_failure(self) -> None:
        """The sender's store loses everything since `remember`."""
        self.sender.close()
        shutil.rmtree(self.directory / "sender")
        shutil.copytree(self.directory / "before", self.directory / "sender")
        self.sender = place(self.directory, "sender")
        self._meet()

    def restart_reader(self) -> None:
        self.reader.close()
        self.reader = place(self.directory, "reader")
        self._meet()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(puller, "WAIT_MS", 0)
    found = Pair(tmp_path)
    yield found
    found.sender.close()
    found.reader.close()


def same(log: Store, copy: Store) -> bool:
    bounds = (log.views.channels[LOG], copy.views.channels[LOG])
    return bounds[0].tail == bounds[1].tail and bounds[0].lineage == bounds[1].lineage


def test_what_was_not_processed_of_lost_records_is_let_go_of_and_comes_as_the_log_has_it(pair: Pair) -> None:
    pair.write(0, 10, 5)
    pair.remember()
    pair.write(10, 6, 9)
    pair.pull()
    assert pair.process(4) == [0, 1, 2, 3]
    pair.power_failure()
    pair.write(100, 2)  # another history: fewer records than the copy has
    pair.pull()
    assert pair.rest() == [4, 5, 6, 7, 8, 9, 100, 101]
    assert same(pair.sender.store, pair.reader.store)
    assert (pair.pulling.metrics.let_go, pair.pulling.metrics.ahead) == (7, 0)
    assert pair.reader.store.exchange.told([LOG])[0] == 5  # the watermark that was lost is not there any more


def test_new_records_come_behind_what_was_processed_of_lost_ones(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.write(0, 10)
    pair.remember()
    pair.write(10, 20)
    pair.pull()
    assert pair.process(25) == list(range(25))
    pair.power_failure()
    pair.write(100, 8)
    pair.pull()
    assert pair.rest() == list(range(100, 108))
    pair.write(108, 30)
    pair.pull()
    assert pair.rest() == list(range(108, 138))
    assert same(pair.sender.store, pair.reader.store)
    assert pair.pulling.metrics.ahead == 15
    assert "has lost its end" in caplog.text
    assert "has processed 15 records that were lost here" in caplog.text


def test_a_reader_hears_of_it_when_the_log_writes_nothing_and_when_both_start_again(pair: Pair) -> None:
    pair.write(0, 10)
    pair.remember()
    pair.write(10, 5)
    pair.pull()
    pair.process(12)
    pair.power_failure()
    pair.pull()
    assert pair.rest() == []
    pair.restart_reader()
    pair.power_failure()  # what it heard was lost at once
    pair.restart_reader()
    pair.pull()
    pair.write(50, 3)
    pair.pull()
    assert pair.rest() == [50, 51, 52]


def test_a_log_that_lost_nothing_goes_on_as_before(pair: Pair) -> None:
    pair.write(0, 10)
    pair.pull()
    pair.process(3)
    pair.remember()
    for first in (10, 20, 30):
        pair.remember()
        pair.power_failure()
        pair.restart_reader()
        pair.write(first, 10)
        pair.pull()
    assert pair.rest() == list(range(3, 40))
    assert (pair.pulling.metrics.let_go, pair.pulling.metrics.ahead, pair.pulling.metrics.missing) == (0, 0, 0)
    assert len(pair.sender.store.views.channels[LOG].lineage) <= 4
    pair.pull()
    pair.remember()
    pair.power_failure()
    assert len(pair.sender.store.views.channels[LOG].lineage) == 1  # what was processed since needs no more


def test_a_reader_that_lost_what_the_sender_let_go_of_says_so_and_goes_on(pair: Pair) -> None:
    pair.write(0, 10)
    pair.pull()
    pair.process(5)
    pair.sender.store.commit(Commit(consumed={LOG: 10}))  # as another sender might
    pair.reader.store.commit(Commit(consumed={LOG: 10}))
    pair.sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(10, 10)),), consumed={}))
    pair.sender.store.commit(Commit(consumed={LOG: 15}))
    pair.pull()
    assert pair.rest() == [15, 16, 17, 18, 19]
    assert pair.pulling.metrics.missing == 5


@pytest.mark.parametrize(("head", "left"), [(10, 5), (12, 3)])
def test_a_reader_and_a_log_that_had_both_lost_something_asked_each_other_for_ever(
    pair: Pair, head: int, left: int
) -> None:
    pair.write(0, 5)
    pair.remember()
    pair.write(5, 5)
    pair.pull()
    assert len(pair.rest()) == 10
    pair.power_failure()
    pair.write(100, 10)
    pair.sender.store.commit(Commit(consumed={LOG: head}))  # by a reader of which only an older copy came back
    pair.pull()
    assert pair.rest() == list(range(110 - left, 110))


def test_with_durability_disk_nothing_leaves_a_host_before_it_is_on_the_disk(tmp_path: Path) -> None:
    stores = {n: Store.open(tmp_path / n, StoreOptions(Durability.DISK)) for n in ("sender", "reader")}
    sender, reader = (Place(name, store).open() for name, store in stores.items())
    for each in (sender, reader):
        each.store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, FragmentId(1), FragmentId(2)),)))
    reader.store.commit(Commit(records=(CopyRecord(LOG, ROUTE),)))
    sender.readers[LOG] = {"reader"}
    pulling = Pulling(reader.knows(sender).store, reader.client_for)
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(0, 5)),), settles=False))  # its thread still waits
    assert sender.store.syncer.settled < sender.store.syncer.written
    assert pulling.pull(ROUTE, [LOG]) == 5
    assert sender.store.syncer.settled == sender.store.syncer.written
    assert reader.store.syncer.settled == reader.store.syncer.written  # what came is on the disk, too
    reader.store.commit(Commit(consumed={LOG: 5}, settles=False))
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(5, 1)),)))
    pulling.pull(ROUTE, [LOG])
    assert sender.store.exchange.start(LOG) == 5
    sender.close()
    reader.close()


def test_a_log_that_goes_on_elsewhere_is_renewed(pair: Pair) -> None:
    pair.write(0, 10)
    pair.pull()
    pair.sender.store.commit(Commit(renew=(LOG,)))
    lineage = pair.sender.store.views.channels[LOG].lineage
    assert lineage[-1].base == 10
    pair.pull()
    assert pair.reader.store.views.channels[LOG].lineage == lineage
    assert pair.rest() == list(range(10))


def test_a_log_that_another_site_takes_over_keeps_its_numbers_although_its_reader_is_ahead(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine was started again while the log is taken over: numbers that the new sender has must not change."""
    pair.write(0, 10)
    pair.remember()
    pair.write(10, 20)
    pair.pull()
    assert pair.process(25) == list(range(25))
    pair.power_failure()
    pair.write(100, 30)
    monkeypatch.setattr(pair.sender, "is_given_away", lambda channel: True)
    before = pair.sender.store.views.channels[LOG].tail
    pair.pull()
    assert pair.rest() == []  # those from 25 on would be others than the reader takes them for
    assert pair.sender.store.views.channels[LOG].tail == before
    monkeypatch.undo()
    pair.pull()
    assert pair.rest() == list(range(100, 130))


@pytest.mark.parametrize("seen", [0, 10])
def test_a_reader_goes_on_behind_what_its_sender_had_to_drop(pair: Pair, seen: int) -> None:
    """Also one that never had anything, as it was away from the beginning."""
    pair.write(0, 10)
    if seen:
        pair.pull()
        assert pair.rest() == list(range(10))
    pair.write(10, 4_000)
    now_s = [0.0]
    budget = ChannelBudget(10_000, Overflow.DROP_OLDEST)
    budgets = ChannelBudgets(pair.sender.store, budget, lambda fragment: fragment == 1, lambda: now_s[0])
    pair.write(4_010, 1_000)
    assert budgets.held() == frozenset()
    assert budgets.dropped > 0
    pair.pull(6)
    assert pair.rest() == list(range(budgets.dropped, 5_010))
    assert pair.pulling.metrics.missing == budgets.dropped - seen
