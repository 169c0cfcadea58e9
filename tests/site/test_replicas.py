"""A site dies with its disk while tuples flow: what ran there goes on from a replica, and nothing is lost or double."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.site.fleet import (
    ROWS,
    Fleet,
    counts_of,
    counts_query,
    end_rows,
    expected_counts,
    fleet,
    until,
    write_rows,
    write_world,
)

WORLD = """
replicas: 1
replication: async
takeover: 1s
#   s0, s1 - e0 (west) - cloud; s0, s1 and e1 (east) - cloud
nodes:
  - {name: cloud, kind: cloud, slots: 64}
  - {name: e0, kind: edge, slots: 8}
  - {name: e1, kind: edge, slots: 8}
  - {name: s0, kind: sensor, slots: 2}
  - {name: s1, kind: sensor, slots: 2}
links:
  - {source: s0, target: e0, latency_ms: 1}
  - {source: s1, target: e0, latency_ms: 1}
  - {source: e0, target: cloud, latency_ms: 1}
  - {source: s0, target: cloud, latency_ms: 5}
  - {source: s1, target: cloud, latency_ms: 5}
  - {source: e1, target: cloud, latency_ms: 5}
streams:
STREAMS
sinks:
  - {name: out, node: cloud}
  - {name: kept, node: e1, options: {path: KEPT, shared: true}}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("replicas")
    sites = {"west": ["e0"], "east": ["s0", "s1", "e1"]}
    world = write_world(directory, ["died", "shared"], WORLD.replace("KEPT", str(directory / "kept.jsonl")))
    head, stream = world.read_text().split("name: shared")
    world.write_text(f"{head}name: shared{stream.replace('format: csv', 'format: csv, shared: true', 1)}")
    with fleet(directory, world, sites) as found:
        yield found


def in_sync(machines: Fleet, site: str) -> list[str]:
    found = machines.ask(f"/sites/{site}") or {}
    lags = (found.get("measures") or {}).get("host", {}).get("replication", {})
    return [keeper for keeper, lag in lags.items() if lag["in_sync"]]


def stands_in(machines: Fleet, site: str) -> str | None:
    found: str | None = ((machines.ask(f"/sites/{site}") or {}).get("replicas") or {}).get("stands_in")
    return found


def die_with_its_disk(machines: Fleet, site: str) -> None:
    machines.sites[site].kill()
    shutil.rmtree(machines.directory / site / "site")


@pytest.mark.chaos
def test_sites_that_die_with_their_disks_go_on_from_replicas_and_get_their_stores_back(machines: Fleet) -> None:
    until(lambda: all(in_sync(machines, site) for site in ("west", "east")), machines.logs)
    machines.submit(counts_query("died", "out"), "died")
    write_rows(machines.directory, "died", 0, 120)
    machines.wait_for("home", "died", "out", 1)
    assert machines.operator("died", "window aggregate")["node"] == "e0"
    write_rows(machines.directory, "died", 120, 180)
    machines.wait_for("home", "died", "out", 20)
    die_with_its_disk(machines, "west")
    write_rows(machines.directory, "died", 180, 240)
    machines.wait_moved("died", "window aggregate", "cloud")
    write_rows(machines.directory, "died", 240, 300)
    machines.wait_for("home", "died", "out", 50)

    until(lambda: bool(in_sync(machines, "east")), machines.logs)
    write_rows(machines.directory, "died", 300, 360)
    die_with_its_disk(machines, "east")
    until(lambda: stands_in(machines, "east") is not None, machines.logs)
    machines.sites["west"].start()
    machines.sites["east"].start()
    machines.wait_here("west", "east")
    until(lambda: stands_in(machines, "east") is None, machines.logs)
    assert "the store came back from a replica" in machines.sites["east"].log
    write_rows(machines.directory, "died", 360, ROWS)
    end_rows(machines.directory, "died")
    wanted = expected_counts()
    machines.wait_for("home", "died", "out", len(wanted))
    assert machines.results("home", "died", "out") == wanted


@pytest.mark.chaos
def test_sources_are_read_and_sinks_delivered_to_elsewhere_while_their_site_is_gone(machines: Fleet) -> None:
    kept = machines.directory / "kept.jsonl"
    machines.wait_here("west", "east")
    machines.submit(counts_query("shared", "kept"), "shared")
    machines.submit("SELECT id FROM died INTO out", "waits")
    write_rows(machines.directory, "shared", 0, 120)
    until(lambda: len(counts_of(kept)) >= 10, machines.logs)
    until(lambda: bool(in_sync(machines, "east")), machines.logs)
    write_rows(machines.directory, "shared", 120, 180)
    die_with_its_disk(machines, "east")
    until(lambda: stands_in(machines, "east") is not None, machines.logs)
    write_rows(machines.directory, "shared", 180, 360)
    until(lambda: len(counts_of(kept)) >= 60, machines.logs)
    assert machines.states()["east"] == "away"
    status, reason = condition(machines, "shared")
    assert (status, "site east is gone, and what ran there goes on" in reason) == ("running", True), reason
    status, reason = condition(machines, "waits")
    assert (status, "stream died waits for site east, which is gone: its files are on" in reason) == ("waiting", True)
    lags = {lag["keeper"]: lag["state"] for lag in machines.ask("/sites/east")["replicas"]["lags"]}
    assert lags["home"] == "serving"

    machines.sites["east"].start()
    machines.wait_here("east")
    until(lambda: stands_in(machines, "east") is None, machines.logs)
    write_rows(machines.directory, "shared", 360, ROWS)
    end_rows(machines.directory, "shared")
    wanted = expected_counts()
    until(lambda: len(counts_of(kept)) >= len(wanted), machines.logs)
    assert counts_of(kept) == wanted
    until(lambda: not (machines.ask("/queries/shared") or {"reason": "?"}).get("reason"), machines.logs)


