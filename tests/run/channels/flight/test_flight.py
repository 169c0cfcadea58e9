"""Channels between two stores over Arrow Flight: the copy is the log, whatever breaks in between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import meander.coordinator.security.certificates as certificates
from meander.coordinator.security.certificates import make
from meander.deploy.markers import Marker, MarkerAction
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.reconfigure.state import pull
from meander.reconfigure.state.job import MoveState
from meander.reconfigure.state.pull import StatePull
from meander.reconfigure.state.transfer import Export, import_state
from meander.run.channels.base import ChannelAppend, ChannelSpec, Chunk
from meander.run.channels.flight import client as flight_client
from meander.run.channels.flight.client import AwayError, ClientTls, FlightClient, PeerRefusedError
from meander.run.channels.flight.proof import COORDINATOR, PeerAddress, proof
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.ranges import RANGES, ChannelRange, DamagedError, checksum, from_batch, to_batch
from meander.run.channels.flight.server import FlightServer
from meander.run.channels.flight.untrusted import UntrustedError
from meander.run.store.commit import Commit, CommitResult, StateAppend
from meander.run.store.incarnations import Lineage
from meander.run.store.records.transport import CopyRecord
from meander.run.store.store import Store
from tests.run.channels.two_stores import SCHEMA, Place, place, rows

TIMEOUT_S = 300.0
LOG, OTHER = ChannelId(7), ChannelId(8)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine answers take their time."""
    monkeypatch.setattr(flight_client, "ORDER_S", TIMEOUT_S)
    monkeypatch.setattr(flight_client, "PULL_S", TIMEOUT_S)


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Place]:
    found = place(tmp_path, "sender")
    for channel in (LOG, OTHER):
        found.store.commit(Commit(add=(ChannelSpec(channel, SCHEMA, FragmentId(1), FragmentId(2)),)))
        found.readers[channel] = {"reader"}
    yield found
    found.close()


@pytest.fixture
def reader(tmp_path: Path, sender: Place) -> Iterator[Place]:
    found = place(tmp_path, "reader").knows(sender)
    for channel in (LOG, OTHER):
        found.store.commit(Commit(add=(ChannelSpec(channel, SCHEMA, FragmentId(1), FragmentId(2)),)))
        found.store.commit(Commit(records=(CopyRecord(channel, ("sender",)),)))
    yield found
    found.close()


def written(store: Store, channel: ChannelId) -> tuple[object, ...]:
    """Everything in a channel, with its numbers."""
    exchange = store.exchange
    chunk = exchange.read(channel, exchange.start(channel), exchange.end(channel))
    return chunk.start, chunk.stop, chunk.table.to_pylist(), chunk.watermarks, chunk.markers


def some_of_everything(store: Store) -> None:
    marker = Marker.of(3, {(FragmentId(2), 1): MarkerAction.UPDATE})
    for append in (
        ChannelAppend.one(LOG, rows(0, 5), 100),
        ChannelAppend.one(LOG, rows(5, 1)),
        ChannelAppend.one(LOG, None, 200, marker),
        ChannelAppend.one(LOG, None, None, marker),
        ChannelAppend.one(LOG, rows(6, 3), 300, marker),
        ChannelAppend.one(OTHER, rows(0, 2)),
    ):
        store.commit(Commit(appends=(append,)))


def test_a_copy_has_the_numbers_watermarks_and_markers_of_the_log(sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    pulling = Pulling(reader.store, reader.client_for)
    assert pulling.pull(("sender",), [LOG, OTHER]) == 17
    assert written(reader.store, LOG) == written(sender.store, LOG)
    assert written(reader.store, OTHER) == written(sender.store, OTHER)


def test_what_is_processed_is_forgotten_at_the_sender_and_nothing_else(sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    pulling = Pulling(reader.store, reader.client_for)
    pulling.pull(("sender",), [LOG])
    reader.store.commit(Commit(consumed={LOG: 6}))
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(9, 1)),)))
    pulling.pull(("sender",), [LOG])
    assert sender.store.exchange.start(LOG) == 0  # a power failure at the reader could take it back
    reader.store.syncer.sync()
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(10, 1)),)))
    pulling.pull(("sender",), [LOG])
    assert sender.store.exchange.start(LOG) == 6
    assert written(reader.store, LOG) == written(sender.store, LOG)


