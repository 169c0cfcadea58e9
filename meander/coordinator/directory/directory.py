"""The directory of a coordinator: where everything is that it needs to start again, on this machine or another.

meander.toml    settings, for people to edit
tokens.json     who may look and who may change things: names, roles and hashes
topology.yaml   nodes, links, streams and sinks at the beginning; later changes are in the ledger
ledger.db       what should run, and what happened
host/           what runs: tuples on their way, state, positions of sources and sinks
results/        what sinks write, unless they are told otherwise; relative paths of sources start here, too
service.json    the address, while a coordinator runs, and a token that is good for that long
secret.key      identity on the network; like everything here readable by its owner only
network.keys    keys of sites on the network, sealed with it
restored.json   the backup that all of it was restored from, if it was
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.coordinator.security.private import check_key, write_private
from meander.model.errors import InputError, unknown
from meander.run.process import is_running

DEFAULT = Path(".meander")
KNOWN: dict[str, type] = {
    "host": str,
    "port": int,
    "url": str,
    "mechanism": str,
    "protocol": str,
    "state": str,
    "amenders": int,
    "adapt": bool,
    "slots": int,
    "rebinding": str,
    "durability": str,
    "channel_budget": str,
    "overflow": str,
    "emulate_latency": bool,
    "validate": bool,
    "certificate": str,
    "key": str,
    "ca": str,
    "rpc_listen": str,
    "rpc_address": str,
    "broker": str,
    "broker_settings": str,
    "nova": dict,
    "prediction": dict,
    "session_timeout": str,
    "adaptation": dict,
    "functions": list,
    "mutual_tls": bool,
    "oidc": dict,
    "insecure": bool,
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
    def secret(self) -> Path:
        return self.directory / "secret.key"

    @property
    def network_keys(self) -> Path:
        return self.directory / "network.keys"

    @property
    def restored(self) -> Path:
        return self.directory / "restored.json"

    @property
    def exists(self) -> bool:
        return self.tokens.exists()

    def check(self) -> None:
        if not self.exists:
            raise InputError("no coordinator has its directory here; make one with `meander init`", str(self.directory))


def written_settings(home: CoordinatorDirectory) -> dict[str, Any]:
    """The settings in `meander.toml`, with names and types checked; whether values make sense is left to others."""
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
            kind = "table" if KNOWN[key] is dict else KNOWN[key].__name__
            raise InputError(f"{key} must be a {kind}, not {value!r}", str(home.settings))
    return found


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A coordinator that runs, or ran until it was killed."""

    address: str
    process: int
    token: str
    """The token of the directory's owner, good for this process."""

    @property
    def runs(self) -> bool:
        return is_running(self.process)


def own_secret(home: CoordinatorDirectory) -> str:
    """The secret behind the coordinator's own host on the network, made once for a directory."""
    if not home.secret.exists():
        write_private(home.secret, secrets.token_hex(32))
    check_key(home.secret)
    return home.secret.read_text(encoding="utf-8").strip()


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


def announce(home: CoordinatorDirectory, address: str, token: str) -> None:
    """Says where the coordinator of this directory can be reached, and lets its owner in."""
    write_private(home.service, json.dumps({"address": address, "process": os.getpid(), "token": token}))


def announced(home: CoordinatorDirectory) -> ServiceSettings | None:
    """The address under which this directory's coordinator can be reached, as it announced it."""
    try:
        found = json.loads(home.service.read_text(encoding="utf-8"))
        return ServiceSettings(str(found["address"]), int(found["process"]), str(found.get("token", "")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"this says not where a coordinator runs: {error}; remove the file", str(home.service)
        ) from None


def withdraw(home: CoordinatorDirectory) -> None:
    """The coordinator of this directory ended."""
    home.service.unlink(missing_ok=True)
