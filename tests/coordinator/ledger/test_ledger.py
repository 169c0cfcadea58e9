"""The ledger: what is written is there again, all or nothing, and old files are brought up to date."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from meander.coordinator.ledger import batch_log as module
from meander.coordinator.ledger.history import NEWEST, EventHistory
from meander.coordinator.ledger.ledger import Ledger, Placing
from meander.coordinator.ledger.migrations import MIGRATIONS
from meander.model.errors import InputError
from meander.model.ids import ChannelId, NodeId, OperatorId
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology


def small() -> Topology:
    nodes = [
        Node("a", NodeKind.CLOUD, 4, 100.0, lon=1.5, lat=2.5),
        Node("b", NodeKind.EDGE, 2),
        Node("c", NodeKind.SENSOR, 1),
    ]
    return Topology.of(nodes, [Link("a", "b", 2.0, 50.0), Link("b", "c", 1.0, directed=True)])


def described(topology: Topology) -> tuple[list[object], set[object]]:
    count = topology.nodes.count
    return [(topology.node(NodeId(n)), topology.is_alive(NodeId(n))) for n in range(count)], set(topology.links())


def test_a_topology_comes_back_with_the_same_numbers_also_of_nodes_that_left(tmp_path: Path) -> None:
    topology, ledger = small(), Ledger(tmp_path / "ledger.db")
    ledger.topology.save(topology)
    assert described(ledger.topology.load()) == described(topology)

    topology.remove_node(topology.id("b"))
    topology.add_node(Node("d", NodeKind.EDGE, 3))
    topology.add_link(Link("d", "c", 4.0))
    ledger.topology.save_nodes(topology, [NodeId(1), NodeId(3)])
    ledger.topology.save_links(topology, [(NodeId(3), NodeId(2))])
    assert described(ledger.topology.load()) == described(topology)

    topology.remove_link("c", "d", directed=True)
    ledger.topology.save_links(topology, [(NodeId(3), NodeId(2))])
    ledger.close()
    assert described(Ledger(tmp_path / "ledger.db").topology.load()) == described(topology)


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")

    def write_and_fail() -> None:
        with ledger.transaction():
            ledger.batches.accept(1, [{"event": "x"}], [("q", "SELECT")])
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        write_and_fail()
    assert ledger.queries.log() == []
    assert ledger.batches.unfinished() == []


def test_batches_that_were_not_applied_are_found_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    first = ledger.batches.accept(1, [{"event": "x"}], [("q", "SELECT 1")])
    second = ledger.batches.accept(2, [{"event": "y"}, {"event": "z"}], [("q", None)])
    ledger.answers.expect("key", "print", 2, second, {"kind": "batch", "query": ""})
    ledger.batches.applied(first, {"moves": 3})
    ledger.close()

    again = Ledger(tmp_path / "ledger.db")
    assert again.batches.unfinished() == [(second, [{"event": "y"}, {"event": "z"}])]
    assert again.answers.unanswered(second) == [("key", {"kind": "batch", "query": ""})]
    assert [(s.query, s.text) for s in again.queries.log()] == [("q", "SELECT 1"), ("q", None)]
    assert again.batches.next == second + 1
    history = EventHistory(again.path)
    assert [e["outcome"]["state"] for e in history.events(NEWEST, 10)] == ["applied", "accepted", "accepted"]
    assert [e["seq"] for e in history.events(1, 1)] == [2]


def test_what_is_saved_about_queries_and_operators_is_there_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.save_placements(
        {OperatorId(1): Placing(NodeId(2), True, "by hand"), OperatorId(2): Placing(NodeId(0), False, "")}
    )
    ledger.save_placements({OperatorId(2): None})
    ledger.queries.save_demands("q", ["latency < 1 s"])
    ledger.queries.save_demands("p", ["hops <= 2"])
    ledger.queries.save_demands("p", None)
    ledger.queries.save_mechanisms({"q": ("mopa", "it was named for it")})
    ledger.queries.save_adaptation("", {"stay": "1min", "margin": 0.2})
    ledger.queries.save_adaptation("q", {"mechanisms": ["ilp"]})
    ledger.queries.save_adaptation("", {"margin": 0.3})
    ledger.queries.save_sink_binding(ChannelId(7), "q", "out")
    ledger.save_rates({("s", "n"): 2.5})
    ledger.close()
    again = Ledger(tmp_path / "ledger.db")
    assert again.placements() == {OperatorId(1): Placing(NodeId(2), True, "by hand")}
    assert again.queries.demands() == {"q": ["latency < 1 s"]}
    assert again.queries.mechanisms() == {"q": ("mopa", "it was named for it")}
    assert again.queries.adaptation() == {"": {"margin": 0.3}, "q": {"mechanisms": ["ilp"]}}
    assert again.queries.sink_bindings() == [(ChannelId(7), "q", "out")]
    assert again.rates() == {("s", "n"): 2.5}


def test_what_only_people_look_at_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BATCHES", 10)
    monkeypatch.setattr(module, "KEPT_DECISIONS", 5)
    monkeypatch.setattr(module, "PRUNE_EVERY", 20)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.add_decisions([{"query": "q", "n": n} for n in range(30)])
    ledger.answers.expect("old", "f", 0, None, None)
    for n in range(40):
        ledger.batches.applied(ledger.batches.accept(10**12 + n, [{"event": "x"}], []), {})
    history = EventHistory(ledger.path)
    assert len(history.events(0, 1000)) <= 20
    assert [d["n"] for d in history.decisions(100)] == list(range(25, 30))
    assert ledger.answers.find("old") is None


def test_a_ledger_of_a_newer_version_or_another_file_is_refused(tmp_path: Path) -> None:
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    with pytest.raises(InputError, match="newer version"):
        Ledger(tmp_path / "newer.db")
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to look like a file of one" * 20)
    with pytest.raises(InputError, match="no ledger"):
        Ledger(tmp_path / "text.db")
