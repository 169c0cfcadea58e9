"""Queries that Nova places on sites that are real processes: cut anew, killed in the middle, each result once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.site.fleet import (
    Fleet,
    counts_query,
    end_rows,
    expected_counts,
    fleet,
    rows_of,
    until,
    write_rows,
    write_world,
)

pytestmark = pytest.mark.chaos
STREAMS = ("lefts", "rights", "thirds")
ROWS, CUT, KILLED = 240, 80, 160
CHAIN = (
    "SELECT a.id AS a, b.id AS b, c.id AS c FROM lefts AS a JOIN rights AS b ON a.value = b.value WITHIN 10 ms "
    "JOIN thirds AS c ON b.value = c.value WITHIN 10 ms INTO out"
)
NOVA = " WITH (mechanism = 'nova', fan_in = '2')"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    with fleet(directory, write_world(directory, STREAMS), {"west": ["s0", "e0"], "east": ["s1", "e1"]}) as found:
        yield found


def grow(machines: Fleet, first: int, stop: int) -> None:
    for stream in STREAMS:
        write_rows(machines.directory, stream, first, stop)


def triples(machines: Fleet) -> list[tuple[int, int, int]]:
    """Results but for those of the rows that end the streams, which have id 0."""
    rows = [row for path in Path(machines.home.results).glob("*chain*out*") for row in rows_of(path)]
    found = [(int(row["a"]), int(row["b"]), int(row["c"])) for row in rows]
    return [each for each in found if any(each)]


def capacity(machines: Fleet, **tps: float) -> None:
    """What nodes may take in, from now on."""
    events = [{"event": "capacity_changed", "node": node, "capacity_tps": each} for node, each in tps.items()]
    status, body = machines.send("POST", "/events", {"events": events})
    assert status < 300, body


def nodes(machines: Fleet, query: str, kind: str) -> Counter[Any]:
    found = machines.ask(f"/queries/{query}") or {"dag": {"operators": ()}}
    return Counter(o["node"] for o in found["dag"]["operators"] if o["kind"] == kind)


def settled(machines: Fleet) -> bool:
    changes = machines.ask("/reconfigurations")
    return changes is not None and not any(c["status"] == "under_way" for c in changes)


def test_joins_that_read_joins_and_a_tree_go_on_through_cuts_and_a_killed_site(machines: Fleet) -> None:
    capacity(machines, cloud=350.0, e0=550.0, e1=550.0, s0=350.0, s1=350.0)
    machines.submit(CHAIN + NOVA, "chain")
    capacity(machines, cloud=150.0, e0=900.0, e1=900.0)
    machines.submit(counts_query("lefts", "out") + NOVA, "counts")
    until(lambda: len(nodes(machines, "chain", "window join")) > 1 and settled(machines), machines.logs)
    until(lambda: len(nodes(machines, "counts", "window aggregate")) > 1, machines.logs)
    grow(machines, 0, CUT)
    until(lambda: len(triples(machines)) >= CUT // 2, machines.logs)
    before = nodes(machines, "chain", "window join"), nodes(machines, "counts", "window aggregate")
    capacity(machines, e0=0.0)
    capacity(machines, cloud=2000.0)
    after = nodes(machines, "chain", "window join"), nodes(machines, "counts", "window aggregate")
    assert before != after
    grow(machines, CUT, KILLED)
    until(lambda: len(triples(machines)) >= KILLED // 2, machines.logs)
    machines.sites["east"].kill()
    capacity(machines, e0=900.0, cloud=150.0)
    grow(machines, KILLED, ROWS)
    machines.sites["east"].start()
    for stream in STREAMS:
        end_rows(machines.directory, stream)
    wanted = expected_counts(ROWS)
    until(lambda: len(triples(machines)) >= ROWS - 1, machines.logs)
    machines.wait_for("home", "counts", "out", len(wanted))
    assert sorted(triples(machines)) == [(i, i, i) for i in range(1, ROWS)]
    assert machines.results("home", "counts", "out") == wanted
