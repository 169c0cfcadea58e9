"""Queries across real processes: a coordinator and two sites, each with its own Spark, killed and moved for real.

All tests share one fleet: starting it takes most of the time. Every one has a stream of its own, and compares all
results with what a plain loop over the rows gives.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.site.fleet import (
    ROWS,
    Fleet,
    counts_query,
    end_rows,
    expected_counts,
    fleet,
    later_row,
    until,
    write_rows,
    write_world,
)

STREAMS = ("moved", "torn", "headless")
HALF = ROWS // 2
MOST_LATER = 250


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    sites = {"west": ["s0", "e0"], "east": ["s1", "e1"]}
    with fleet(directory, write_world(directory, STREAMS, alone=("switched",)), sites) as found:
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


def arrived(machines: Fleet) -> list[Any]:
    """What transitions took that have ended."""
    found = machines.ask("/transitions?query=switched") or []
    assert all(d["action"] != "failed" for d in found), found
    return [d["took"] for d in found if d["action"] == "arrived"]


def took(machines: Fleet, transitions: int) -> Any:
    """What the last of so many transitions took, once it has ended."""
    until(lambda: len(arrived(machines)) >= transitions, machines.logs)
    return arrived(machines)[-1]


def way_of_the_aggregate(transition: Any) -> str:
    return next(str(o["way"]) for o in transition["operators"] if o["kind"] == "WindowAggregate")


def test_auto_moves_state_between_sites_or_lets_windows_run_out_as_the_link_allows(machines: Fleet) -> None:
    machines.submit(counts_query("switched", "side"), "switched")
    write_rows(machines.directory, "switched", 0, 120, sensors=1)
    machines.wait_for("east", "switched", "side", 1)
    assert machines.operator("switched", "window aggregate")["node"] == "s0"
    there, back = {"mechanism": "top_down", "protocol": "auto"}, {"mechanism": "bottom_up", "protocol": "auto"}
    assert machines.send("POST", "/queries/switched/switch", there)[0] == 202
    write_rows(machines.directory, "switched", 120, 240, sensors=1)
    first = took(machines, 1)
    machines.wait_moved("switched", "window aggregate", "e1")
    assert (way_of_the_aggregate(first), way_of_the_aggregate(first["predicted"])) == ("with state", "with state")
    assert first["state_bytes"] > 0

    slow = {"event": "link_added", "source": "e0", "target": "cloud", "latency_ms": 600_000}
    gone = {"event": "link_removed", "source": "e0", "target": "cloud"}
    status, body = machines.send("POST", "/events", {"events": [gone, slow]})
    assert status < 300, body
    machines.wait_moved("switched", "window aggregate", "e1")

    def predicted() -> Any:
        status, body = machines.send("POST", "/queries/switched/switch?dry_run=true", back)
        return body["predicted"] if status == 200 else None

    until(lambda: way_of_the_aggregate(predicted()) == "beside", machines.logs)
    assert "its windows need" in next(o["why"] for o in predicted()["operators"] if o["kind"] == "WindowAggregate")
    assert machines.send("POST", "/queries/switched/switch", back)[0] == 202
    write_rows(machines.directory, "switched", 240, ROWS, sensors=1)
    for number in range(MOST_LATER):
        if len(arrived(machines)) == 2:
            break
        later_row(machines.directory, "switched", number)
        time.sleep(1)
    second = took(machines, 2)
    machines.wait_moved("switched", "window aggregate", "s0")
    assert (way_of_the_aggregate(second), second["state_bytes"]) == ("beside", 0)
    assert second["overlap_s"] > 0
    for each in (first, second):
        assert each["predicted"]["protocol"] == "auto"
        assert each["seconds"] >= sum(each["parts_s"].values()) - 0.01, "waiting and tidying included"
    wanted = expected_counts()
    machines.wait_for("east", "switched", "side", len(wanted))
    found = machines.results("east", "switched", "side")
    assert found[: len(wanted)] == wanted
    later = [window for window, *_ in found[len(wanted) :]]
    assert later == [3_000 + 2 * number for number in range(len(later))], "those of later rows, each once"


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
