"""A fleet for tests: a coordinator, and sites as real processes on this machine, all of them with certificates."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.security import certificates

TIMEOUT_S = 600.0
"""A busy machine takes minutes to start three Sparks; nobody waits longer than it takes."""
SECRETS = "secrets"
ROWS, EVERY_MS, WINDOW_MS = 600, 20, 1_000

TOPOLOGY = """
#   s0 - e0 - cloud - e1 - s1
nodes:
  - {name: cloud, kind: cloud, slots: 64}
  - {name: e0, kind: edge, slots: 8}
  - {name: e1, kind: edge, slots: 8}
  - {name: s0, kind: sensor, slots: 2}
  - {name: s1, kind: sensor, slots: 2}
links:
  - {source: s0, target: e0, latency_ms: 1}
  - {source: s1, target: e1, latency_ms: 1}
  - {source: e0, target: cloud, latency_ms: 5}
  - {source: e1, target: cloud, latency_ms: 5}
streams:
STREAMS
sinks:
  - {name: out, node: cloud}
  - {name: side, node: e1}
"""
STREAM = """
  - name: NAME
    schema: {ts: timestamp, id: bigint, value: double}
    event_time: ts
    nodes: s*
    options: {connector: files, path: PATH, node_column: node, format: csv}
"""


def write_world(directory: Path, streams: Sequence[str], topology: str = TOPOLOGY, alone: Sequence[str] = ()) -> Path:
    """A topology with streams, each with a file of its own that grows as the test says; those of `alone` come from s0
    only."""
    texts = []
    for name in (*streams, *alone):
        path = directory / f"{name}.csv"
        path.write_text("node,ts,id,value\n")
        text = STREAM.replace("s*", "s0") if name in alone else STREAM
        texts.append(text.replace("NAME", name).replace("PATH", str(path)))
    found = directory / "topology.yaml"
    found.write_text(topology.replace("STREAMS", "".join(texts)))
    return found


def write_rows(directory: Path, stream: str, first: int, stop: int, sensors: int = 2) -> None:
    """Appends rows: in turn for each sensor, one every 20 ms of event time."""
    lines = [f"s{i % sensors},{_stamp(i * EVERY_MS)},{i},{i % 10}\n" for i in range(first, stop)]
    with (directory / f"{stream}.csv").open("a") as file:
        file.write("".join(lines))


def end_rows(directory: Path, stream: str, sensors: int = 2) -> None:
    """A last row for each sensor, so late that all windows before it close; its own never does."""
    with (directory / f"{stream}.csv").open("a") as file:
        file.write("".join(f"s{i},{_stamp(3_000_000)},0,0\n" for i in range(sensors)))


def later_row(directory: Path, stream: str, number: int) -> None:
    """A row of s0 after the end, for time to go on: each one closes the window of the one before."""
    with (directory / f"{stream}.csv").open("a") as file:
        file.write(f"s0,{_stamp(3_000_000 + 2 * number * WINDOW_MS)},0,0\n")


def _stamp(ms: int) -> str:
    return f"1970-01-01T00:{ms // 60_000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}Z"


def expected_counts(rows: int = ROWS) -> list[tuple[int, int, int]]:
    """(window, count, sum of ids) by window and value: the oracle."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i in range(rows):
        groups.setdefault((i * EVERY_MS // WINDOW_MS, i % 10), []).append(i)
    return sorted((window, len(ids), sum(ids)) for (window, _), ids in groups.items())


def counts_query(stream: str, sink: str) -> str:
    return (
        f"SELECT window_start, value, count(*) AS n, sum(id) AS total FROM {stream} "
        f"GROUP BY value WINDOW TUMBLING(ts, 1 s) INTO {sink}"
    )


def until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "it did not happen") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


COMMAND = (sys.executable, "-c", "from meander.cli.main import app; app()")


@dataclass
class Process:
    """A command of ours that can be killed and started again."""

    directory: Path
    command: Sequence[str]
    token: str = ""
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "log").open("ab") as log:
            self.running = subprocess.Popen(
                [*COMMAND, *self.command],
                stdout=log,
                stderr=log,
                env={**os.environ, "MEANDER_SITE_TOKEN": self.token},
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL, to the process and its Java."""
        assert self.running is not None
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()

    def signal(self, number: int) -> None:
        assert self.running is not None
        os.killpg(self.running.pid, number)

    def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.running is not None
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(TIMEOUT_S)

    def java(self) -> int:
        """The process id of its Java."""
        assert self.running is not None
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
                name = (path / "comm").read_text().strip()
            except OSError:
                continue
            if parent == self.running.pid and name == "java":
                return int(path.name)
        raise AssertionError("it has no Java")

    def wait(self) -> int:
        """Until it has ended by itself; gives the exit code."""
        assert self.running is not None
        return self.running.wait(TIMEOUT_S)

    def end(self) -> None:
        if self.running is not None and self.running.poll() is None:
            self.kill()

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""


@dataclass
class Fleet:
    """A coordinator and its sites, each a process."""

    directory: Path
    topology: Path
    port: int
    coordinator: Process
    sites: dict[str, Process] = field(default_factory=dict)
    acts: str = "home"
    """The directory of the coordinator that is asked."""

    @property
    def home(self) -> CoordinatorDirectory:
        return CoordinatorDirectory(self.directory / self.acts)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A request to the coordinator, with time for a busy machine to answer."""
        context = ssl.create_default_context(cafile=str(self.directory / SECRETS / "ca.pem"))
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_S, context=context)
        found = announced(self.home)
        headers = {"Authorization": f"Bearer {found.token if found is not None else ''}"}
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", data, {**headers, "Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def add(self, name: str, nodes: Sequence[str], extra: Sequence[str] = ()) -> Process:
        """Makes a token for a site and starts it."""
        store = MembershipStore(self.home.ledger)
        token = store.make_token(name, nodes, 0, "test")
        store.close()
        directory = self.directory / name
        command = ["site", "--join", self.url, "--nodes", ",".join(nodes), "--name", name, "--memory", "1g"]
        command += ["--directory", str(directory / "site"), "--master", "local[1]", *extra]
        command += with_certificate(self.directory, name)
        site = self.sites[name] = Process(directory, command, token)
        site.start()
        return site

    def ask(self, path: str) -> Any:
        """What the coordinator says, or None while it does not answer."""
        try:
            status, body = self.send("GET", path)
        except (OSError, HTTPException, ValueError):
            return None
        return body if status == 200 else None

    def states(self) -> dict[str, str]:
        return {site["site"]: site["state"] for site in self.ask("/sites") or ()}

    def wait_here(self, *names: str) -> None:
        until(lambda: all(self.states().get(name) == "here" for name in names), self.logs)

    def submit(self, text: str, name: str) -> None:
        status, body = self.send("POST", "/queries", {"text": text, "name": name})
        assert status < 300, body

    def operator(self, query: str, kind: str) -> dict[str, Any]:
        """The operator of a kind that a query has, as the coordinator shows it; nothing while it does not answer."""
        found = self.ask(f"/queries/{query}") or {"dag": {"operators": ()}}
        return next((o for o in found["dag"]["operators"] if o["kind"] == kind), {})

    def move(self, query: str, kind: str, node: str) -> None:
        until(lambda: bool(self.operator(query, kind)), self.logs)
        status, body = self.send("POST", "/moves", {"operator": self.operator(query, kind)["id"], "node": node})
        assert status < 300, body

    def wait_moved(self, query: str, kind: str, node: str) -> None:
        """Until an operator is on a node and nothing is under way any more."""
        until(lambda: self.has_moved(query, kind, node), self.logs)

    def has_moved(self, query: str, kind: str, node: str) -> bool:
        changes = self.ask("/reconfigurations")
        if changes is None or any(c["status"] == "under_way" for c in changes):
            return False
        return bool(self.operator(query, kind).get("node") == node)

    def results(self, where: str, query: str, sink: str) -> list[tuple[int, int, int]]:
        """(window, count, sum of ids) of a query's results so far."""
        base = self.home.results if where == "home" else self.directory / where / "site" / "results"
        return sorted(count for path in base.glob(f"*{query}*{sink}*") for count in counts_of(path))

    def wait_for(self, where: str, query: str, sink: str, count: int) -> None:
        until(lambda: len(self.results(where, query, sink)) >= count, self.logs)

    def logs(self) -> str:
        found = {"coordinator": self.coordinator, **self.sites}
        return "\n".join(f"--- {name}\n{each.log[-3000:]}" for name, each in found.items())