def test_a_copy_that_is_far_enough_ahead_is_not_asked_for(sender: Place, reader: Place) -> None:
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(0, 50)),)))
    pulling = Pulling(reader.store, reader.client_for, ahead_records=50)
    assert pulling.pull(("sender",), [LOG]) == 50
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(50, 50)),)))
    assert pulling.pull(("sender",), [LOG]) == 0
    reader.store.commit(Commit(consumed={LOG: 10}))
    assert pulling.pull(("sender",), [LOG]) == 50


def test_a_log_that_is_taken_over_comes_whole_however_long_it_is(sender: Place, reader: Place) -> None:
    """Nobody processes it here before it is complete: a bound on how far ahead it may be would hold it up for ever."""
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(0, 50)),)))
    pulling = Pulling(reader.store, reader.client_for, ahead_records=50)
    assert pulling.pull(("sender",), [LOG]) == 50
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(50, 70)),)))
    pulling.wanted_whole = lambda: {LOG}
    assert pulling.pull(("sender",), [LOG]) == 70
    assert written(reader.store, LOG) == written(sender.store, LOG)


def test_pulling_goes_on_when_either_end_was_away(tmp_path: Path, sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    pulling = Pulling(reader.store, reader.client_for)
    pulling.refresh()
    until(lambda: reader.store.exchange.end(LOG) == sender.store.exchange.end(LOG))
    assert sender.door is not None
    sender.door.shutdown()
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(20, 100)),)))
    until(lambda: bool(pulling.problems))
    reader.knows(sender.open())
    until(lambda: reader.store.exchange.end(LOG) == sender.store.exchange.end(LOG))
    pulling.stop()
    reader.store.close()
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(200, 100)),)))
    again = Store.open(tmp_path / "reader")
    resumed = Pulling(again, reader.client_for)
    resumed.refresh()
    until(lambda: again.exchange.end(LOG) == sender.store.exchange.end(LOG))
    resumed.stop()
    assert written(again, LOG) == written(sender.store, LOG)
    again.close()


