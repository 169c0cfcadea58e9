"""The directory of a coordinator: where everything is that it needs to start again, on this machine or another.

meander.toml    settings, for people to edit
tokens.json     who may look and who may change things; readable by its owner only
topology.yaml   nodes, links, streams and sinks at the beginning; later changes are in the ledger
ledger.db       what should run, and what happened
host/           what runs: tuples on their way, state, positions of sources and sinks
results/        what sinks write, unless they are told otherwise; relative paths of sources start here, too
service.json    the address, while a coordinator runs
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.adapt.steering import SETTINGS as ADAPTATION
from meander.adapt.steering import AdaptationPolicy
from meander.coordinator.security.tokens import Tokens
from meander.model.errors import InputError, unknown
from meander.place.amenders.count import check_amenders
from meander.run.process import is_running

DEFAULT = Path(".meander")
SETTINGS = """\
# Settings of this coordinator. Flags of `meander up` win over them. What is left out has the value shown.

# host = "127.0.0.1"      # the address to listen on; beyond this machine, only with a certificate or a proxy with TLS
# port = 8420
# mechanism = "by_demands"  # what places queries at first: by_demands, or one of `meander place --help`
# protocol = "isqd"       # how changes are deployed
# amenders = 1            # threads that place at the same time; left out: one per core, where the mechanism can use it
# adapt = true            # switch a query's mechanism when its demands are not met
# slots = 1               # streaming queries that share the work
# rebinding = "steady"    # how fragments change slots when there are several: static, single_queue, greedy, steady, off
# emulate_latency = false # delay tuples by the latency of their path
# validate = false        # compare what runs with the catalog after every change; costs little, finds faults of Meander

# For sites on other machines:
# certificate = "..."     # files for TLS, as `meander certificates` makes them
# key = "..."
# ca = "..."              # the authority that signed the certificates of the sites
# rpc_listen = "127.0.0.1:0"  # where sites pull channels from, and the address under which they reach it
# rpc_address = "..."
# broker = "hub:9092"     # a Kafka broker, for channels to sites that use the same one
# broker_settings = "..." # a file with more settings of Kafka's clients, as name=value
# session_timeout = "5s"  # a site that is not heard of for so long is away

# How mechanisms are switched, for all queries; `meander adapt show` says what applies, `meander adapt set` changes it
# while queries run, and docs/concepts/adaptation.md says what each means. [adaptation.queries.NAME] is for one query.
# [adaptation]
"""
SETTINGS += "".join(f"# {s.name} = {json.dumps(s.default)}  # {s.about}\n" for s in ADAPTATION)
KNOWN: dict[str, type] = {
    "host": str,
    "port": int,
    "mechanism": str,
    "protocol": str,
    "amenders": int,
    "adapt": bool,
    "slots": int,
    "rebinding": str,
    "emulate_latency": bool,
    "validate": bool,
    "certificate": str,
    "key": str,
    "ca": str,
    "rpc_listen": str,
    "rpc_address": str,
    "broker": str,
    "broker_settings": str,
    "session_timeout": str,
    "adaptation": dict,
}
"""Settings, with their types."""


@dataclass(frozen=True, slots=True)
class CoordinatorDirectory:
    """Paths in the directory."""

    directory: Path

    @property
    def settings(self) -> Path:
        return self.directory / "meander.toml"

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens.json"

    @property
    def topology(self) -> Path:
        return self.directory / "topology.yaml"

    @property
    def ledger(self) -> Path:
        return self.directory / "ledger.db"

    @property
    def host(self) -> Path:
        return self.directory / "host"

    @property
    def results(self) -> Path:
        return self.directory / "results"

    @property
    def service(self) -> Path:
        return self.directory / "service.json"

    @property
    def exists(self) -> bool:
        return self.tokens.exists()

    def check(self) -> None:
        if not self.exists:
            raise InputError("no coordinator has its directory here; make one with `meander init`", str(self.directory))


def create(directory: Path, topology: Path) -> CoordinatorDirectory:
    """A directory for a coordinator that runs on this topology. Nothing is made when the topology is not good."""
    home = CoordinatorDirectory(directory)
    if home.exists:
        raise InputError("a coordinator has its directory here already; choose another, or remove it", str(directory))
    from meander.lang.topology.reader import load  # clients know the directory without reading topologies

    load(topology)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        home.results.mkdir(exist_ok=True)
        shutil.copyfile(topology, home.topology)
        if not home.settings.exists():
            home.settings.write_text(SETTINGS, encoding="utf-8")
        Tokens.fresh().save(home.tokens)  # last: with it, the directory is complete
    except OSError as error:
        raise InputError(f"the directory cannot be made: {error.strerror}", str(directory)) from None
    return home


def read_settings(home: CoordinatorDirectory) -> dict[str, Any]:
    """Reads and checks `meander.toml`."""
    try:
        found = tomllib.loads(home.settings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the settings cannot be read: {error}", str(home.settings)) from None
    for key, value in found.items():
        if key not in KNOWN:
            raise unknown("setting", key, KNOWN).at(str(home.settings))
        if type(value) is not KNOWN[key]:
            raise InputError(f"{key} must be a {KNOWN[key].__name__}, not {value!r}", str(home.settings))
    try:
        check_amenders(found.get("amenders"))
        check_adaptation(found.get("adaptation", {}))
    except InputError as error:
        raise error.at(str(home.settings)) from None
    return found


def check_adaptation(section: Mapping[str, Any]) -> None:
    """Raises for a setting of the adaptation loop that is not known, or a value that is not allowed."""
    of_queries = section.get("queries", {})
    if not isinstance(of_queries, dict) or not all(isinstance(each, dict) for each in of_queries.values()):
        raise InputError("settings of one query have a section of their own, such as [adaptation.queries.slow]")
    AdaptationPolicy(file={k: v for k, v in section.items() if k != "queries"}, of_queries=of_queries)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A coordinator that runs, or ran until it was killed."""

    address: str
    process: int

    @property
    def runs(self) -> bool:
        return is_running(self.process)


@contextmanager
def held(home: CoordinatorDirectory) -> Iterator[None]:
    """Makes sure that one coordinator at a time uses the directory, however the one before ended."""
    with (home.directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = announced(home)
            who = f", process {other.process} at {other.address}" if other else ""
            raise InputError(f"a coordinator runs here already{who}; stop it first", str(home.directory)) from None
        yield


def announce(home: CoordinatorDirectory, address: str) -> None:
    """Says where the coordinator of this directory can be reached."""
    partial = home.service.with_suffix(".new")
    partial.write_text(json.dumps({"address": address, "process": os.getpid()}), encoding="utf-8")
    partial.replace(home.service)


def announced(home: CoordinatorDirectory) -> ServiceSettings | None:
    """The address under which this directory's coordinator can be reached, as it announced it."""
    try:
        found = json.loads(home.service.read_text(encoding="utf-8"))
        return ServiceSettings(str(found["address"]), int(found["process"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"this says not where a coordinator runs: {error}; remove the file", str(home.service)
        ) from None


def withdraw(home: CoordinatorDirectory) -> None:
    """The coordinator of this directory ended."""
    home.service.unlink(missing_ok=True)
