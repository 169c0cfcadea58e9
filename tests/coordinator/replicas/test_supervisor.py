"""The supervisor of replicas: who keeps them, which one stands in for a site that is gone, who gets its store back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import MemberRow
from meander.coordinator.replicas.assignment import Candidates, assigned
from meander.coordinator.replicas.keeper_records import ReplicaLedger
from meander.coordinator.replicas.restoring import WAIT, SiteRestore
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.membership.protocol import PROTOCOL
from meander.model.errors import InputError
from meander.model.resilience import ReplicationMode, Resilience
from meander.run.channels.flight.client import AwayError
from meander.run.store.records.replicas import KeepersRecord
from meander.run.store.store import Store


class Fleet:
    """Sites that say what they were told, and a clock; implements what the supervisor asks of a coordinator."""

    def __init__(self, store: Store, settings: Resilience) -> None:
        self.rows: dict[str, MemberRow] = {}
        self.now_s = 100.0
        self.told: list[tuple[str, str, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, str]] = []
        self.fails: dict[str, Exception] = {}
        self.addresses: dict[str, str | None] = {}
        self.running: set[str] = set()
        self.reached: list[str] = []
        """The nodes whose sources and sinks keepers reach."""
        self.played: dict[str, str] = {}
        self.refusals: dict[tuple[str, str], str] = {}
        self.supervisor = ReplicaSupervisor(
            ReplicaLedger(store),
            self,  # type: ignore[arg-type]
            self,
            self,
            settings,
            wall_ms=lambda: round(self.now_s * 1000),
            monotonic=lambda: self.now_s,
        )
        self.restoring = SiteRestore(self.supervisor, lambda keeper, site: {"address": keeper, "proof": site})

    def enter(self, site: str, state: str = "here", instance: str = "") -> None:
        since_ms = round(self.now_s * 1000)
        self.rows[site] = MemberRow(site, state, instance or f"{site} 1", "", "", "", since_ms, 0, "", PROTOCOL)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.supervisor.look()

    def record(self, site: str) -> KeepersRecord:
        return self.supervisor.ledger.of(site)

    def newest(self, site: str, action: str) -> Mapping[str, Any]:
        return [body for to, what, body in self.told if (to, what) == (site, action)][-1]

    # what the supervisor asks

    def sites(self) -> Sequence[MemberRow]:
        return list(self.rows.values())

    def key(self, site: str) -> str | None:
        return f"key of {site}"

    def preferences(self, sites: Sequence[str], *, senders: bool) -> Mapping[str, Sequence[str]]:
        return {"west": ["hub", "east"], "east": ["hub"], "hub": ["home"]} if not senders else {"west": ["east"]}

    def runs(self, site: str) -> bool:
        return site in self.running

    def moved(self, site: str) -> None:
        """Nothing to do."""

    def play(self, site: str, keeper: str, nodes: Sequence[str]) -> None:
        self.played |= dict.fromkeys(nodes, keeper)

    def end_play(self, nodes: Sequence[str]) -> None:
        self.played = {node: keeper for node, keeper in self.played.items() if node not in nodes}

    def refusal(self, site: str, keeper: str) -> str | None:
        return self.refusals.get((site, keeper))

    def put(self, site: str, address: str | None) -> None:
        self.addresses[site] = address

    # orders

    def tell(self, site: str, action: str, body: Mapping[str, Any]) -> None:
        self.told.append((site, action, body))

    def ask(self, site: str, action: str, body: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        self.asked.append((site, action))
        if site in self.fails:
            raise self.fails[site]
        return {"address": f"grpc://{site}:1", "nodes": self.reached}

    def forget(self, site: str) -> None:
        """It is told everything again anyhow."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(tmp_path)
    yield found
    found.close()


def fleet(store: Store, replicas: int = 1, takeover_ms: int = 5_000) -> Fleet:
    found = Fleet(store, Resilience(replicas, replication=ReplicationMode.ASYNC, takeover_ms=takeover_ms))
    for site in ("west", "east", "hub"):
        found.enter(site)
    found.pass_s(1)
    return found