def test_a_damaged_range_has_no_effect_and_comes_again(sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    good = ChannelRange.of(sender.store.exchange.read(LOG, 0, 7))
    body = bytearray(good.body)
    body[-9] ^= 1
    bad = replace(good, body=bytes(body))
    pulling = Pulling(reader.store, reader.client_for)
    with pytest.raises(DamagedError, match="records 0 to 7 of channel 7"):
        pulling.take(from_batch(to_batch([bad])))
    assert reader.store.exchange.end(LOG) == 0
    assert pulling.take(from_batch(to_batch([good]))) == 7
    assert pulling.take(from_batch(to_batch([good]))) == 0
    assert reader.store.exchange.end(LOG) == 7


def test_what_is_damaged_on_its_way_is_told_of_at_both_ends_and_comes_again(
    sender: Place, reader: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    some_of_everything(sender.store)
    made, broken = ChannelRange.of, [True]

    def damaging(chunk: Chunk, lineage: Lineage = ()) -> ChannelRange:
        found = made(chunk, lineage)
        if broken and found.body:
            broken.pop()
            body = bytearray(found.body)
            body[-9] ^= 1
            return replace(found, body=bytes(body))
        return found

    monkeypatch.setattr(ChannelRange, "of", damaging)
    pulling = Pulling(reader.store, reader.client_for)
    pulling.refresh()
    until(lambda: reader.store.exchange.end(LOG) == sender.store.exchange.end(LOG))
    pulling.stop()
    assert pulling.metrics.damaged == 1
    assert written(reader.store, LOG) == written(sender.store, LOG)
    assert "nothing comes from sender: records 0 to" in caplog.text
    assert "'reader' got something damaged, and gets it again: records 0 to" in caplog.text


def test_who_is_refused_at_a_door_is_in_the_log_once_a_minute(sender: Place, caplog: pytest.LogCaptureFixture) -> None:
    stranger = FlightClient(PeerAddress(sender.address, "nonsense"), "stranger")
    for _ in range(3):
        with pytest.raises(PeerRefusedError):
            stranger.order("hello", {})
    assert caplog.text.count("a client that says to be 'stranger' was refused: no proof") == 1
    assert sender.door is not None
    assert sender.door.refusals.count == 3


def test_what_is_left_of_a_range_is_what_the_log_has_from_there_on(sender: Place) -> None:
    some_of_everything(sender.store)
    exchange = sender.store.exchange
    whole = ChannelRange.of(exchange.read(LOG, 0, exchange.end(LOG)))
    for first in range(whole.stop):
        assert whole.after(first, SCHEMA) == ChannelRange.of(exchange.read(LOG, first, whole.stop))


def test_of_ranges_that_overlap_with_the_copy_only_the_rest_is_appended_and_nothing_behind_a_gap(
    sender: Place, reader: Place
) -> None:
    some_of_everything(sender.store)
    pulling, exchange = Pulling(reader.store, reader.client_for), sender.store.exchange
    assert pulling.take([ChannelRange.of(exchange.read(LOG, 0, 4))]) == 4
    assert pulling.take([ChannelRange.of(exchange.read(LOG, 9, 12))]) == 0
    assert pulling.take([ChannelRange.of(exchange.read(LOG, 2, 10))]) == 6
    assert pulling.take([ChannelRange.of(exchange.read(LOG, 0, exchange.end(LOG)))]) == exchange.end(LOG) - 10
    assert written(reader.store, LOG) == written(sender.store, LOG)


def test_a_site_can_put_records_into_copies_of_its_own_logs_only(sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    pulling = Pulling(reader.store, reader.client_for)
    found = [ChannelRange.of(sender.store.exchange.read(LOG, 0, 7))]
    assert pulling.take(found, sender="somebody else") == 0
    assert reader.store.exchange.end(LOG) == 0
    assert pulling.take(found, sender="sender") == 7


HOSTILE: list[dict[str, Any]] = [
    {"control": "[]"},
    {"control": "{}"},
    {"control": "7"},
    {"control": "[" * 100_000},
    {"control": "no JSON"},
    {"control": json.dumps({"rows": -5, "watermarks": [], "markers": []})},
    {"control": json.dumps({"rows": 1, "watermarks": [[0, 10**30]], "markers": []})},
    {"control": json.dumps({"rows": 1, "watermarks": 3, "markers": []})},
    {"control": json.dumps({"rows": 1, "watermarks": [], "markers": [[0, {"evil": 1}]]})},
    {"control": json.dumps({"rows": 1, "watermarks": [], "markers": [[0, "x"]]})},
    {"control": json.dumps({"rows": 1, "watermarks": [], "markers": [], "lineage": [["a", None]]})},
    {"control": json.dumps({"rows": 7, "watermarks": [], "markers": []}), "stop": 2**63 - 1},
    {"control": json.dumps({"rows": 2**62, "watermarks": [], "markers": []}), "stop": 2**62},
    {"body": b"\xff" * 1_000},
    {"body": b""},
]


@pytest.mark.parametrize("wrong", HOSTILE, ids=str)
def test_a_hostile_sender_spoils_its_own_request_and_nothing_else(
    sender: Place, reader: Place, wrong: dict[str, Any]
) -> None:
    some_of_everything(sender.store)
    good = ChannelRange.of(sender.store.exchange.read(LOG, 0, 7))
    bad = replace(good, **wrong)
    bad = replace(bad, checksum=checksum(bad.control, bad.body))

    class Hostile(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.GeneratorStream(RANGES, iter([to_batch([bad])]))

    with Hostile("grpc://127.0.0.1:0") as hostile:
        evil = FlightClient(PeerAddress(f"grpc://127.0.0.1:{hostile.port}", "x"), "reader")
        with pytest.raises((UntrustedError, PeerRefusedError)):
            Pulling(reader.store, lambda site: evil).pull(("sender",), [LOG])
    assert reader.store.exchange.end(LOG) == 0
    assert Pulling(reader.store, reader.client_for).pull(("sender",), [LOG]) == sender.store.exchange.end(LOG)


def test_records_that_two_ways_bring_at_the_same_time_are_appended_once(
    sender: Place, reader: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_of_everything(sender.store)
    batch = to_batch([ChannelRange.of(sender.store.exchange.read(LOG, 0, 7))])
    pulling = Pulling(reader.store, reader.client_for)
    commit = Store.commit

    def slow_commit(store: Store, what: Commit) -> CommitResult:
        time.sleep(0.05)
        return commit(store, what)

    monkeypatch.setattr(Store, "commit", slow_commit)
    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(lambda _: pulling.take(from_batch(batch)), range(4)))
    assert sorted(came) == [0, 0, 0, 7]
    assert reader.store.exchange.end(LOG) == 7


def test_a_channel_that_is_not_given_does_not_hold_up_the_others(sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    sender.readers[LOG] = {"somebody else"}
    pulling = Pulling(reader.store, reader.client_for)
    assert pulling.pull(("sender",), [LOG, OTHER]) == 2
    assert "not for 'reader'" in pulling.refused[LOG]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("reader", "nonsense"), ("reader", ""), ("stranger", "of the reader")],
    ids=["a wrong proof", "no proof", "a proof of somebody else"],
)
def test_nobody_gets_in_without_a_proof(sender: Place, name: str, shown: str) -> None:
    shown = proof(sender.key, "reader") if shown == "of the reader" else shown
    client = FlightClient(PeerAddress(sender.address, shown), name)
    with pytest.raises(PeerRefusedError, match="join the coordinator with a token"):
        list(client.get({"pull": {"7": [0, 0]}}))
    with pytest.raises(PeerRefusedError, match="join the coordinator with a token"):
        client.order("hello", {})
    assert sender.orders == []


def test_a_connection_that_one_thread_gives_up_serves_the_others_to_the_end(sender: Place, reader: Place) -> None:
    """Closing it under them ended the process."""
    some_of_everything(sender.store)
    client, ended = reader.client_for("sender"), time.monotonic() + 1.5

    def ask() -> int:
        count = 0
        while time.monotonic() < ended:
            count += len(list(client.get({"pull": {str(LOG): [0, 0]}})))
        return count

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask) for _ in range(6)]
        while time.monotonic() < ended:
            client.close()
            time.sleep(0.001)
        assert all(each.result() > 0 for each in asking)


def test_orders_come_from_the_coordinator_only(sender: Place) -> None:
    with pytest.raises(PeerRefusedError, match="not from 'reader'"):
        FlightClient(PeerAddress(sender.address, proof(sender.key, "reader")), "reader").order("abort", {"number": 1})
    assert sender.orders == []
    client = FlightClient(PeerAddress(sender.address, proof(sender.key, COORDINATOR)), COORDINATOR)
    assert client.order("hello", {"epoch": 1}) == {"done": "hello"}


def test_an_address_that_is_taken_is_an_error_that_says_so(sender: Place) -> None:
    with pytest.raises(InputError, match=f"cannot listen at {sender.address}"):
        FlightServer(sender.store, sender, sender.key, sender.address)


def test_a_relay_passes_through_what_it_is_asked_for(tmp_path: Path, sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    first = place(tmp_path, "first").knows(sender)
    second = place(tmp_path, "second").knows(first)
    reader.knows(second)
    sender.readers[LOG] = {"reader", "first"}
    pulling = Pulling(reader.store, reader.client_for)
    assert pulling.pull(("second", "first", "sender"), [LOG]) == 15
    assert written(reader.store, LOG) == written(sender.store, LOG)
    sender.readers[LOG] = set()
    sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(9, 1)),)))
    assert pulling.pull(("second", "first", "sender"), [LOG]) == 0
    for each in (first, second):
        each.close()


