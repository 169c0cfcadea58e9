"""The log of queries: what nobody needs is forgotten, and everybody else has the numbers that they had."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.coordinator.ledger import recovery
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.ledger.query_texts import planned
from meander.coordinator.ledger.recovery import Recovered, rebuild
from meander.lang.topology.reader import TopologyFile, load
from meander.model.global_plan import OperatorState
from meander.model.ids import OperatorId, QueryId
from meander.model.plan import Query
from meander.place.physical import Preparation
from meander.place.sharing import add_query

RING = Path(__file__).parents[3] / "examples" / "topologies" / "ring.yaml"
TEXTS = (
    "SELECT id, speed FROM train WHERE speed < 5 INTO alerts",
    "SELECT id, speed * 2 AS twice FROM train WHERE speed < 5 INTO dashboard",
    "SELECT station, count(*) AS n FROM train WHERE speed < 5 GROUP BY station WINDOW TUMBLING(ts, 5 s) INTO dashboard",
    "SELECT station, wind FROM weather WHERE wind > 8 INTO alerts",
    "SELECT id AS who, speed AS fast FROM train WHERE speed < 5 INTO archive",
)
LATER = "SELECT id FROM train WHERE speed < 5 AND passengers > 3 INTO archive"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can be forgotten is."""
    monkeypatch.setattr(recovery, "FORGOTTEN_AT_ONCE", 1)


def world() -> TopologyFile:
    return load(RING)


def numbered(found: Recovered) -> dict[OperatorId, object]:
    """Operators that are wanted, by number, with all that tells one from another."""
    operators = found.catalog.plan.operators.items()
    return {
        o: (r.spec, r.inputs, r.signature, r.users) for o, r in operators if r.state is not OperatorState.TO_BE_REMOVED
    }


def later(found: Recovered, text: str) -> list[OperatorId]:
    """The numbers that one more query gets."""
    catalog = found.catalog
    query = planned(QueryId("later"), text, catalog.streams, catalog.sinks)
    preparation = Preparation(catalog.streams, catalog.sinks)
    return add_query(catalog, preparation.prepare(Query(query.id, query.plan, query.demands)))


STEPS = st.lists(st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=3, unique=True), max_size=12)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.lists(st.integers(1, 40), max_size=3))
def test_a_log_that_was_shortened_gives_the_same_numbers(batches: list[list[int]], running: list[int]) -> None:
    """Each number starts its query, or stops it when it runs."""
    host = {OperatorId(o) for o in running}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger(path)
        here: set[int] = set()
        for batch in batches:
            steps = [(f"q{n}", None if n in here else TEXTS[n]) for n in batch]
            here ^= set(batch)
            with ledger.transaction():
                ledger.batches.accept(0, [], steps)
        whole = rebuild(ledger, world(), host)
        length = len(ledger.queries.log())
        ledger.close()
        ledger = Ledger(path)
        again = rebuild(ledger, world(), host)
        assert (again.texts, again.since_ms) == (whole.texts, whole.since_ms)
        assert numbered(again) == numbered(whole)
        assert set(again.ghosts) >= set(whole.ghosts)
        assert again.catalog.plan.next_operator == whole.catalog.plan.next_operator
        assert again.catalog.running == whole.catalog.running
        assert len(ledger.queries.log()) <= length
        assert later(again, LATER) == later(whole, LATER)
        ledger.close()


def test_what_came_and_went_is_forgotten_and_what_is_used_is_not(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        ledger.batches.accept(0, [], [("first", TEXTS[0])])
        ledger.batches.accept(0, [], [("second", TEXTS[1])])  # reads what the first one brought
        ledger.batches.accept(0, [], [("first", None)])
        for _ in range(40):
            ledger.batches.accept(0, [], [("short", TEXTS[3])])
            ledger.batches.accept(0, [], [("short", None)])
    before = rebuild(ledger, world(), ())
    assert [s.query for s in ledger.queries.log()] == ["first", "second", "first", ""]
    assert numbered(rebuild(ledger, world(), ())) == numbered(before)
    with ledger.transaction():
        ledger.batches.accept(0, [], [("second", None)])
    assert not rebuild(ledger, world(), ()).texts
    assert [s.query for s in ledger.queries.log()] == [""]
    assert ledger.queries.log()[0].first == before.catalog.plan.next_operator
    ledger.close()


JOIN = "SELECT t.id FROM train AS t JOIN weather AS w ON t.station = w.station WITHIN 3 s WHERE w.wind > 8 INTO alerts"


def test_a_query_from_before_the_rewrites_keeps_the_plan_that_runs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        ledger.batches.accept(0, [], [("join", JOIN)])
    kinds = [type(o.spec).__name__ for o in rebuild(ledger, world(), ()).catalog.plan.operators.values()]
    assert kinds.index("Filter") < kinds.index("WindowJoin")
    ledger.close()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE query_log SET rules = 0")
    ledger = Ledger(tmp_path / "ledger.db")
    kinds = [type(o.spec).__name__ for o in rebuild(ledger, world(), ()).catalog.plan.operators.values()]
    assert kinds.index("WindowJoin") < kinds.index("Filter")
    ledger.close()
