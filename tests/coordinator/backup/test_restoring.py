"""Backups of a directory that is written to all the time, put back elsewhere: one moment of it, behind all epochs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.coordinator.backup.capture import Backups
from meander.coordinator.backup.restoring import NUMBERS_APART, Restoration, restore
from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, held
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.security.tokens import Tokens
from meander.membership.fence import Fence, FencedError
from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelAppend, ChannelSpec
from meander.run.store.commit import Commit
from meander.run.store.records.deployment import NumbersRecord
from meander.run.store.store import Store, StoreOptions

RING = Path(__file__).parents[3] / "examples" / "topologies" / "ring.yaml"
LOG = ChannelId(7)
SCHEMA = pa.schema([pa.field("id", pa.int64())])


@pytest.fixture
def home(tmp_path: Path) -> CoordinatorDirectory:
    found = create(tmp_path / "home", RING)
    found.results.mkdir(exist_ok=True)
    return found


@contextmanager
def busy(home: CoordinatorDirectory) -> Iterator[Store]:
    """A store whose segments come and go while results grow behind it, as a running coordinator's do."""
    store = Store.open(home.host / "store", StoreOptions(segment_bytes=20_000, segment_records=50))
    store.commit(Commit(add=(ChannelSpec(LOG, SCHEMA, None, None),), records=(NumbersRecord(5, 6, 7),)))
    ending = threading.Event()

    def write() -> None:
        number = 0
        while not ending.is_set():
            with (home.results / "out.jsonl").open("a") as results:
                results.write(f"{number}\n")
            table = pa.table({"id": [number]}, schema=SCHEMA)
            head = store.exchange.start(LOG)
            store.commit(
                Commit(
                    appends=(ChannelAppend.one(LOG, table),),
                    consumed={LOG: max(head, number - 100)},
                    acknowledged={"out": number + 1},
                )
            )
            number += 1
            time.sleep(0.0002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield store
    finally:
        ending.set()
        thread.join()
        store.close()


def epoch_of(home: CoordinatorDirectory) -> int:
    """That of a coordinator which starts there."""
    store = MembershipStore(home.ledger)
    try:
        return store.begin_epoch(1).number
    finally:
        store.close()


def test_backups_of_a_store_that_changes_all_the_time_are_of_one_moment_each(
    home: CoordinatorDirectory, tmp_path: Path
) -> None:
    Ledger(home.ledger).close()
    with busy(home) as store:
        backups = Backups(home, store.segments.link)
        for count in range(8):
            path = tmp_path / f"{count}.tar"
            deadline = time.monotonic() + 60
            while store.acknowledged("out") < 150 * (count + 1):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            before = store.acknowledged("out")
            path.write_bytes(b"".join(backups.stream()))
            restored = tmp_path / f"restored-{count}"
            restore(path, restored)
            again = Store.open(restored / "host" / "store")
            acknowledged, tail = again.acknowledged("out"), again.exchange.tail(LOG)
            start = again.exchange.start(LOG)
            ids = again.exchange.read(LOG, start, tail).table.column("id").to_pylist()
            again.close()
            assert before <= acknowledged == tail
            assert ids == list(range(start, tail))
            lines = (restored / "results" / "out.jsonl").read_text().split("\n")
            assert lines[:acknowledged] == [str(n) for n in range(acknowledged)]
    assert store.stats().snapshots > 3
    assert not list(home.directory.glob(".backup-*"))


def test_whatever_ran_before_is_refused_once_the_restored_coordinator_was_heard_of(
    home: CoordinatorDirectory, tmp_path: Path
) -> None:
    for _ in range(3):
        epoch_of(home)
    path = tmp_path / "backup.tar"
    path.write_bytes(b"".join(Backups(home).stream()))
    for _ in range(40):  # it ran on for long
        last = epoch_of(home)
    restore(path, tmp_path / "restored")
    store, old = MembershipStore(tmp_path / "restored" / "ledger.db"), MembershipStore(home.ledger)
    fence, restored = Fence(), store.begin_epoch(1)
    assert restored.number > last
    fence.accept(restored)
    for _ in range(5):
        with pytest.raises(FencedError):
            fence.accept(old.begin_epoch(1))
    assert old.is_genuine(restored)  # so it steps down when it is told
    store.close()
    old.close()
    found = Restoration.of(CoordinatorDirectory(tmp_path / "restored"))
    assert found is not None
    assert found.epoch == 3


def test_no_number_that_was_given_since_the_backup_is_given_again(home: CoordinatorDirectory, tmp_path: Path) -> None:
    store = Store.open(home.host / "store")
    store.commit(Commit(records=(NumbersRecord(5, 6, 7),)))
    ledger = Ledger(home.ledger)
    with ledger.transaction():
        ledger.batches.accept(1, [], [("q", "SELECT id FROM train WHERE speed < 5 INTO alerts")], 41)
    ledger.close()
    path = tmp_path / "backup.tar"
    path.write_bytes(b"".join(Backups(home, store.segments.link).stream()))
    store.close()
    restore(path, tmp_path / "restored")
    again = Store.open(tmp_path / "restored" / "host" / "store")
    assert again.record(NumbersRecord) == NumbersRecord(*(n + NUMBERS_APART for n in (5, 6, 7)))
    again.close()
    restored = Ledger(tmp_path / "restored" / "ledger.db")
    steps = restored.queries.log()
    restored.close()
    assert [step.query for step in steps] == ["q", ""]
    assert steps[-1].first is not None
    assert steps[-1].first >= 41 + NUMBERS_APART


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_directory_without_a_coordinator_is_saved_and_put_back_by_commands(
    home: CoordinatorDirectory, tmp_path: Path
) -> None:
    archive, target = tmp_path / "backup.tar", tmp_path / "restored"
    members = MembershipStore(home.ledger)
    members.pass_of(members.make_token("west", ["e0"], 1, "test"))
    members.close()
    assert home.secret.exists()
    assert home.network_keys.exists()
    told = json.loads(run("backup", "-d", home.directory, "-o", archive, "--json"))
    assert told["bytes"] == archive.stat().st_size
    assert archive.stat().st_mode & 0o777 == 0o600
    target.mkdir()
    json.loads(run("restore", archive, "-d", target, "--json"))
    assert Tokens.load(target / "tokens.json").listed() == Tokens.load(home.tokens).listed()
    assert (target / "topology.yaml").read_text() == home.topology.read_text()
    identity = {home.secret.name, home.network_keys.name}
    assert identity.isdisjoint(path.name for path in target.iterdir()), "what proves identity is in no backup"
    with pytest.raises(InputError, match="this is there already; choose another name"):
        run("backup", "-d", home.directory, "-o", archive)
    with held(home), pytest.raises(InputError, match="a coordinator runs here already"):
        run("backup", "-d", home.directory, "-o", tmp_path / "other.tar")
    assert not list(tmp_path.glob("other*"))


def test_nothing_is_changed_where_a_backup_cannot_be_restored(home: CoordinatorDirectory, tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    run("backup", "-d", home.directory, "-o", archive)
    with pytest.raises(InputError, match="this is not empty; restore into a directory that is new or empty"):
        run("restore", archive, "-d", home.directory)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(archive.read_bytes()[:1500])
    with pytest.raises(InputError, match="cut off"):
        run("restore", cut, "-d", tmp_path / "new")
    with pytest.raises(InputError, match="cannot be restored: No such file"):
        run("restore", tmp_path / "missing.tar", "-d", tmp_path / "new")
    home.topology.unlink()
    run("backup", "-d", home.directory, "-o", tmp_path / "poor.tar")
    with pytest.raises(InputError, match=r"has no topology\.yaml"):
        run("restore", tmp_path / "poor.tar", "-d", tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backup.tar", "cut.tar", "home", "poor.tar"]


def test_a_ledger_of_a_newer_version_is_refused(home: CoordinatorDirectory, tmp_path: Path) -> None:
    ledger = Ledger(home.ledger)
    ledger._db.execute("PRAGMA user_version = 9999")
    ledger.close()
    run("backup", "-d", home.directory, "-o", tmp_path / "new.tar")
    with pytest.raises(InputError, match="the ledger was written by a newer version"):
        run("restore", tmp_path / "new.tar", "-d", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
