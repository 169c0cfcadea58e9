"""Restoring a site before it starts: it asks whether a replica went on in its place, and gets its store from there.

A directory that a replica has overtaken, or that was given up, is put aside and never used again: what it says was said
differently meanwhile. A store on its way is fetched beside it and takes its place as a whole.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from meander.membership.http_client import CoordinatorClient, RequestRefusedError, UnreachableError
from meander.membership.protocol import Code
from meander.reconfigure.replicas.pull import ReplicaPull
from meander.run.channels.flight.client import ClientTls, FlightClient
from meander.run.channels.flight.proof import PeerAddress

_log = logging.getLogger(__name__)
HOST, INSTANCE = "host", "instance.json"
FETCHED = "host.fetched"
WAIT_S = 60.0
"""How long a site waits until the coordinator knows that its former process is gone."""


def restore(directory: Path, name: str, instance: str, client: CoordinatorClient, tls: ClientTls) -> None:
    """Brings the directory up to date.

    A coordinator that does not answer is not waited for: what it would say it says when the site joins.
    """
    try:
        told = _asked(name, instance, client)
    except UnreachableError as error:
        _log.info("starting with what is here: %s", error)
        return
    except RequestRefusedError as error:
        if error.code in (Code.UNAVAILABLE, Code.EPOCH):
            _log.warning("starting with what is here: %s", error)
        return
    if told is None:
        return
    if told.get("empty"):
        put_aside(directory)
        (directory / INSTANCE).unlink(missing_ok=True)
        _log.warning("what was here was given up; it is put aside, and the site begins anew")
        return
    _fetch(directory / FETCHED, name, told, tls)
    put_aside(directory)
    (directory / FETCHED).rename(directory / HOST)
    _log.warning("the store came back from a replica at %s", told["keeper"])


def _asked(name: str, instance: str, client: CoordinatorClient) -> Mapping[str, Any] | None:
    """The coordinator's answer; it may take a moment until it knows that a process with a lost directory is gone."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = client.ask("POST", f"/sites/{quote(name, safe='')}/restore", {"instance": instance})
        told: Mapping[str, Any] | None = answer.get("restore")
        if told is None or "wait_ms" not in told:
            return told
        if time.monotonic() > deadline:
            return None
        time.sleep(float(told["wait_ms"]) / 1000)


def _fetch(directory: Path, name: str, told: Mapping[str, Any], tls: ClientTls) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    client = FlightClient(PeerAddress(str(told["address"]), str(told["proof"])), name, tls)
    following = ReplicaPull(name, 0, directory / "store", (str(told["keeper"]),), lambda site: client)
    try:
        following.fetch()
    finally:
        following.stop()
        client.close()


def put_aside(directory: Path) -> None:
    """Makes room for another store; the former one stays beside it, for people."""
    host = directory / HOST
    if host.exists():
        number = 1
        while (aside := directory / f"host.superseded-{number}").exists():
            number += 1
        host.rename(aside)