@pytest.mark.parametrize(
    "route",
    [["sender", "relay", "sender"], ["reader"], [f"s{n}" for n in range(33)], "sender", [["sender"]]],
    ids=["twice", "back", "long", "a text", "a list in it"],
)
def test_a_relay_passes_nothing_round_and_round(tmp_path: Path, sender: Place, reader: Place, route: Any) -> None:
    relay = place(tmp_path, "relay").knows(sender, reader)
    reader.knows(relay, sender)
    ticket = {**reader.client_for("sender").signed({"pull": {str(LOG): [0, 5]}}), "way": route}
    with pytest.raises(PeerRefusedError, match="each once"):
        list(reader.client_for("relay").get(ticket))
    relay.close()


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[]", b"\xff", b"7"])
def test_a_request_that_is_none_costs_its_sender_an_answer(sender: Place, reader: Place, text: bytes) -> None:
    some_of_everything(sender.store)
    client = reader.client_for("sender")
    with pytest.raises(flight.FlightUnauthorizedError, match="a request came that is no"):
        client._connected().do_get(flight.Ticket(text), client._call(5.0)).read_all()
    assert Pulling(reader.store, reader.client_for).pull(("sender",), [LOG]) == 15


def test_nobody_gets_through_a_relay_what_is_not_for_it(tmp_path: Path, sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    relay = place(tmp_path, "relay").knows(sender)
    thief = place(tmp_path, "thief").knows(relay, sender)
    sender.readers[LOG] = {"reader", "relay"}
    wanted = {"pull": {str(LOG): [0, 5]}}
    mine = thief.client_for("sender").signed(wanted)
    for ticket, refusal in (
        (wanted, "has to be signed"),
        ({**mine, "for": "reader"}, "'relay' cannot show that 'reader' wants this"),
        ({**wanted, "for": "relay"}, "'relay' cannot show that 'relay' wants this"),
    ):
        with pytest.raises(PeerRefusedError, match=refusal):
            list(thief.client_for("relay").get({**ticket, "way": ["sender"]}))
    (piece,) = thief.client_for("relay").get({**mine, "way": ["sender"]})
    (refused,) = from_batch(piece.data)
    assert "not for 'thief' through 'relay'" in refused.checked()["problem"]
    assert sender.store.exchange.start(LOG) == 0
    for each in (relay, thief):
        each.close()


def test_a_relay_cannot_change_what_it_passes_on(tmp_path: Path, sender: Place, reader: Place) -> None:
    some_of_everything(sender.store)
    relay = place(tmp_path, "relay").knows(sender)
    sender.readers[LOG] = {"reader", "relay"}
    signed = reader.client_for("sender").signed({"pull": {str(LOG): [0, 0]}})
    with pytest.raises(PeerRefusedError, match="cannot show that 'reader' wants this"):
        list(relay.client_for("sender").get({**signed, "pull": {str(LOG): [0, 5]}}))
    assert sender.store.exchange.start(LOG) == 0
    assert len(list(relay.client_for("sender").get(signed))) == 1
    relay.close()


def test_state_of_a_sender_that_has_fallen_silent_can_be_called_off_at_once(
    tmp_path: Path, sender: Place, reader: Place
) -> None:
    for bucket in range(20):
        append = StateAppend.sliced(rows(bucket * 100, 100), 3, [FragmentId(1)], [bucket], [100])
        sender.store.commit(Commit(state_appends=(append,)))
    silence = threading.Event()

    class Silent(Export):
        def chunk(self, number: int) -> bytes:
            if number == 3:
                silence.wait()
            return super().chunk(number)

    export = Silent(sender.store, FragmentId(1), operators=[3], chunk_bytes=2_000)
    sender.exports[5, 0] = ("reader", export, [3])
    move = StatePull(reader.store, FragmentId(2), 5, 0, [7], ["sender"], reader.client_for)
    move.start()
    until(lambda: move.chunks == 3)
    calling_off = threading.Thread(target=move.cancel, daemon=True)
    calling_off.start()
    calling_off.join(TIMEOUT_S)
    assert not calling_off.is_alive()
    assert move.state is MoveState.CANCELLED
    silence.set()
    assert move.wait(TIMEOUT_S) is False
    assert move.chunks == 3


def test_what_was_found_last_about_ways_is_what_counts(
    sender: Place, reader: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulling = Pulling(reader.store, reader.client_for)
    pulling._stopping.set()  # nothing is pulled; only what would be counts
    looked, go_on, records = threading.Event(), threading.Event(), Store.records

    def slow(store: Store, of: Any) -> dict[Any, Any]:
        found = records(store, of)
        if threading.current_thread().name == "slow":
            looked.set()
            go_on.wait(TIMEOUT_S)
        return found

    monkeypatch.setattr(Store, "records", slow)
    first = threading.Thread(target=pulling.refresh, name="slow", daemon=True)
    first.start()
    looked.wait(TIMEOUT_S)
    reader.store.commit(Commit(records=(CopyRecord(ChannelId(99), ("sender",)),)))
    second = threading.Thread(target=pulling.refresh, daemon=True)
    second.start()
    second.join(0.3)
    go_on.set()
    first.join()
    second.join()
    assert ChannelId(99) in pulling._routes["sender",]


def test_tuples_of_every_type_arrive_as_they_were(sender: Place, reader: Place) -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("a", pa.list_(pa.float64())), ("b", pa.binary())])
    table = pa.table({"t": [0, None], "a": [[1.0, None], None], "b": [b"\0", b""]}, schema=schema)
    channel = ChannelId(9)
    for each in (sender, reader):
        each.store.commit(Commit(add=(ChannelSpec(channel, schema),)))
    reader.store.commit(Commit(records=(CopyRecord(channel, ("sender",)),)))
    sender.readers[channel] = {"reader"}
    sender.store.commit(Commit(appends=(ChannelAppend.one(channel, table),)))
    Pulling(reader.store, reader.client_for).pull(("sender",), [channel])
    assert written(reader.store, channel) == written(sender.store, channel)