@pytest.mark.chaos
def test_a_site_whose_replica_goes_on_can_be_given_up_and_ends_when_nothing_runs_there(machines: Fleet) -> None:
    machines.wait_here("west", "east")
    machines.submit("SELECT id, value FROM shared WHERE value >= 5 INTO out", "stopped")
    until(lambda: bool(in_sync(machines, "west")), machines.logs)
    die_with_its_disk(machines, "west")
    until(lambda: stands_in(machines, "west") is not None, machines.logs)
    status, found = machines.send("POST", "/sites/west/forget")
    assert (status, found["goes_on_at"]) == (200, "home")
    status, _ = machines.send("DELETE", "/queries/stopped")
    assert status < 300
    until(lambda: machines.ask("/queries/stopped") is None and machines.ask("/queries") is not None, machines.logs)
    until(lambda: stands_in(machines, "west") is None, machines.logs)
    nodes = {
        o["node"] for q in machines.ask("/queries") for o in machines.ask(f"/queries/{q['id']}")["dag"]["operators"]
    }
    assert "e0" not in nodes
    machines.sites["west"].start()
    machines.wait_here("west")


def condition(machines: Fleet, query: str) -> tuple[str, str]:
    found = machines.ask(f"/queries/{query}")
    return found["status"], found.get("reason") or ""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet without replicas."""
    directory = tmp_path_factory.mktemp("alone")
    sites = {"west": ["e0"], "east": ["s0", "s1", "e1"]}
    world = WORLD.replace("replication: async", "replication: off").replace("KEPT", str(directory / "kept.jsonl"))
    with fleet(directory, write_world(directory, ["lost"], world), sites) as found:
        yield found


@pytest.mark.chaos
def test_a_site_that_is_lost_without_a_replica_can_be_given_up_and_its_query_goes_on_or_stops(alone: Fleet) -> None:
    alone.submit(counts_query("lost", "out"), "lost")
    write_rows(alone.directory, "lost", 0, 120)
    alone.wait_for("home", "lost", "out", 1)
    assert alone.operator("lost", "window aggregate")["node"] == "e0"
    status, refused = alone.send("POST", "/sites/west/forget")
    assert (status, "is here; stop it first" in refused["detail"]) == (409, True)
    die_with_its_disk(alone, "west")
    until(lambda: alone.states().get("west") == "away", alone.logs)
    alone.sites["west"].start()
    assert alone.sites["west"].wait() != 0
    assert "give it up with `meander site forget west`" in alone.sites["west"].log.replace("\n", " ")
    status, found = alone.send("POST", "/sites/west/forget")
    assert (status, found["goes_on_at"]) == (200, "home")
    assert any(text.startswith("the state of operator") for text in found["lost"])
    alone.wait_moved("lost", "window aggregate", "cloud")
    write_rows(alone.directory, "lost", 300, ROWS)
    end_rows(alone.directory, "lost")
    wanted = [row for row in expected_counts() if row[0] >= 6]
    until(lambda: [r for r in alone.results("home", "lost", "out") if r[0] >= 6] == wanted, alone.logs)
    status, _ = alone.send("DELETE", "/queries/lost")
    assert status < 300
    alone.sites["west"].start()
    alone.wait_here("west", "east")
    assert (alone.ask("/sites/west") or {}).get("replicas") is None


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with upstream backup: those that send to a site keep its bases."""
    directory = tmp_path_factory.mktemp("backed_up")
    sites = {"west": ["e0"], "east": ["s0", "s1", "e1"]}
    world = WORLD.replace("replicas: 1\nreplication: async", "replicas: 0")
    with fleet(directory, write_world(directory, ["replayed"], world), sites) as found:
        yield found


@pytest.mark.chaos
def test_without_replicas_a_lost_site_is_rebuilt_from_its_base_and_what_its_senders_have_kept(backed_up: Fleet) -> None:
    machines = backed_up
    machines.submit(counts_query("replayed", "out"), "replayed")
    write_rows(machines.directory, "replayed", 0, 120)
    machines.wait_for("home", "replayed", "out", 1)
    assert machines.operator("replayed", "window aggregate")["node"] == "e0"
    until(lambda: in_sync(machines, "west") == ["east"], machines.logs)
    write_rows(machines.directory, "replayed", 120, 180)
    machines.wait_for("home", "replayed", "out", 20)
    write_rows(machines.directory, "replayed", 180, 240)
    die_with_its_disk(machines, "west")
    machines.wait_moved("replayed", "window aggregate", "cloud")
    write_rows(machines.directory, "replayed", 240, ROWS)
    end_rows(machines.directory, "replayed")
    wanted = expected_counts()
    machines.wait_for("home", "replayed", "out", len(wanted))
    assert machines.results("home", "replayed", "out") == wanted
