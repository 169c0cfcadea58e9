"""Queries across real processes: a coordinator and two sites, each with its own Spark, killed and moved for real.

All tests share one fleet: starting it takes most of the time. Every one has a stream of its own, and compares all
results with what a plain loop over the rows gives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.site.fleet import ROWS, Fleet, counts_query, end_rows, expected_counts, fleet, write_rows, write_world

STREAMS = ("moved", "torn", "headless")
HALF = ROWS // 2


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    sites = {"west": ["s0", "e0"], "east": ["s1", "e1"]}
    with fleet(directory, write_world(directory, STREAMS), sites) as found:
        yield found


def finish(machines: Fleet, stream: str, where: str, sink: str) -> None:
    """The second half of the rows, the end, and all results as they have to be."""
    write_rows(machines.directory, stream, HALF, ROWS)
    end_rows(machines.directory, stream)
    wanted = expected_counts()
    machines.wait_for(where, stream, sink, len(wanted))
    assert machines.results(where, stream, sink) == wanted


def test_a_query_across_three_hosts_gives_what_one_would_while_its_memory_moves_between_them(machines: Fleet) -> None:
    machines.submit(counts_query("moved", "out"), "moved")
    write_rows(machines.directory, "moved", 0, 120)
    machines.wait_for("home", "moved", "out", 1)
    for node, stop in (("e0", 180), ("e1", 240), ("cloud", HALF)):
        machines.move("moved", "window aggregate", node)
        write_rows(machines.directory, "moved", stop - 60, stop)
        machines.wait_moved("moved", "window aggregate", node)
    none: dict[str, object] = {"resumed": [], "problem": None}
    assert machines.send("POST", "/resume", {}) == (200, [{"where": w, **none} for w in ("home", "east", "west")])
    finish(machines, "moved", "home", "out")


@pytest.mark.chaos
def test_a_site_and_the_coordinator_that_are_killed_in_the_middle_of_a_change_go_on_where_they_were(
    machines: Fleet,
) -> None:
    machines.submit(counts_query("torn", "side"), "torn")
    write_rows(machines.directory, "torn", 0, 120)
    machines.wait_for("east", "torn", "side", 1)
    machines.move("torn", "window aggregate", "e0")
    machines.sites["west"].kill()
    machines.coordinator.kill()
    write_rows(machines.directory, "torn", 120, HALF)
    machines.coordinator.start()
    machines.sites["west"].start()
    machines.wait_here("west", "east")
    finish(machines, "torn", "east", "side")


@pytest.mark.chaos
def test_a_site_whose_java_ends_says_so_and_goes_on_with_the_next_start(machines: Fleet) -> None:
    machines.submit(counts_query("headless", "side"), "headless")
    write_rows(machines.directory, "headless", 0, HALF)
    machines.wait_for("east", "headless", "side", 1)
    east = machines.sites["east"]
    os.kill(east.java(), signal.SIGKILL)
    assert east.wait() == 1
    assert "Java, on which Spark runs, has ended; everything that was taken in is there at the next start" in east.log
    east.start()
    machines.wait_here("west", "east")
    finish(machines, "headless", "east", "side")


def test_a_site_that_is_told_to_end_finishes_what_it_took_in_and_leaves(machines: Fleet) -> None:
    assert machines.sites["west"].terminate() == 0
    assert "stopped;" in machines.sites["west"].log
    assert machines.states()["west"] == "left"
    audit = [entry["did"] for entry in machines.ask("/audit?limit=1000") if entry["who"] == "west"]
    assert [did for did in audit if did in ("drain", "leave")] == ["drain", "leave"]