def test_with_certificates_only_those_who_trust_the_authority_talk(tmp_path: Path, sender: Place) -> None:
    made, others = make(tmp_path / "ours", ["sender"]), make(tmp_path / "theirs", ["sender"])
    pair = (made[-1].certificate.read_bytes(), made[-1].key.read_bytes())
    door = FlightServer(sender.store, sender, sender.key, "grpc+tls://127.0.0.1:0", [pair])
    contact = PeerAddress(f"grpc+tls://127.0.0.1:{door.port}", proof(sender.key, COORDINATOR))
    try:
        ours = (tmp_path / "ours" / "ca.pem").read_bytes()
        theirs = (tmp_path / "theirs" / "ca.pem").read_bytes()
        assert others
        assert FlightClient(contact, COORDINATOR, ClientTls(ours)).order("hello", {}) == {"done": "hello"}
        with pytest.raises(AwayError):
            FlightClient(contact, COORDINATOR, ClientTls(theirs)).order("hello", {}, 5.0)
    finally:
        door.shutdown()


def test_a_site_whose_certificate_has_expired_is_not_talked_to(
    tmp_path: Path, sender: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "DAYS", -1)
    monkeypatch.setattr(certificates, "EARLIER", timedelta(days=10))
    (made,) = make(tmp_path / "ours", ["sender"])
    authority, pair = (
        (tmp_path / "ours" / "ca.pem").read_bytes(),
        (made.certificate.read_bytes(), made.key.read_bytes()),
    )
    door = FlightServer(sender.store, sender, sender.key, "grpc+tls://127.0.0.1:0", [pair])
    contact = PeerAddress(f"grpc+tls://127.0.0.1:{door.port}", proof(sender.key, COORDINATOR))
    try:
        with pytest.raises(AwayError, match="certificate has expired"):
            FlightClient(contact, COORDINATOR, ClientTls(authority)).order("hello", {}, 5.0)
    finally:
        door.shutdown()


