"""The process of a standby until it acts: it follows, says how it is at its own address, and has Spark ready."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.api.server import Server
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.directory.directory import CoordinatorDirectory, announce, held, withdraw
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.tls import Tls
from meander.coordinator.security.tokens import Tokens
from meander.coordinator.service.service import Service
from meander.coordinator.standby.standby import Standby
from meander.model.errors import InputError
from meander.run.session import start_session

LOOK_S = 0.2


def following(
    home: CoordinatorDirectory, coordinator: str, token: str | None, given: Mapping[str, Any], is_over: threading.Event
) -> SparkSession | None:
    """Follows a coordinator until this process has to act; gives Spark, ready by then. None when it is over before.

    `given` are the settings of this process, by their names in the settings file.
    """
    if not token:
        raise InputError(
            "a standby needs an admin's token of the coordinator (`meander token make`): give --token or MEANDER_TOKEN"
        )
    host, port = str(given.get("host", CoordinatorOptions.host)), int(given.get("port", CoordinatorOptions.port))
    if not port:
        raise InputError("a standby needs a port at which sites can find it: give --port")
    tls = Tls(Path(given["certificate"]), Path(given["key"])) if {"certificate", "key"} <= given.keys() else None
    address = str(given.get("url") or f"{'http' if tls is None else 'https'}://{host}:{port}")
    home.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = Path(given["ca"]) if "ca" in given else None
    with held(home), ThreadPoolExecutor(1, "standby spark") as pool:
        standby = Standby(home, coordinator, token, address, ca)
        spark: Future[SparkSession] = pool.submit(start_session, "meander")
        ended = threading.Event()
        told = threading.Thread(
            target=_tell, args=(standby, home, host, port, tls, ended), name="standby status", daemon=True
        )
        told.start()
        try:
            is_elected = standby.run(is_over)
        finally:
            ended.set()
            told.join()
        session = spark.result()
    if not is_elected:
        session.stop()
        return None
    return session


def _tell(
    standby: Standby, home: CoordinatorDirectory, host: str, port: int, tls: Tls | None, ended: threading.Event
) -> None:
    """Answers requests about the standby once it knows who may ask."""
    while not home.exists:
        if ended.wait(LOOK_S):
            return
    service = Service(Hub(secrets.token_hex(4)), Tokens.load(home.tokens), ChangeReader({}, {}))
    service.has_standby(_Facts(standby))
    server = Server(service, host, port, tls)
    server.start()
    announce(home, server.address, service.authenticator.own_token)
    ended.wait()
    server.stop()
    withdraw(home)


class _Facts:
    """Those of a process that is a standby."""

    role = "standby"

    def __init__(self, standby: Standby) -> None:
        self._standby = standby

    def shown(self) -> None:
        """It has no standby itself."""

    def problems(self) -> list[str]:
        if self._standby.problem is not None:
            return [self._standby.problem]
        return [] if self._standby.is_in_sync else ["the standby has not had everything yet; it could not take over"]