def counts_of(path: Path) -> list[tuple[int, int, int]]:
    """(window, count, sum of ids) of the results in a file so far."""
    return sorted((_window(row), int(row["n"]), int(row["total"])) for row in rows_of(path))


def _window(row: Mapping[str, Any]) -> int:
    """The window's number: it is one second long."""
    seconds = str(row["window_start"]).split("T")[-1].split(" ")[-1].split(".")[0].rstrip("Z").split("+")[0].split(":")
    return int(seconds[1]) * 60 + int(seconds[2])


def with_certificate(directory: Path, name: str) -> list[str]:
    """Options with which a process shows who it is, and knows the others."""
    (files,) = certificates.make(directory / SECRETS, [name])
    authority = directory / SECRETS / "ca.pem"
    return ["--certificate", str(files.certificate), "--key", str(files.key), "--ca", str(authority)]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def fleet(directory: Path, topology: Path, sites: Mapping[str, Sequence[str]]) -> Iterator[Fleet]:
    """A coordinator and sites that have joined it; all start at the same time."""
    home, port = directory / "home", free_port()
    create(home, topology)
    command = ["up", "--dir", str(home), "--port", str(port), *with_certificate(directory, "coordinator")]
    found = Fleet(directory, topology, port, Process(directory / "coordinator", command))
    try:
        for name, nodes in sites.items():
            found.add(name, nodes)
        found.coordinator.start()
        found.wait_here(*sites)
        yield found
    finally:
        for each in (*found.sites.values(), found.coordinator):
            each.end()