def test_a_site_whose_token_was_revoked_gets_nothing_more_at_once(tmp_path: Path, sender: Place) -> None:
    some_of_everything(sender.store)
    revoked: set[str] = set()
    door = FlightServer(sender.store, sender, sender.key, is_revoked=revoked.__contains__)
    client = FlightClient(PeerAddress(f"grpc://127.0.0.1:{door.port}", proof(sender.key, "reader")), "reader")
    wanted = {"pull": {str(LOG): [0, 0]}}
    try:
        assert list(client.get(wanted))
        signed = {**client.signed(wanted)}
        revoked.add("reader")
        with pytest.raises(PeerRefusedError, match="was revoked"):
            list(client.get(wanted))
        relay = FlightClient(PeerAddress(f"grpc://127.0.0.1:{door.port}", proof(sender.key, "relay")), "relay")
        with pytest.raises(PeerRefusedError, match="cannot show"):
            list(relay.get(signed))
    finally:
        door.shutdown()


def test_with_mutual_tls_a_proof_alone_lets_nobody_in(tmp_path: Path, sender: Place) -> None:
    ours, west = make(tmp_path / "ours", ["sender", "west"])
    (mallory,) = make(tmp_path / "theirs", ["mallory"])
    authority = (tmp_path / "ours" / "ca.pem").read_bytes()
    pair, good, bad = ((f.certificate.read_bytes(), f.key.read_bytes()) for f in (ours, west, mallory))
    door = FlightServer(sender.store, sender, sender.key, "grpc+tls://127.0.0.1:0", [pair], clients_signed_by=authority)
    contact = PeerAddress(f"grpc+tls://127.0.0.1:{door.port}", proof(sender.key, COORDINATOR))
    try:
        assert FlightClient(contact, COORDINATOR, ClientTls(authority, good)).order("hello", {}) == {"done": "hello"}
        for shown in (None, bad):
            with pytest.raises(AwayError):
                FlightClient(contact, COORDINATOR, ClientTls(authority, shown)).order("hello", {}, 5.0)
    finally:
        door.shutdown()


