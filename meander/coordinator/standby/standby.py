"""The standby's side: it follows the coordinator round by round, and takes over when most sites vote for that.

It never acts by itself: without the votes of most sites, and without having had everything in the term that they
remember, it goes on trying to follow.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.standby.copy import StandbyCopy
from meander.coordinator.standby.election import Candidacy, promote
from meander.coordinator.standby.rounds import pieces
from meander.membership.http_client import BASE, trusting
from meander.model.durable_files import FILES
from meander.model.errors import InputError
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)
TAKE_OVER_S = 4.0
"""A coordinator that is silent for so long may have died."""
ANSWER_S = 3.0
AGAIN_S = 0.25


class Standby:
    """One process that follows; `run` returns when it has to act."""

    def __init__(
        self,
        home: CoordinatorDirectory,
        url: str,
        token: str,
        address: str,
        ca: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address` is where sites find it once it acts; `token` is one of an admin's of the coordinator."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no address of a coordinator; write one such as https://hub:8420")
        self._home, self._parts, self._token, self._ca, self._clock = home, parts, token, ca, clock
        self._state = home.directory / "standby.json"
        known = _read(self._state)
        if home.exists and not known:
            raise InputError(
                "this directory is a coordinator's own; give a standby one that is new", str(home.directory)
            )
        self.name, self.term = str(known.get("name") or secrets.token_hex(8)), int(known.get("term", 0))
        self.is_in_sync = bool(known.get("in_sync", False))
        self.problem: str | None = None
        """Why it does not follow now, or cannot take over."""
        self._copy = StandbyCopy(home, known.get("segments", {}))
        self._address, self._round, self._heard = address, 0, clock()
        self._connection: HTTPConnection | None = None

    def run(self, is_over: threading.Event) -> bool:
        """Follows until it was elected; False when it is over before."""
        while not is_over.is_set():
            try:
                self.follow()
                self._heard, self.problem = self._clock(), None
            except (OSError, HTTPException, InputError, JournalError) as error:
                self._drop()
                if self.problem is None:
                    _log.warning("the coordinator cannot be followed: %s", error)
                self.problem = f"the coordinator cannot be followed: {error}"
                if self._clock() - self._heard > TAKE_OVER_S and self._is_elected():
                    return True
                is_over.wait(AGAIN_S)
        self._copy.close()
        return False

    # ---------------------------------------------------------------- following

    def follow(self) -> None:
        """One round: says what is here, takes what is missing."""
        asked = {
            "name": self.name, "address": self._address, "term": self.term, "round": self._round, **self._copy.has()
        }  # fmt: skip
        with self._ask(asked) as answer:
            for head, data in pieces(answer):
                self._heard = self._clock()
                if "round" not in head:
                    self._copy.take(head, data)
                    continue
                if int(head["term"]) != self.term:
                    self.term, self.is_in_sync = int(head["term"]), False
                    self._save()
                if self._copy.end(head["offer"]):
                    self._round, self.is_in_sync = int(head["round"]), bool(head["in_sync"])
                    self._save()
                    self._copy.tidy()
                return
        raise InputError("the coordinator's answer ended before it was complete")

    def _save(self) -> None:
        told = {"name": self.name, "term": self.term, "in_sync": self.is_in_sync, "segments": self._copy.segments}
        FILES.replace(self._state, json.dumps(told).encode())

    def _ask(self, body: Mapping[str, Any]) -> Any:
        if self._connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                self._connection = HTTPSConnection(host, port, timeout=ANSWER_S, context=trusting(self._ca))
            else:
                self._connection = HTTPConnection(host, port, timeout=ANSWER_S)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        path = f"{self._parts.path.rstrip('/')}{BASE}/standby/follow"
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        if answer.status >= 400:
            try:
                raise InputError(str(json.loads(answer.read())["detail"]))
            except (ValueError, KeyError, TypeError):
                raise InputError(f"what answers there is no coordinator (status {answer.status})") from None
        return answer

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---------------------------------------------------------------- taking over

    def _is_elected(self) -> bool:
        if not self.is_in_sync or not self._copy.is_whole():
            self.problem = (
                "the coordinator is silent, and this standby has not had everything; start the coordinator again"
            )
            return False
        candidacy = Candidacy(self._home, self.term, None if self._ca is None else self._ca.read_bytes())
        refusal = candidacy.refusal()
        if refusal is not None:
            self.problem = f"the coordinator is silent, and this standby may not take over: {refusal}"
            _log.warning("%s", self.problem)
            return False
        self._copy.cut()
        promote(self._home)
        self._state.unlink()
        _log.warning("most sites voted for this standby: it takes over, in epoch %d", candidacy.epoch.number)
        return True


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"this says not how far the standby is: {error}; give it a new directory", str(path)) from None
