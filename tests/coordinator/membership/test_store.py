"""The membership store of sites: tokens, epochs, and what a coordinator on a copy of the directory can and cannot
do."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.epochs import SteppedDownError
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.auditor import Auditor
from meander.coordinator.membership.events import MembershipEvents
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import Heartbeat
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import MembershipStore
from meander.membership.fence import Fence, FencedError
from meander.membership.protocol import PROTOCOL, Code, Epoch
from meander.model.errors import InputError
from meander.model.topology.elements import Link


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MembershipStore]:
    found = MembershipStore(tmp_path / "ledger.db")
    yield found
    found.close()


# ---------------------------------------------------------------- tokens


def test_a_token_is_shown_once_and_good_for_its_site_until_it_is_revoked(
    store: MembershipStore, tmp_path: Path
) -> None:
    token = store.make_token("gateway", ["train-?", "bridge"], 5, "operator")
    given = store.pass_of(token)
    assert given is not None
    assert (given.site, given.nodes) == ("gateway", ("train-?", "bridge"))
    assert [n for n in ("train-7", "train-77", "bridge", "Bridge") if given.covers(n)] == ["train-7", "bridge"]
    assert token.encode() not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    with pytest.raises(InputError, match="has a token already"):
        store.make_token("gateway", ["train-1"], 6, "operator")
    other = store.make_token("gateway", ["train-1"], 6, "operator", renew=True)
    assert store.pass_of(token) is None
    assert store.pass_of(other) is not None
    store.revoke("gateway", 7, "operator")
    assert store.pass_of(other) is None
    with pytest.raises(InputError, match="no site 'gateway'"):
        store.revoke("gateway", 8, "operator")
    did = [(e["did"], e["about"]) for e in store.audit.newest(10)]
    assert did == [("make token", "gateway"), ("make token", "gateway"), ("revoke token", "gateway")]


def test_tokens_without_nodes_or_with_a_name_that_means_somebody_else_are_refused(store: MembershipStore) -> None:
    with pytest.raises(InputError, match="name the nodes"):
        store.make_token("gateway", [], 0, "operator")
    with pytest.raises(InputError, match="choose another name"):
        store.make_token("home", ["a"], 0, "operator")
    assert store.passes() == []


# ---------------------------------------------------------------- epochs


def test_the_coordinator_that_started_last_is_the_only_one_that_writes(store: MembershipStore, tmp_path: Path) -> None:
    first = store.begin_epoch(1)
    old = Ledger(tmp_path / "ledger.db", first)
    with old.transaction():
        old.queries.save_demands("q", ["latency < 1 s"])
    second = store.begin_epoch(2)
    assert (first.number, second.number) == (1, 2)
    with pytest.raises(SteppedDownError, match="a coordinator of epoch 2 has taken over"), old.transaction():
        old.queries.save_demands("q", ["latency < 2 s"])
    with pytest.raises(SteppedDownError), store.transaction(first):
        store.claim("site", ["a"])
    new = Ledger(tmp_path / "ledger.db", second)
    assert new.queries.demands() == {"q": ["latency < 1 s"]}
    assert store.claims() == {}
    with new.transaction():
        new.queries.save_demands("q", None)
    old.close()
    new.close()


def test_a_fence_lets_newer_coordinators_pass_and_remembers_them(tmp_path: Path) -> None:
    path = tmp_path / "fence.json"
    fence = Fence(path)
    fence.accept(Epoch(3, "a"))
    fence.accept(Epoch(3, "a"))
    with pytest.raises(FencedError, match="two run on copies of one directory"):
        fence.accept(Epoch(3, "b"))
    fence.accept(Epoch(4, "b"))
    again = Fence(path)
    assert again.newest == Epoch(4, "b")
    with pytest.raises(FencedError, match="epoch 4 has taken over from this one of epoch 3"):
        again.accept(Epoch(3, "a"))
    path.write_text("{}")
    with pytest.raises(InputError, match=r"which coordinator was the last.*remove it"):
        Fence(path)


def beat() -> Heartbeat:
    return Heartbeat("x", PROTOCOL, 0)


def membership_on(path: Path) -> Membership:
    store = MembershipStore(path)
    return Membership(store, store.begin_epoch(0), MembershipEvents(store, ChangeReader({}, {})), wall_ms=lambda: 0)


def test_two_coordinators_on_copies_of_one_directory_are_told_apart_by_the_sites_they_share(tmp_path: Path) -> None:
    first = membership_on(tmp_path / "ledger.db")
    token = first.make_token("gateway", ["a"], "operator")
    sqlite3.connect(tmp_path / "ledger.db").execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
    restarted = membership_on(tmp_path / "ledger.db")
    copied = membership_on(tmp_path / "copy.db")
    assert restarted.leadership.epoch.number == copied.leadership.epoch.number == 2
    given = copied.admit(token)
    fence = Fence()
    fence.accept(restarted.leadership.epoch)
    with pytest.raises(SiteRefusedError, match="two run on copies of one directory") as refused:
        copied.heartbeat(given, "gateway", beat(), fence.newest)
    assert refused.value.code is Code.EPOCH
    assert copied.leadership.stepped_down is not None
    with pytest.raises(SiteRefusedError, match="two run on copies"):
        copied.heartbeat(given, "gateway", beat(), None)
    with pytest.raises(FencedError):
        fence.accept(copied.leadership.epoch)
    with pytest.raises(SiteRefusedError, match="register again"):
        restarted.heartbeat(restarted.admit(token), "gateway", beat(), fence.newest)
    assert restarted.leadership.stepped_down is None
    for each in (first, restarted, copied):
        each.store.close()


def test_a_site_cannot_make_up_an_epoch_to_stop_a_coordinator(tmp_path: Path) -> None:
    membership = membership_on(tmp_path / "ledger.db")
    given = membership.admit(membership.make_token("gateway", ["a"], "operator"))
    for made_up in (Epoch(99, "x"), Epoch(99, membership.leadership.epoch.coordinator), Epoch(1, "ab-cd")):
        with pytest.raises(SiteRefusedError, match="belongs to another coordinator"):
            membership.heartbeat(given, "gateway", beat(), made_up)
    assert membership.leadership.stepped_down is None
    membership.store.close()


# ---------------------------------------------------------------- links and audit


def test_links_of_nodes_that_are_away_are_kept_by_both_ends(store: MembershipStore) -> None:
    there, back = Link("a", "b", 2.0, directed=True), Link("b", "a", 3.0, 10.0, directed=True)
    store.keep_links([there, back])
    assert set(store.kept_links("a")) == set(store.kept_links("b")) == {there, back}
    store.drop_links([("a", "b")])
    assert store.kept_links("a") == [back]


def test_the_audit_log_has_everything_in_its_order(store: MembershipStore) -> None:
    auditor = Auditor(store)
    auditor.start()
    for number in range(30):
        auditor.note(AuditEntry(number, "operator", "POST", f"/events/{number}", "200"))
    auditor.stop()
    found = store.audit.newest(1000)
    assert [e["about"] for e in found] == [f"/events/{n}" for n in range(30)]
    assert store.audit.newest(2) == found[-2:]
    assert store.audit.newest(1000, since=found[27]["number"]) == found[28:]