def test_state_comes_through_relays_chunk_by_chunk_and_each_chunk_once(
    tmp_path: Path, sender: Place, reader: Place
) -> None:
    for bucket in range(20):
        append = StateAppend.sliced(rows(bucket * 100, 100), 3, [FragmentId(1)], [bucket], [100])
        sender.store.commit(Commit(state_appends=(append,)))
    export = Export(sender.store, FragmentId(1), operators=[3], chunk_bytes=2_000)
    assert len(export) > 10
    sender.exports[5, 0] = ("reader", export, [3])
    relay = place(tmp_path, "relay").knows(sender)
    reader.knows(relay)
    half = iter(export)
    for _ in range(4):  # an earlier attempt brought so many
        import_state(reader.store, FragmentId(2), "reconfiguration 5", next(half), {3: 7})
    move = StatePull(reader.store, FragmentId(2), 5, 0, [7], ["relay", "sender"], reader.client_for)
    move.start()
    assert move.wait(TIMEOUT_S)
    found = reader.store.state.read([FragmentId(2)], 7, [0], [100])
    assert found.table is not None
    assert sorted(found.table.column("id").to_pylist()) == list(range(2000))
    again = StatePull(reader.store, FragmentId(2), 5, 0, [7], ["relay", "sender"], reader.client_for)
    assert again.done
    relay.close()


class Troubled:
    """An export whose chunks are cut off or damaged on their way, each of these once."""

    def __init__(self, export: Export, cut: set[int], damaged: set[int]) -> None:
        self._export, self._cut, self._damaged = export, cut, damaged

    def __len__(self) -> int:
        return len(self._export)

    @property
    def digest(self) -> int:
        return self._export.digest

    def chunk(self, number: int) -> bytes:
        chunk = self._export.chunk(number)
        if number in self._cut:
            self._cut.remove(number)
            raise OSError("the line is dead")
        if number in self._damaged:
            self._damaged.remove(number)
            return bytes([*chunk[:-1], chunk[-1] ^ 0x10])
        return chunk


@pytest.mark.parametrize("block", [None, 4_096, 100_000])
def test_state_arrives_whole_over_connections_that_break_and_bits_that_flip(
    tmp_path: Path, sender: Place, reader: Place, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without blocks, as from a site that does not know them."""
    for bucket in range(4):
        append = StateAppend.sliced(rows(bucket * 1000, 1000), 3, [FragmentId(1)], [bucket], [1000])
        sender.store.commit(Commit(state_appends=(append,)))
    export = Export(sender.store, FragmentId(1), operators=[3], chunk_bytes=10_000)
    assert len(export) > 5
    sender.exports[5, 0] = ("reader", Troubled(export, {1, 4}, {0, 2, len(export) - 1}), [3])
    relay = place(tmp_path, "relay").knows(sender)
    reader.knows(relay)
    monkeypatch.setattr(pull, "PAUSE_S", 0.01)
    asked = flight_client.get_along

    def along(route: list[str], ticket: dict[str, Any], *rest: Any) -> Any:
        return asked(route, {n: v for n, v in (ticket | {"block": block}).items() if v is not None}, *rest)

    monkeypatch.setattr(pull, "get_along", along)
    move = StatePull(reader.store, FragmentId(2), 5, 0, [7], ["relay", "sender"], reader.client_for)
    move.start()
    assert move.wait(TIMEOUT_S)
    found = reader.store.state.read([FragmentId(2)], 7, [0], [100])
    assert found.table is not None
    assert sorted(found.table.column("id").to_pylist()) == list(range(4000))
    relay.close()
