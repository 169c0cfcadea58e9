"""Queries across real processes: a coordinator and two sites, each with its own Spark, killed and moved for real.

All tests share one fleet: starting it takes most of the time. Every one has a stream of its own, and compares all
results with what a plain loop over the rows gives.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sites.fleet import ROWS, Fleet, counts_query, end_rows, expected_counts, fleet, write_rows, write_world

STREAMS = ("still", "killed", "moved", "torn")
HALF = ROWS // 2


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    with fleet(directory, write_world(directory, STREAMS)) as found:
        found.add("west", ["s0", "e0"])
        found.add("east", ["s1", "e1"])
        found.wait_here("west", "east")
        yield found


def finish(machines: Fleet, stream: str, where: str, sink: str) -> None:
    """The second half of the rows, the end, and all results as they have to be."""
    write_rows(machines.directory, stream, HALF, ROWS)
    end_rows(machines.directory, stream)
    wanted = expected_counts()
    machines.wait_for(where, stream, sink, len(wanted))
    assert machines.results(where, stream, sink) == wanted


def test_a_query_across_three_hosts_gives_what_one_would(machines: Fleet) -> None:
    machines.submit(counts_query("still", "out"), "still")
    write_rows(machines.directory, "still", 0, HALF)
    finish(machines, "still", "home", "out")


def test_a_site_that_was_killed_goes_on_where_it_was(machines: Fleet) -> None:
    machines.submit(counts_query("killed", "side"), "killed")
    write_rows(machines.directory, "killed", 0, HALF)
    machines.wait_for("east", "killed", "side", 1)
    machines.sites["west"].kill()
    write_rows(machines.directory, "killed", HALF, HALF + 50)
    machines.sites["west"].start()
    write_rows(machines.directory, "killed", HALF + 50, ROWS)
    end_rows(machines.directory, "killed")
    wanted = expected_counts()
    machines.wait_for("east", "killed", "side", len(wanted))
    assert machines.results("east", "killed", "side") == wanted


def test_an_operator_with_memory_moves_between_sites_and_back_home(machines: Fleet) -> None:
    machines.submit(counts_query("moved", "out"), "moved")
    write_rows(machines.directory, "moved", 0, 120)
    machines.wait_for("home", "moved", "out", 1)
    for node, stop in (("e0", 180), ("e1", 240), ("cloud", HALF)):
        machines.move("moved", "window aggregate", node)
        write_rows(machines.directory, "moved", stop - 60, stop)
        machines.wait_moved("moved", "window aggregate", node)
    finish(machines, "moved", "home", "out")
