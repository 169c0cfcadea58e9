"""A test bed: a coordinator and its sites, each a process, in namespaces of their own or side by side.

with process_test_bed(directory, topology, layout, can) as found:
    found.wait_ready(120)
    found.ask("POST", "/queries", {"text": "SELECT ...", "name": "slow"})
    found.processes["site-1"].kill()

When the block ends, by a signal included, no process, namespace or disk is left.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from lab.testbed.disks import Disks
from lab.testbed.layout import HOME, Layout
from lab.testbed.links import Can, NamespaceLinks
from lab.testbed.port_forward import PortForward
from lab.testbed.process import COMMAND, Process
from lab.testbed.signals import deafen, in_order
from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.membership.store import MembershipStore
from meander.membership.addresses import INSECURE
from meander.model.clock import VARIABLE, set_off, wall_clock_ms
from meander.model.durable_files import SLOW_DISK
from meander.model.errors import InputError

API_PORT, RPC_PORT = 8420, 8430
POLL_S = 0.2
ASK_S = 30.0
DRIVER_MEMORY = "1g"


class ProcessTestBedError(Exception):
    """The test bed did not come up, or something in it does not answer."""


@dataclass(slots=True)
class ProcessTestBed:
    """The running processes. Use `process_test_bed`."""

    directory: Path
    layout: Layout
    links: NamespaceLinks | None
    port: int
    """Of this machine, where the coordinator's API is."""
    session_timeout_ms: int
    disks: Disks | None = None
    """Of all hosts, where they can be full."""
    arguments: Sequence[str] = ()
    """More arguments of the coordinator and of all sites."""
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def home(self) -> CoordinatorDirectory:
        return CoordinatorDirectory(self.directory / HOME)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The token of the coordinator that runs, or ran last."""
        found = announced(self.home)
        return found.token if found is not None else ""

    def results(self, host: str) -> Path:
        """The directory of a host's sinks."""
        return self.home.results if host == HOME else self.directory / host / "results"

    def fill(self, site: str) -> None:
        """The disk of a host has no more room."""
        assert self.disks is not None, "this bed has no disks of its own"
        self.disks.fill(self.directory / site)

    def empty(self, site: str) -> None:
        assert self.disks is not None, "this bed has no disks of its own"
        self.disks.empty(self.directory / site)

    def is_full(self, host: str) -> bool:
        return self.disks is not None and self.directory / host in self.disks.full

    def lose(self, site: str) -> None:
        """A site dies, and what is on its disk is gone."""
        self.processes[site].kill()
        for path in (self.directory / site).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def has_replica(self, site: str) -> bool:
        """Whether another host has everything that anybody has seen of a site."""
        found = self.get(f"/sites/{site}")
        lags = ((found or {}).get("replicas") or {}).get("lags", ())
        return bool(found) and found["state"] == "here" and any(lag["state"] == "in step" for lag in lags)

    def shift(self, host: str, off_ms: int) -> None:
        """The clock of a host is wrong by so much from now on."""
        set_off(self._clock(host), off_ms)

    def slow_disk(self, host: str, slower_ms: int) -> None:
        """Each sync of a host takes so much longer from now on."""
        set_off(self._disk(host), slower_ms)

    def is_up(self, host: str) -> bool:
        """Whether a process runs and has come to the end of its start."""
        process = self.processes[host]
        return process.runs and process.has_said("running at" if host == HOME else "listens at")

    # ---------------------------------------------------------------- asking

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A request to the coordinator; raises OSError or HTTPException when it does not answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ASK_S)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", data, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The coordinator's answer, or None without one."""
        try:
            status, body = self.ask("GET", path)
        except (OSError, HTTPException, ValueError):
            return None
        return body if status == 200 else None

    def link(self) -> str:
        """An address that opens the page once."""
        _, body = self.ask("POST", "/links")
        return f"{self.url}{body['link']}"

    def states(self) -> dict[str, str]:
        return {s["site"]: s["state"] for s in self.get("/sites") or ()}

    def wait_ready(self, timeout_s: float, progress: Callable[[str], None] = lambda text: None) -> None:
        """Until the coordinator runs and all sites are there."""
        deadline = time.monotonic() + timeout_s
        shown = ""
        while True:
            health = self.get("/health")
            states = self.states() if health else {}
            missing = [s for s in self.layout.sites if states.get(s) != "here"]
            now = "the coordinator" if not health or health["status"] == "starting" else ", ".join(missing)
            if not now:
                return
            if now != shown:
                progress(f"waiting for {now}")
                shown = now
            dead = [p for p in self.processes.values() if not p.runs]
            if dead or time.monotonic() > deadline:
                who = dead[0] if dead else self.processes[missing[0] if missing else HOME]
                what = "ended" if dead else "is not ready in time"
                raise ProcessTestBedError(f"{who.name} {what}; the end of {who.log}:\n{who.last_words()}")
            time.sleep(POLL_S)

    def wait_settled(self, queries: Collection[str], timeout_s: float) -> None:
        """Until everything of these queries is deployed and nothing is on its way."""
        deadline = time.monotonic() + timeout_s
        while not all(self._is_deployed(query) for query in queries) or self._changes():
            if time.monotonic() > deadline:
                home = self.processes[HOME]
                raise ProcessTestBedError(
                    f"queries are not deployed in time; the end of {home.log}:\n{home.last_words()}"
                )
            time.sleep(POLL_S)

    def _is_deployed(self, query: str) -> bool:
        found = self.get(f"/queries/{query}")
        return found is not None and all(o["fragment"] is not None for o in found["dag"]["operators"])

    def _changes(self) -> bool:
        """Whether a change is in flight, or that is unknown."""
        found = self.get("/reconfigurations?limit=1000")
        return not found or any(change["status"] == "under_way" for change in found)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        membership_store = MembershipStore(self.home.ledger)
        try:
            tokens = {
                s: membership_store.make_token(s, self.layout.hosts[s], wall_clock_ms(), "test bed")
                for s in self.layout.sites
            }
        finally:
            membership_store.close()
        self._add(HOME, self._coordinator(), {})
        for site in self.layout.sites:
            self._add(site, self._site(site), {"MEANDER_SITE_TOKEN": tokens[site]})
        for process in self.processes.values():
            process.start()
        (self.directory / "bed.json").write_text(json.dumps(self.shown(), indent=2), encoding="utf-8")

    def stop(self) -> None:
        """Sites first, so that they can leave."""
        for process in reversed(list(self.processes.values())):
            process.stop()
        (self.directory / "bed.json").unlink(missing_ok=True)

    def kill(self) -> None:
        """Everything ends at once."""
        for process in self.processes.values():
            process.kill()
        (self.directory / "bed.json").unlink(missing_ok=True)

    def shown(self) -> dict[str, Any]:
        """The processes and their nodes, for people and programs."""
        return {
            "address": self.url,
            "directory": str(self.home.directory),
            "hosts": {
                host: {
                    "nodes": list(nodes),
                    "process": self.processes[host].number,
                    "log": str(self.processes[host].log),
                    **({"namespace": self.links.namespace(host)} if self.links else {}),
                }
                for host, nodes in self.layout.hosts.items()
            },
        }

    def _add(self, host: str, arguments: list[str], environment: dict[str, str]) -> None:
        command = [*COMMAND, *arguments]
        if self.links is not None:
            command = self.links.command(host, command)
        self.shift(host, 0)
        self.slow_disk(host, 0)
        made_wrong = {VARIABLE: str(self._clock(host)), SLOW_DISK: str(self._disk(host))}
        environment = {**environment, **made_wrong, INSECURE: "1"}
        self.processes[host] = Process(host, command, self.directory / "logs" / f"{host}.log", environment)

    def _clock(self, host: str) -> Path:
        return self.directory / f"{host}.clock"

    def _disk(self, host: str) -> Path:
        return self.directory / f"{host}.disk"

    def _coordinator(self) -> list[str]:
        where = [] if self.links is None else ["--host", self.links.address(HOME)]
        rpc = [] if self.links is None else ["--rpc-listen", f"{self.links.address(HOME)}:{RPC_PORT}"]
        port = self.port if self.links is None else API_PORT
        session_timeout = ["--session-timeout", f"{self.session_timeout_ms}ms"]
        more = [*session_timeout, *self.arguments]
        return ["up", "--dir", str(self.home.directory), "--port", str(port), *where, *rpc, *more]

    def _site(self, site: str) -> list[str]:
        join = self.url if self.links is None else f"http://{self.links.address(HOME)}:{API_PORT}"
        listen = [] if self.links is None else ["--listen", f"{self.links.address(site)}:{RPC_PORT}"]
        names = ["--name", site, "--nodes", ",".join(self.layout.hosts[site])]
        more = ["--directory", str(self.directory / site), "--master", "local[1]", "--memory", DRIVER_MEMORY]
        more += self.arguments
        return ["site", "--join", join, *names, *more, *listen]


