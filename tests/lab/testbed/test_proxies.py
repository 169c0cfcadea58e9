"""Proxies between hosts, for real: what they do to connections is seen at both ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lab.testbed import world
from lab.testbed.layout import HOME, layout
from lab.testbed.links import Can, NamespaceLinks, capabilities
from lab.testbed.port_forward import entered
from lab.testbed.proxies import Proxies
from meander.lang.topology.reader import read

PORT = 8430
SOON_S, LATER_S = 0.4, 30.0


class Network:
    """Three hosts, each with a server that sends back what comes, and keeps it."""

    def __init__(self, links: NamespaceLinks) -> None:
        assert links.proxies is not None
        self.links, self.proxies = links, links.proxies
        self.came: dict[str, bytearray] = {}
        self.ends: list[str] = []
        self.listeners: list[socket.socket] = []
        for host in links.layout.hosts:
            where = (links.address(host), PORT)
            listener = entered(links.namespace(host), lambda where=where: socket.create_server(where))  # type: ignore[misc]
            self.listeners.append(listener)
            threading.Thread(target=self._serve, args=(host, listener), daemon=True).start()

    def _serve(self, host: str, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                found, _ = listener.accept()
                threading.Thread(target=self._echo, args=(host, found), daemon=True).start()

    def _echo(self, host: str, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                self.came.setdefault(host, bytearray()).extend(data)
                connection.sendall(data)
        self.ends.append(host)
        connection.close()

    def connect(self, a: str, b: str) -> socket.socket:
        where = (self.links.address(b), PORT)
        found = entered(self.links.namespace(a), lambda: socket.create_connection(where, timeout=LATER_S))
        found.settimeout(LATER_S)
        return found

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    can, reason = capabilities()
    if Can.CUT not in can:
        pytest.skip(reason)
    places = layout(read(world.TOPOLOGY).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    links = NamespaceLinks(places, can, ports=dict.fromkeys(places.hosts, (PORT,)))
    found = Network(links)
    yield found
    found.close()
    links.close()


def echoed(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    found = b""
    while len(found) < len(text) and (more := connection.recv(65_536)):
        found += more
    return found


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SOON_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LATER_S)
    return False


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LATER_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_hosts_reach_each_other_through_proxies_and_a_cut_cable_is_gone_round(network: Network) -> None:
    text = bytes(range(256)) * 4_000
    with network.connect("west", HOME) as connection:
        assert echoed(connection, text) == text
    network.links.cut(HOME, "west")
    with network.connect("west", HOME) as connection:
        assert echoed(connection, b"around") == b"around"
    network.links.mend(HOME, "west")


def test_a_way_that_is_closed_leaves_the_way_back_open(network: Network) -> None:
    proxies: Proxies = network.proxies
    with network.connect("west", "east") as there, network.connect("east", "west") as back:
        assert (echoed(there, b"before"), echoed(back, b"before")) == (b"before", b"before")
        proxies.close_to("west", "east", closed=True)
        there.sendall(b"during")
        assert is_silent(there)
        assert echoed(back, b"during") == b"during"
        proxies.close_to("west", "east", closed=False)
        assert there.recv(6) == b"during"


def test_what_one_host_sends_is_lost_and_comes_when_that_is_over(network: Network) -> None:
    with network.connect("west", "east") as there:
        assert echoed(there, b"before") == b"before"
        network.came.clear()
        network.proxies.mute("east", "west", mute=True)
        there.sendall(b"during")
        until(lambda: network.came.get("east") == bytearray(b"during"))
        assert is_silent(there)
        network.proxies.mute("east", "west", mute=False)
        assert there.recv(6) == b"during"


def test_connections_are_broken_off_in_the_middle_of_a_message(network: Network) -> None:
    with network.connect("west", "east") as there:
        assert echoed(there, b"before") == b"before"
        network.came.clear()
        assert network.proxies.break_off("east", "west") == 1
        there.sendall(b"0123456789")
        back = bytearray()
        with contextlib.suppress(ConnectionError):
            while more := there.recv(1):
                back += more
        assert b"01234".startswith(back)
        until(lambda: network.came.get("east") == bytearray(b"01234"))


def test_a_server_forgets_a_connection_and_its_client_hears_that_when_it_sends(network: Network) -> None:
    with network.connect("west", "east") as there:
        assert echoed(there, b"before") == b"before"
        network.ends.clear()
        assert network.proxies.leave_half_open("west", "east") == 1
        until(lambda: network.ends == ["east"])
        assert is_silent(there)
        there.sendall(b"still there?")
        with contextlib.suppress(ConnectionError):
            assert there.recv(1) == b""


def test_bytes_take_their_time_where_they_have_to(network: Network) -> None:
    with network.connect("west", "east") as there:
        assert echoed(there, b"before") == b"before"
        network.proxies.delay("west", "east", 1.0, 0.5)
        began = time.monotonic()
        assert echoed(there, b"slow") == b"slow"
        assert time.monotonic() - began >= 2.0
        network.proxies.delay("west", "east", 0.0, 0.0)
        network.proxies.throttle("west", "east", 10_000)
        began = time.monotonic()
        assert echoed(there, bytes(10_000)) == bytes(10_000)
        assert time.monotonic() - began >= 1.0
        network.proxies.throttle("west", "east", None)