def test_keepers_are_those_on_the_way_to_a_cloud_and_change_only_when_one_is_away(store: Store) -> None:
    plane = fleet(store, replicas=2)
    assert plane.record("west").keepers == {"hub": 1, "east": 1}
    assert plane.newest("hub", "keep")["replicas"]["west"] == {"term": 1, "route": ["west"]}
    plane.enter("east", "away")
    plane.pass_s(1)
    assert plane.record("west").keepers == {"hub": 1, "home": 2}
    assert plane.newest("west", "replicate")["keepers"] == {"hub": 1, "home": 2}
    plane.enter("east")
    plane.pass_s(1)
    assert plane.record("west").keepers == {"hub": 1, "home": 2}
    plane.enter("hub", "away")
    plane.pass_s(1)
    assert plane.record("west").keepers == {"home": 2, "east": 3}, "one that comes again begins a new term"


def test_with_upstream_backup_a_sender_keeps_a_base_now_and_then(store: Store) -> None:
    plane = fleet(store, replicas=0)
    assert plane.record("west").keepers == {"east": 1}
    assert plane.newest("west", "replicate")["every_ms"] == 1_000


def test_a_site_that_is_away_for_long_enough_goes_on_at_a_keeper(store: Store) -> None:
    plane = fleet(store)
    plane.enter("west", "away")
    plane.pass_s(4)
    assert not plane.asked
    plane.pass_s(2)
    assert (plane.record("west").stands_in, plane.addresses["west"]) == ("hub", "grpc://hub:1")
    plane.pass_s(1)
    assert plane.record("west").keepers == {"east": 2}, "what stands in has a replica too"
    assert plane.newest("hub", "keep")["replicas"]["west"]["term"] == 0
    with pytest.raises(SiteRefusedError, match="a replica at hub goes on for site 'west'"):
        plane.restoring.check("west", "west 1")


def test_a_replica_that_is_not_complete_is_passed_over_and_without_any_other_it_is_a_problem(store: Store) -> None:
    plane = fleet(store, replicas=2)
    plane.fails["hub"] = InputError("the replica of west at hub was not complete yet")
    plane.enter("west", "away")
    plane.pass_s(6)
    assert plane.record("west").stands_in == "east"
    other = fleet(store)
    other.fails |= {"home": InputError("it is empty"), "hub": InputError("it is empty"), "east": InputError("empty")}
    other.enter("east", "away")
    other.pass_s(6)
    assert not other.record("east").stands_in
    assert "site east is gone" in other.supervisor.problems["east"]


def test_a_keeper_that_does_not_answer_is_asked_again_and_replaced_when_it_is_away(store: Store) -> None:
    plane = fleet(store, replicas=2)
    plane.fails["hub"] = AwayError("no answer")
    plane.enter("west", "away")
    plane.pass_s(6)
    plane.enter("hub", "away")
    plane.pass_s(1)
    plane.pass_s(1)
    assert (plane.record("west").stands_in, plane.addresses["west"]) == ("east", "grpc://east:1")


def test_a_coordinator_that_starts_again_finds_where_stand_ins_are(store: Store) -> None:
    plane = fleet(store)
    plane.enter("west", "away")
    plane.pass_s(6)
    again = Fleet(store, plane.supervisor.settings)
    again.rows = plane.rows
    again.pass_s(0)
    assert again.addresses == {"west": "grpc://hub:1"}


def test_a_site_gets_its_store_back_from_where_it_went_on_and_is_replicated_again(store: Store) -> None:
    plane = fleet(store)
    plane.enter("west", "away")
    plane.pass_s(6)
    found = plane.restoring.restore("west", "west 2")
    assert found == {"keeper": "hub", "site": "west", "address": "hub", "proof": "west"}
    assert plane.addresses["west"] is None
    plane.restoring.check("west", "west 2")
    with pytest.raises(SiteRefusedError, match="this directory is out of date"):
        plane.restoring.check("west", "west 1")
    plane.enter("west", instance="west 2")
    plane.restoring.joined("west", "west 2")
    plane.pass_s(1)
    record = plane.record("west")
    assert (record.stands_in, record.restoring, record.keepers) == ("", "", {"hub": record.term})
    assert record.term > 1, "the keeper follows the new process"
    assert plane.restoring.restore("west", "west 2") is None


