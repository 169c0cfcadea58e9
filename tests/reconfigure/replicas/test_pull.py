"""Replicas follow a store: whatever anybody has seen of it is in each of them, whenever it dies. Without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.replicas.pull import ReplicaPull, ReplicaRefusedError
from meander.run.channels.base import ChannelAppend
from meander.run.channels.flight.client import AwayError, FlightClient
from meander.run.channels.flight.server import SEGMENTS
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.replicas import ReplicationRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, observed, rows

CHANNELS = (ChannelId(0), ChannelId(1))
BOUNDS = {"most_bytes": 1_000_000_000, "most_ms": 3_600_000, "every_ms": 0}
SMALL = StoreOptions(segment_bytes=4_000, segment_records=6)


class Wire:
    """Implements what a keeper asks of a client, with answers that may break off."""

    def __init__(self, site: Primary, keeper: str, rng: Random) -> None:
        self.site, self.keeper, self.rng, self.cuts = site, keeper, rng, 0.0

    def get(self, ticket: Mapping[str, Any], timeout_s: float | None = None) -> Iterator[Any]:
        try:
            answer = list(self.site.replication.serve(self.keeper, ticket["replica"], ticket["most_bytes"], 0.0))
        except InputError as error:
            raise AwayError(str(error)) from None
        for head, data in answer:
            if self.rng.random() < self.cuts:
                raise AwayError("the connection broke")
            columns = [pa.array([json.dumps(head)], pa.string()), pa.array([data], pa.large_binary())]
            yield SimpleNamespace(data=pa.RecordBatch.from_arrays(columns, schema=SEGMENTS))


class Primary:
    """A store with two channels and its keepers."""

    def __init__(self, directory: Path, keepers: tuple[str, ...], rng: Random) -> None:
        self.directory, self.rng = directory, rng
        self.open()
        for number in CHANNELS:
            self.store.commit(Commit(add=(channel(number),)))
        self.replication.configure({"keepers": dict.fromkeys(keepers, 1), **BOUNDS})
        self.following = {name: self.follow(name) for name in keepers}

    def open(self) -> None:
        self.store = Store.open(self.directory / "primary", SMALL)
        self.replication = Replication(self.store)

    def follow(self, name: str) -> ReplicaPull:
        wire = Wire(self, name, self.rng)

        def client(site: str) -> FlightClient:
            return wire  # type: ignore[return-value]

        found = ReplicaPull("west", 1, self.directory / name, ("west",), client)
        found.mirror_wire = wire  # type: ignore[attr-defined]
        return found

    def work(self) -> None:
        """A commit: tuples come into one channel, some of it is processed, results go into the other."""
        first, second = CHANNELS
        start, end = self.store.exchange.start(first), self.store.exchange.end(first)
        self.store.commit(
            Commit(
                consumed={first: self.rng.randint(start, end)},
                appends=(
                    ChannelAppend.one(first, rows(*range(self.rng.randint(1, 40)))),
                    ChannelAppend.one(second, rows(self.rng.randint(0, 99)), watermark=end),
                ),
            )
        )
        if self.rng.random() < 0.3:
            seen = self.store.released(second, self.store.exchange.end(second))
            self.store.commit(Commit(consumed={second: max(seen, self.store.exchange.start(second))}))

    def seen(self) -> dict[ChannelId, tuple[int, int]]:
        """What others may have seen by now: how far channels can be read, and what may be forgotten of them."""
        exchange = self.store.exchange
        return {
            c: (self.store.released(c, exchange.end(c)), self.store.processed(c, exchange.start(c))) for c in CHANNELS
        }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000), keepers=st.sampled_from([("b",), ("b", "c")]))
def test_whatever_was_seen_of_a_site_is_in_every_replica_in_sync_whenever_it_dies(
    seed: int, keepers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng, directory = Random(seed), tmp_path_factory.mktemp("mirrors")
    primary = Primary(directory, keepers, rng)
    followed = primary.following
    counts_on: set[str] = set()
    seen: dict[ChannelId, tuple[int, int]] = {}
    for _ in range(rng.randint(5, 60)):
        chosen = rng.random()
        if chosen < 0.5:
            primary.work()
        elif chosen < 0.93:
            keeper = followed[rng.choice(keepers)]
            keeper.mirror_wire.cuts = rng.choice([0.0, 0.0, 0.3])  # type: ignore[attr-defined]
            with suppress(AwayError):
                keeper.pull(wait_ms=0)
        elif chosen < 0.97:  # the process ends and starts again
            primary.replication.stop()
            primary.store.close()
            primary.open()
        else:  # so does a keeper's
            name = rng.choice(keepers)
            followed[name].mirror.close()
            followed[name] = primary.follow(name)
        counts_on = set(primary.store.record(ReplicationRecord).in_sync)  # type: ignore[union-attr]
        if counts_on:
            seen = {c: tuple(map(max, seen.get(c, (0, 0)), at)) for c, at in primary.seen().items()}  # type: ignore[misc]
    primary.store.close()
    shutil.rmtree(directory / "primary")
    for name in counts_on:
        replica = Store.open(directory / name)
        record = replica.record(ReplicationRecord)
        if followed[name].mirror.is_whole and record is not None and name in record.in_sync:  # as a keeper looks
            for number, (end, processed) in seen.items():
                assert replica.exchange.end(number) >= end
                assert replica.exchange.start(number) >= processed
        replica.close()


def test_a_keeper_that_follows_is_in_sync_and_its_replica_says_so(tmp_path: Path) -> None:
    primary = Primary(tmp_path, ("b", "c"), Random(5))
    for _ in range(4):
        primary.work()
        for keeper in primary.following.values():
            keeper.pull(wait_ms=0)
    primary.store.close()
    for name in ("b", "c"):
        replica = Store.open(tmp_path / name)
        record = replica.record(ReplicationRecord)
        assert record is not None
        assert set(record.in_sync) == {"b", "c"}
        replica.close()


def test_a_replica_that_has_everything_is_the_store(tmp_path: Path) -> None:
    primary = Primary(tmp_path, ("b",), Random(1))
    for _ in range(50):
        primary.work()
        primary.following["b"].pull(wait_ms=0)
    primary.following["b"].pull(wait_ms=0)
    primary.replication.wait(0.0)
    told = observed(primary.store)
    primary.store.close()
    primary.following["b"].mirror.close()
    replica = Store.open(tmp_path / "b")
    assert observed(replica) == told
    replica.close()


def test_nothing_leaves_until_the_replica_has_it_and_all_of_it_when_it_is_not_kept_any_more(tmp_path: Path) -> None:
    primary, out = Primary(tmp_path, ("b",), Random(2)), CHANNELS[1]
    follow, store = primary.following["b"], primary.store
    for _ in range(3):
        follow.pull(wait_ms=0)
    before = store.released(out, store.exchange.end(out))
    primary.work()
    end = store.exchange.end(out)
    assert store.released(out, end) == before < end
    with pytest.raises(JournalError, match="replicas at b do not have it yet"):
        primary.replication.wait(0.0)
    follow.pull(wait_ms=0)
    assert store.released(out, end) == before, "what was sent is not confirmed yet"
    follow.pull(wait_ms=0)
    assert store.released(out, end) == end
    primary.work()
    primary.replication.configure({"keepers": {}, **BOUNDS})
    assert store.released(out, store.exchange.end(out)) == store.exchange.end(out)
    with pytest.raises(AwayError, match="'b' keeps no replica of this site"):
        follow.pull(wait_ms=0)
    store.close()


def test_nothing_more_is_taken_in_while_a_replica_is_too_far_behind(tmp_path: Path) -> None:
    primary = Primary(tmp_path, ("b",), Random(4))
    follow, asked = primary.following["b"], list[str]()
    primary.replication.configure({"keepers": {"b": 1}, "most_bytes": 0, "most_ms": 0, "every_ms": 0})

    def catch_up() -> bool:
        asked.append("whether it is over")
        follow.pull(wait_ms=0)
        return False

    for _ in range(3):
        follow.pull(wait_ms=0)
    primary.work()
    primary.replication.throttle(catch_up)
    assert len(asked) == 2, "one request brings it, the next one says so"
    primary.work()
    primary.replication.throttle(lambda: True)
    with pytest.raises(JournalError):
        primary.replication.wait(0.0)
    primary.store.close()


def test_a_replica_whose_site_lost_the_end_of_its_journal_takes_that_segment_anew(tmp_path: Path) -> None:
    """A power failure may cut off what was written last; what is written there afterwards is something else."""
    primary = Primary(tmp_path, ("b",), Random(3))
    for _ in range(3):
        primary.work()
        primary.following["b"].pull(wait_ms=0)
    primary.store.close()
    newest = max((tmp_path / "primary").glob("*.seg"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-40])
    primary.open()
    primary.work()
    primary.work()
    again = primary.follow("b")
    for _ in range(3):
        again.pull(wait_ms=0)
    told = observed(primary.store)
    primary.store.close()
    again.mirror.close()
    replica = Store.open(tmp_path / "b")
    assert observed(replica) == told
    replica.close()


def test_of_a_store_that_is_larger_than_the_budget_no_more_is_kept_than_that(tmp_path: Path) -> None:
    primary = Primary(tmp_path, ("b",), Random(6))
    for _ in range(30):
        primary.work()
    primary.store.close()
    primary.open()
    following = primary.following["b"]
    following.most_bytes = 2_000
    with pytest.raises(ReplicaRefusedError, match="larger than 0 MB; raise `replica_budget`"):
        following.pull(wait_ms=0)
    assert sum(path.stat().st_size for path in (tmp_path / "b").glob("*.seg")) <= 2_000
    primary.store.close()


def answered(*pieces: tuple[Any, bytes]) -> FlightClient:
    """A site that answers whatever it likes."""

    def get(ticket: Mapping[str, Any], timeout_s: float | None = None) -> Iterator[Any]:
        for head, data in pieces:
            text = head if isinstance(head, str) else json.dumps(head)
            columns = [pa.array([text], pa.string()), pa.array([data], pa.large_binary())]
            yield SimpleNamespace(data=pa.RecordBatch.from_arrays(columns, schema=SEGMENTS))

    return SimpleNamespace(get=get)  # type: ignore[return-value]


HEAD = {"incarnation": "x", "segments": {"1": 10}, "anew": [], "offer": "1", "every_ms": 0}


@pytest.mark.parametrize(
    "pieces",
    [
        [("no json", b"")],
        [([], b"")],
        [({"segments": {"1": "many"}, "anew": [], "incarnation": "x", "offer": "1"}, b"")],
        [({**HEAD, "anew": ["../.."]}, b"")],
        [(HEAD, b""), ({"segment": "..", "offset": 0}, b"data")],
        [(HEAD, b""), ({"segment": -1, "offset": 0}, b"data")],
        [(HEAD, b""), ({"segment": 10_000_000_000, "offset": 0}, b"data")],
        [(HEAD, b""), *(({"segment": n, "offset": 0}, b"x") for n in range(20_000))],
    ],
    ids=["text", "list", "size", "path to drop", "path", "negative", "high", "many"],
)
def test_what_is_no_journal_is_refused_and_nothing_outside_the_replica_is_touched(
    pieces: list[tuple[Any, bytes]], tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("stays")
    client = answered(*pieces)
    following = ReplicaPull("west", 1, tmp_path / "kept" / "store", ("west",), lambda site: client, most_bytes=50_000)
    with pytest.raises(ReplicaRefusedError):
        following.pull(wait_ms=0)
    following.mirror.close()
    assert (tmp_path / "other").read_text() == "stays"
    assert not following.is_complete
    assert [path.name for path in tmp_path.iterdir() if path.name != "kept"] == ["other"]


def test_a_replica_that_is_refused_says_why_and_asks_for_nothing_more(tmp_path: Path) -> None:
    asked: list[Mapping[str, Any]] = []

    def get(ticket: Mapping[str, Any], timeout_s: float | None = None) -> Iterator[Any]:
        asked.append(ticket)
        return iter(answered((HEAD, b""), ({"segment": 1, "offset": 0}, bytes(100))).get(ticket))

    client: Any = SimpleNamespace(get=get)
    following = ReplicaPull("west", 1, tmp_path / "store", ("west",), lambda site: client, most_bytes=99)
    following.start()
    assert following._thread is not None
    following._thread.join()
    assert following.refused == following.problem
    assert "larger than" in str(following.refused)
    assert len(asked) == 1
    following.stop()