@contextmanager
def process_test_bed(
    directory: Path,
    topology: Path,
    layout: Layout,
    can: Can = Can.NOTHING,
    *,
    session_timeout_ms: int = 5_000,
    port: int = 0,
    loss_percent: float = 0.0,
    disks: bool = False,
    arguments: Sequence[str] = (),
) -> Iterator[ProcessTestBed]:
    """A test bed whose processes were started; everything ends with the block.

    Its hosts are in namespaces where `can` says that links can be cut; with `disks`, sites have disks of their own.
    """
    if (directory / HOME).exists():
        raise InputError("a test bed was here already; choose another directory, or remove it", str(directory))
    with in_order(), contextlib.ExitStack() as stack:
        bed_disks = Disks(directory / host for host in layout.hosts) if disks else None
        if bed_disks is not None:
            stack.callback(bed_disks.close)
        create(directory / HOME, topology)
        ports = {host: (API_PORT, RPC_PORT) if host == HOME else (RPC_PORT,) for host in layout.hosts}
        links = NamespaceLinks(layout, can, loss_percent, ports) if Can.CUT in can else None
        if links is not None:
            stack.callback(links.close)
            hole = PortForward(links.namespace(HOME), (links.address(HOME), API_PORT), port)
            stack.callback(hole.close)
            port = hole.port
        found = ProcessTestBed(directory, layout, links, port or _free_port(), session_timeout_ms, bed_disks, arguments)
        stack.callback(found.kill)
        stack.callback(deafen)  # before the first of the above is undone
        found.start()
        yield found
        found.stop()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