def test_another_directory_gets_the_store_also_before_a_replica_stands_in(store: Store) -> None:
    plane = fleet(store)
    plane.enter("west", "away")
    plane.pass_s(1)
    found = plane.restoring.restore("west", "west 2")
    assert found is not None
    assert found["keeper"] == "hub"
    plane.pass_s(60)
    assert ("hub", "stand_in") not in plane.asked, "the store is on its way to its site"
    plane.pass_s(301)
    plane.pass_s(1)
    assert plane.addresses["west"] == "grpc://hub:1", "which did not come"


def test_without_replicas_another_directory_is_refused_while_something_runs_at_the_site(store: Store) -> None:
    plane = Fleet(store, Resilience())
    plane.enter("west", "away")
    plane.running.add("west")
    assert plane.restoring.restore("west", "west 2") is None
    with pytest.raises(SiteRefusedError, match="meander site forget west"):
        plane.restoring.check("west", "west 2")
    plane.restoring.check("west", "west 1")
    plane.running.clear()
    plane.restoring.check("west", "west 2")


def test_assignments_keep_what_is_there() -> None:
    before = KeepersRecord("west", {"east": 1}, 1)
    assert assigned(before, Candidates("west", ["hub"], {"hub", "east"}), 1) == before
    assert assigned(before, Candidates("west", [], {"east"}), 2).keepers == {"east": 1, "home": 2}
    assert assigned(before, Candidates("west", [], {"hub"}), 0).keepers == {}


def test_nodes_whose_sources_a_keeper_reaches_are_there_beside_it_until_their_site_comes_back(store: Store) -> None:
    plane = fleet(store, replicas=2)
    plane.reached = ["s0"]
    plane.enter("west", "away")
    plane.pass_s(6)
    assert (plane.record("west").stands_in, plane.played) == ("hub", {"s0": "hub"})
    assert plane.record("west").nodes == ("s0",)
    plane.enter("hub", "away")
    plane.pass_s(1)
    assert (plane.record("west").stands_in, plane.played) == ("east", {"s0": "east"})
    assert plane.restoring.restore("west", "west 2") is not None
    assert (plane.played, plane.record("west").nodes) == ({}, ())


def test_a_keeper_that_keeps_nothing_more_is_not_waited_for_and_another_site_keeps_a_replica(store: Store) -> None:
    plane = fleet(store)
    assert plane.record("west").keepers == {"hub": 1}
    plane.refusals["west", "hub"] = "its store is larger than 10 MB"
    plane.pass_s(1)
    assert plane.record("west").keepers == {"east": 2}
    assert plane.supervisor.problems["west"] == "hub keeps no replica of site west: its store is larger than 10 MB"
    assert plane.newest("west", "replicate")["keepers"] == {"east": 2}
    assert "west" not in plane.newest("hub", "keep")["replicas"]
    plane.refusals["west", "east"] = plane.refusals["west", "home"] = "what it sends is not understood"
    plane.pass_s(1)
    plane.pass_s(1)
    assert plane.record("west").keepers == {}
    assert "site west has 0 of 1 replicas" in plane.supervisor.problems["west"]
    plane.refusals.clear()
    plane.pass_s(601)
    assert (plane.record("west").keepers, "west" in plane.supervisor.problems) == ({"hub": 4}, False)


def test_a_site_without_its_directory_waits_until_its_former_process_is_known_to_be_gone(store: Store) -> None:
    plane = fleet(store)
    assert plane.restoring.restore("west", "another") == WAIT
    plane.enter("west", "away")
    told = plane.restoring.restore("west", "another")
    assert told is not None
    assert told["keeper"] == "hub"
