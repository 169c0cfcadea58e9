"""Channels between sites over a real Kafka broker: the copy is the log, whatever breaks in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.deploy.markers import Marker, MarkerAction
from meander.model.events import PlacementChanged
from meander.model.ids import ChannelId, FragmentId
from meander.model.operators import WindowAggregate
from meander.reconfigure.agent.effect import starts
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.channels.flight import client as flight_client
from meander.run.channels.flight import puller as flight_puller
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.puller import Pulling
from meander.run.channels.flight.ranges import ChannelRange, to_batch
from meander.run.channels.kafka import broker as kafka_broker
from meander.run.channels.kafka.address import client_settings
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.exchange import KafkaExchange
from meander.run.channels.kafka.listener import TopicListener
from meander.run.channels.kafka.publisher import TopicPublisher
from meander.run.execution.prepared import PreparedRunner
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.record import forget
from meander.run.store.records.transport import CopyRecord, ReaderRecord, TopicRecord
from meander.run.store.store import Store
from tests.reconfigure.driver.driver_plane import SpreadPlane
from tests.reconfigure.driver.test_driver import QUERY
from tests.run.channels.kafka.broker import RealBroker, real_broker
from tests.run.channels.two_stores import SCHEMA, Place, place, rows

TIMEOUT_S = 300.0
LOG = ChannelId(7)


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    try:
        found = real_broker(spark, tmp_path_factory.mktemp("broker"))
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        pytest.skip(f"there is no Kafka broker to test with: {reason}")
    yield found
    found.kill()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine answers take their time."""
    monkeypatch.setattr(flight_client, "PULL_S", TIMEOUT_S)
    monkeypatch.setattr(flight_puller, "TELL_MS", 10)


class Ends:
    """A sender and readers that share a broker. Nothing happens by itself: a test says who asks, sends and listens."""

    def __init__(self, directory: Path, spark: SparkSession, address: str) -> None:
        self.directory, self.spark, self.address = directory, spark, address
        self.sender = self._place("sender")
        self.sender.store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, FragmentId(1), FragmentId(2)),)))
        self.reader = self._place("reader")
        self.begin_sending()
        self.read_at(self.reader, 0)

    def _place(self, name: str) -> Place:
        found = place(self.directory, name, str(self.directory))  # topics of their own for every test
        found.broker = self.address
        found.kafka = KafkaExchange(
            Broker(self.spark, self.address), name, found.key, lambda site: found.contacts.get(site)
        )
        return found

    def begin_sending(self) -> None:
        """As after a start: what was published is not remembered."""
        place, kafka = self.sender, self.sender.kafka
        assert kafka is not None
        self.publishing = TopicPublisher(place.store, kafka.broker, kafka.to, place.may_pull)
        kafka.publishing = self.publishing

    def read_at(self, reader: Place, position: int) -> None:
        """A place reads the channel from a position on, and nobody else does."""
        self.sender.readers[LOG] = {reader.name}
        self.sender.knows(reader)
        self.sender.store.commit(Commit(records=(ReaderRecord(LOG, reader.name),)))
        reader.knows(self.sender)
        if LOG not in reader.store.exchange.channels():
            reader.store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, FragmentId(1), FragmentId(2)),)))
            reader.store.commit(Commit(records=(CopyRecord(LOG, ("sender",)),)))
        self.begin_reading(reader)

    def begin_reading(self, reader: Place) -> None:
        assert reader.kafka is not None
        self.pulling = Pulling(reader.store, reader.client_for, broker=reader.kafka)
        self.pulling._routes = {("sender",): (LOG,)}
        self.listening = reader.kafka.listening = TopicListener(
            self.pulling, reader.kafka.broker, reader.kafka.arriving
        )
        self.copy = reader

    def ask(self) -> None:
        assert self.pulling.pull(("sender",), [LOG]) == 0

    def all(self) -> None:
        """Until everything is at the reader."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.copy.store.exchange.end(LOG) < self.sender.store.exchange.end(LOG):
            assert time.monotonic() < deadline
            self.ask()
            self.publishing.publish()
            self.listening.listen()

    def send(self, first: int, count: int) -> None:
        self.sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(first, count), first),)))

    @property
    def topic(self) -> str:
        assert self.copy.kafka is not None
        link = self.copy.kafka.arriving("sender")
        assert link is not None
        return link.topic

    @property
    def broker(self) -> Broker:
        assert self.copy.kafka is not None
        return self.copy.kafka.broker

    def close(self) -> None:
        for each in {self.sender.name: self.sender, self.reader.name: self.reader, self.copy.name: self.copy}.values():
            each.close()


@pytest.fixture
def quick_ends(tmp_path: Path, spark: SparkSession, broker: RealBroker) -> Iterator[Ends]:
    """Ends that soon say that nobody answers, and try again."""
    found = Ends(tmp_path, spark, broker.address)
    yield found
    found.close()


@pytest.fixture
def ends(quick_ends: Ends, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Ends that give a busy machine its time, as here nobody tries again."""
    for settings in (kafka_broker.CLIENT, kafka_broker.PRODUCER, kafka_broker.CONSUMER):
        for name in [name for name in settings if name.endswith("timeout.ms") or name == "max.block.ms"]:
            monkeypatch.setitem(settings, name, str(round(TIMEOUT_S * 1000)))
    monkeypatch.setattr(kafka_broker, "ANSWER_S", round(TIMEOUT_S))
    monkeypatch.setattr(kafka_broker, "POLL_MS", str(round(TIMEOUT_S * 1000)))
    return quick_ends


