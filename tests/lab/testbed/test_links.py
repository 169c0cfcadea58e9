"""Network namespaces for real, where they can be made: hosts reach each other, around a cut and not through it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from lab.testbed import world
from lab.testbed.layout import HOME, layout
from lab.testbed.links import Can, NamespaceLinks, capabilities
from lab.testbed.port_forward import PortForward
from lab.testbed.process import Process
from meander.lang.topology.reader import read

PORT = 8099
REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def links() -> Iterator[NamespaceLinks]:
    can, reason = capabilities()
    if Can.CUT not in can:
        pytest.skip(reason)
    places = layout(read(world.TOPOLOGY).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    found = NamespaceLinks(places, can)
    yield found
    found.close()
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(found.namespace(host) in names for host in places.hosts)


@pytest.fixture(scope="module")
def server(links: NamespaceLinks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A web server on the coordinator's host."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "hello").write_text("inside")
    command = [sys.executable, "-m", "http.server", str(PORT), "--bind", links.address(HOME), "-d", str(directory)]
    process = Process("server", links.command(HOME, command), directory / "log")
    process.start()
    deadline = time.monotonic() + TIMEOUT_S
    while not reaches(links, HOME, 5):
        assert time.monotonic() < deadline, process.last_words()
        time.sleep(0.05)
    yield process
    process.kill()
    assert not process.runs


def reaches(links: NamespaceLinks, host: str, timeout_s: float) -> bool:
    command = links.command(host, [sys.executable, "-c", REACH, links.address(HOME), str(PORT), str(timeout_s)])
    return subprocess.run(command, capture_output=True).returncode == 0


def test_hosts_reach_each_other_around_a_cut_and_not_when_all_is_cut(links: NamespaceLinks, server: Process) -> None:
    assert reaches(links, "west", TIMEOUT_S)
    links.cut(HOME, "west")
    assert reaches(links, "west", TIMEOUT_S)
    links.cut("east", "west")
    assert not reaches(links, "west", 0.3)
    links.mend("west", "east")
    links.mend("west", HOME)
    assert reaches(links, "west", TIMEOUT_S)


def test_nothing_leads_out_of_the_namespaces(links: NamespaceLinks) -> None:
    shown = subprocess.run(
        ["ip", "-n", links.namespace("west"), "route"], capture_output=True, text=True, check=True
    ).stdout
    assert shown
    assert all(line.startswith("10.7") for line in shown.splitlines())
    assert "default" not in shown


def test_a_porthole_lets_people_look_inside(links: NamespaceLinks, server: Process) -> None:
    hole = PortForward(links.namespace(HOME), (links.address(HOME), PORT))
    try:
        connection = HTTPConnection("127.0.0.1", hole.port, timeout=TIMEOUT_S)
        connection.request("GET", "/hello")
        assert connection.getresponse().read() == b"inside"
        connection.close()
    finally:
        hole.close()


def test_a_slow_wire_has_its_bandwidth_until_it_is_itself_again(links: NamespaceLinks) -> None:
    if Can.BANDWIDTH not in links.can:
        pytest.skip("bandwidth cannot be limited here")

    def shown() -> str:
        command = ["tc", "-n", links.namespace(HOME), "qdisc", "show"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    before = shown()
    assert "200Mbit" in before
    links.slow(HOME, "west", 1.0)
    assert "1Mbit" in shown().replace("200Mbit", "")
    links.slow(HOME, "west", None)
    assert shown() == before


def test_a_process_is_paused_killed_and_started_again(tmp_path: Path) -> None:
    process = Process("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    process.start()
    first = process.number
    process.pause()
    assert _state(first) in "Tt"
    process.resume()
    assert _state(first) not in "Tt"
    process.kill()
    assert (process.runs, process.number) == (False, None)
    process.start()
    assert process.number != first
    assert process.stop() == -15
    assert process.starts == 2


def _state(number: int | None) -> str:
    """The letter of a process's state, once it has one that signals have settled."""
    deadline = time.monotonic() + TIMEOUT_S
    seen = ""
    while time.monotonic() < deadline:
        now = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if now == seen:
            return now
        seen = now
        time.sleep(0.1)
    return seen


def test_what_an_earlier_start_left_is_gone_with_the_next_even_if_it_was_paused(tmp_path: Path) -> None:
    """A Java that was stopped when its parent had just ended hears of no signal to the next start."""
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    process = Process("parent", [sys.executable, "-c", child + "print(p.pid, flush=True)"], tmp_path / "log")
    process.start()
    try:
        while process.runs:
            time.sleep(0.02)
        process.pause()
        left = int((tmp_path / "log").read_text())
        assert Path(f"/proc/{left}").exists()
        process.start()
        deadline = time.monotonic() + 60
        while not is_over(left) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert is_over(left)
    finally:
        process.kill()


def is_over(process: int) -> bool:
    """Whether it has ended; its entry may stay until its parent looks."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