def written(store: Store) -> tuple[object, ...]:
    """Everything in the channel, with its numbers."""
    chunk = store.exchange.read(LOG, store.exchange.start(LOG), store.exchange.end(LOG))
    return chunk.start, chunk.stop, chunk.table.to_pylist(), chunk.watermarks, chunk.markers


def test_a_copy_has_what_the_log_has_and_what_is_processed_is_forgotten_everywhere(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = Marker.of(3, {(FragmentId(2), 1): MarkerAction.UPDATE})
    ends.send(0, 5)
    ends.sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(5, 2), 100, marker),)))
    monkeypatch.setattr("meander.run.channels.kafka.listener.TRIM_S", 0.0)
    ends.all()
    assert written(ends.copy.store) == written(ends.sender.store)
    assert ends.broker.spans([ends.topic])[ends.topic].begin == 1
    ends.copy.store.commit(Commit(consumed={LOG: 6}))
    ends.copy.store.syncer.sync()  # before that nothing may be forgotten at the sender
    ends.ask()
    assert ends.sender.store.exchange.start(LOG) == 6
    ends.sender.store.commit(Commit(records=(forget(ReaderRecord, LOG),)))
    ends.sender.readers[LOG] = set()
    ends.publishing._tidied = 0.0
    ends.publishing.publish()
    assert ends.broker.ids([ends.topic]) == {}
    assert ends.sender.store.record(TopicRecord, ends.topic) is None


def test_what_a_sender_publishes_again_after_a_crash_has_no_effect(ends: Ends) -> None:
    ends.ask()
    ends.send(0, 5)
    assert ends.publishing.publish()
    ends.begin_sending()
    ends.send(5, 5)
    ends.ask()
    assert ends.publishing.publish()
    assert ends.publishing.records == 12  # ten tuples and two watermarks: all of it once more
    while ends.listening.listen():
        pass
    assert written(ends.copy.store) == written(ends.sender.store)


def test_a_reader_that_is_killed_before_or_after_its_commit_goes_on_with_the_next_record(ends: Ends) -> None:
    ends.ask()
    ends.send(0, 5)
    ends.publishing.publish()
    store = ends.reader.store
    store.close()
    with pytest.raises(JournalError):
        ends.listening.listen()  # it has read, and cannot commit any more
    ends.reader.store = Store.open(ends.directory / "reader")
    ends.begin_reading(ends.reader)
    assert ends.reader.store.exchange.end(LOG) == 0
    ends.all()
    ends.reader.store.close()
    ends.reader.store = Store.open(ends.directory / "reader")
    ends.begin_reading(ends.reader)
    assert not ends.listening.listen()  # the offset came with the commit: nothing is read twice
    ends.send(5, 5)
    ends.all()
    assert written(ends.reader.store) == written(ends.sender.store)


def test_what_the_broker_has_lost_is_published_again(ends: Ends) -> None:
    ends.send(0, 5)
    ends.all()
    ends.send(5, 5)
    ends.publishing.publish()
    ends.broker.delete(ends.topic)  # with records that nobody has read
    ends.all()
    ends.send(10, 5)
    ends.publishing.publish()
    ends.broker.trim({ends.topic: ends.broker.spans([ends.topic])[ends.topic].end})  # the topic stays, its end is gone
    ends.all()
    ends.send(15, 5)
    ends.publishing.publish()
    ends.broker.trim({ends.topic: ends.broker.spans([ends.topic])[ends.topic].end})
    ends.send(20, 5)
    ends.publishing.publish()
    ends.all()
    assert written(ends.copy.store) == written(ends.sender.store)


def test_a_reader_that_moves_begins_at_its_position(ends: Ends) -> None:
    ends.send(0, 10)
    ends.all()
    ends.reader.store.commit(Commit(consumed={LOG: 4}))
    ends.ask()
    other = ends._place("other")
    other.store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, FragmentId(1), FragmentId(2)),)))
    other.store.commit(Commit(passed=starts({LOG: (6, 0)}), records=(CopyRecord(LOG, ("sender",)),)))
    ends.read_at(other, 6)
    ends.send(10, 3)
    ends.all()
    found = written(other.store)
    assert found[0] == 6
    assert found[2] == rows(6, 7).to_pylist()
    assert ends.publishing.readers == ["other"]


def test_records_of_somebody_else_are_not_taken(ends: Ends) -> None:
    ends.send(0, 5)
    ends.ask()
    ends.publishing.publish()
    ends.sender.store.commit(Commit(appends=(ChannelAppend.one(LOG, rows(66, 6)),)))
    forged = to_batch([ChannelRange.of(ends.sender.store.exchange.read(LOG, 6, 12))]).serialize().to_pybytes()
    ends.broker.write([(ends.topic, b"signed by nobody", forged)])
    while ends.listening.listen():
        pass
    assert ends.copy.store.exchange.end(LOG) == 6


def test_both_ends_say_that_nobody_answers_and_go_on_when_the_broker_is_back(
    quick_ends: Ends, broker: RealBroker
) -> None:
    ends = quick_ends
    sender, reader = ends.sender.kafka, ends.reader.kafka
    assert sender is not None
    assert reader is not None
    pulling = Pulling(ends.reader.store, ends.reader.client_for, broker=reader)
    try:
        sender.start(Pulling(ends.sender.store, ends.sender.client_for), ends.sender.may_pull)
        reader.start(pulling, ends.reader.may_pull)
        pulling.refresh()
        ends.send(0, 5)
        until(lambda: ends.reader.store.exchange.end(LOG) == 6)
        broker.kill()
        ends.send(5, 5)
        until(lambda: bool(sender.problems()) and bool(reader.problems()))
        away = f"no answer from the broker at {broker.address}"
        assert sender.problems()[0].startswith(f"what goes to reader waits here: {away}")
        assert reader.problems()[0].startswith(f"what comes from sender waits there: {away}")
        broker.start()
        ends.send(10, 5)
        until(lambda: ends.reader.store.exchange.end(LOG) == 18)
        until(lambda: not sender.problems() and not reader.problems())
        assert written(ends.reader.store) == written(ends.sender.store)
    finally:
        pulling.stop()
        sender.stop()
        reader.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_a_broker_where_nobody_listens_is_named_at_once(spark: SparkSession, broker: RealBroker) -> None:
    with pytest.raises(AwayError, match=r"no answer from the broker at 127.0.0.1:1 \(Connection refused\); is it up\?"):
        Broker(spark, "127.0.0.1:1").ids(["a"])


def test_a_broker_with_tls_and_a_login_takes_and_gives_records(spark: SparkSession, broker: RealBroker) -> None:
    secure = Broker(spark, broker.secure_address, client_settings(broker.client_settings()))
    try:
        secure.make("guarded")
        secure.write([("guarded", b"k", b"first"), ("guarded", b"k", b"second")])
        assert secure.spans(["guarded"])["guarded"].end == 2
        assert [r.value for r in secure.read({"guarded": (0, 2)})] == [b"first", b"second"]
        secure.trim({"guarded": 2})
        assert secure.spans(["guarded"])["guarded"].begin == 2
        secure.delete("guarded")
    finally:
        secure.close()


def test_a_wrong_login_is_said_to_be_one(spark: SparkSession, broker: RealBroker) -> None:
    wrong = Broker(spark, broker.secure_address, client_settings(broker.client_settings("wrong")))
    try:
        with pytest.raises(AwayError, match=r"refuses the login.*Authentication failed.*--broker-settings"):
            wrong.ids(["a"])
    finally:
        wrong.close()


def test_a_broker_with_a_certificate_that_nobody_vouches_for_is_not_trusted(
    spark: SparkSession, broker: RealBroker
) -> None:
    settings = client_settings(broker.client_settings())
    unknown = {name: value for name, value in settings.items() if not name.startswith("ssl.truststore")}
    stranger = Broker(spark, broker.secure_address, unknown)
    try:
        with pytest.raises(AwayError, match=r"no TLS.*--broker-settings"):
            stranger.ids(["a"])
    finally:
        stranger.close()


def test_a_query_over_a_broker_gives_the_oracles_output_while_it_moves_and_a_site_dies(
    spark: SparkSession, broker: RealBroker, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    runner = PreparedRunner(spark)
    sites = {"west": ("s0", "e0"), "east": ("s1", "e1")}
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, sites, broker=broker.address, disorder_ms=300)
    try:
        (operator,) = [o for o, r in plane.catalog.plan.operators.items() if isinstance(r.spec, WindowAggregate)]
        plane.feed(rng, 0)
        plane.step()
        plane.apply(PlacementChanged(0, operator, "e1"))
        plane.feed(rng, 250)
        plane.until(lambda: not plane.loop.deployer.has_open_changes)
        plane.kill("east")
        plane.feed(rng, 500)
        plane.step()
        plane.restart("east")
        plane.finish()
        assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
        plane.check_deployment()
        west = plane.machines["west"].agent.remote_channels.kafka
        assert west is not None
        assert west.publishing is not None
        assert west.publishing.records > 0
    finally:
        plane.close()
        runner.close()
