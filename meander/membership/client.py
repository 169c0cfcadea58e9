"""A site's membership, kept alive: joins, sends heartbeats, joins again after a loss, leaves.

    client = MembershipClient(CoordinatorClient(url, token), description, Fence(directory / "fence.json"), listener)
    client.start()
    client.wait_joined(60)      # raises if the coordinator refused
    ...
    client.leave()

It has one thread. News about other sites arrives at the listener, from that thread. A site goes on with its fragments
whatever happens here; only a refusal that takes a person to change ends the attempts.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from meander.membership.fence import Fence, FencedError
from meander.membership.http_client import CoordinatorClient, RequestRefusedError, UnreachableError
from meander.membership.protocol import (
    CLOCK_MS,
    OLDEST_PROTOCOL,
    PROTOCOL,
    STANDBY_TERM,
    Admission,
    Code,
    Description,
    Epoch,
    Peer,
    SiteMeasures,
    not_spoken,
)
from meander.membership.votes import StandbyVotes
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.locks import condition

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
SLOW_S = 0.5
"""A registration that took longer says little about clocks: a refusal because of them is tried again."""


class MembershipListener:
    """The listener of a site. Override the methods of interest; a call should return soon."""

    def joined(self, membership: Admission) -> None:
        """The coordinator knows this site, for the first time or again."""

    def lost(self, reason: str) -> None:
        """The coordinator does not answer, or does not know this site any more; it is tried again."""

    def refused(self, error: RequestRefusedError) -> None:
        """The coordinator said no, and will say so again."""

    def peers(self, peers: Mapping[str, Peer]) -> None:
        """Called with the owners of all nodes, after they changed."""

    def heard(self, answer: Mapping[str, Any]) -> None:
        """A heartbeat was answered."""

    def measures(self) -> SiteMeasures:
        """The measures for the next heartbeat."""
        return SiteMeasures()


class MembershipClient:
    """One site's membership."""

    def __init__(
        self,
        asking: CoordinatorClient,
        description: Description,
        fence: Fence,
        listener: MembershipListener | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        directory: Path | None = None,
    ) -> None:
        """With a directory, it votes for standbys, and remembers there what has to be known for that."""
        self.description, self.fence = description, fence
        self._asking, self._listener, self._clock = asking, listener or MembershipListener(), clock
        self._membership: Admission | None = None
        self._last_session: str | None = None
        self._refused: RequestRefusedError | None = None
        self._changed = condition("membership client")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self._pause_s = FIRST_PAUSE_S
        self._protocol = PROTOCOL
        """The version that is spoken with the coordinator: an older one once that did not know the newest."""
        self._lost_told = self._clock_told = False
        self._heard_at = time.monotonic()
        self.votes: StandbyVotes | None = None
        if directory is not None:
            self.votes = StandbyVotes(fence, directory / "standby.json", lambda: self.silent_s)
            asking.learn(self.votes.coordinators)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops talking, without leaving: the coordinator will wait for this site until its session timeout ends."""
        self._ending.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._asking.close()

    @property
    def silent_s(self) -> float:
        """How long the coordinator was not heard of."""
        return time.monotonic() - self._heard_at

    @property
    def membership(self) -> Admission | None:
        """The present admission; None while the coordinator does not know this site."""
        return self._membership

    @property
    def protocol(self) -> int:
        """The version that is spoken with the coordinator."""
        return self._protocol

    def wait_joined(self, timeout_s: float) -> Admission:
        """Waits until the coordinator knows this site. Raises when it refuses, or when it takes too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._membership is None:
                if self._refused is not None:
                    raise self._refused
                left = deadline - time.monotonic()
                if left <= 0 or self._ending.is_set():
                    raise InputError(f"the coordinator at {self._asking.url} did not take this site in time; is it up?")
                self._changed.wait(left)
            return self._membership

    def drain(self) -> None:
        """Asks the coordinator to move operators away from this site."""
        self._say("POST", "drain", {"session": self._session(), **self._seen()})

    def leave(self) -> None:
        """Ends the membership at once and stops, also when the coordinator has lost sight of this site meanwhile.

        One that does not answer, asked again, finds out by itself.
        """
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        for last in (False, True) if self._last_session is not None and self._refused is None else ():
            try:
                self._say("DELETE", "", None, f"?session={quote(self._last_session or '')}")
                break
            except (UnreachableError, RequestRefusedError, FencedError) as error:
                if last:
                    _log.warning("left without the coordinator's knowledge: %s", error)
        self._set(None)
        self._asking.close()

    def _session(self) -> str:
        membership = self._membership
        if membership is None:
            raise UnreachableError("the coordinator does not know this site now")
        return membership.session

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._ending.is_set():
            membership = self._membership
            try:
                if membership is None:
                    wait_s = self._join()
                else:
                    self._beat(membership)
                    wait_s = membership.heartbeat_ms / 1000
                self._pause_s = FIRST_PAUSE_S
                self._lost_told = False
            except RequestRefusedError as error:
                if error.code is Code.PROTOCOL and membership is None and self._protocol > OLDEST_PROTOCOL:
                    self._protocol -= 1  # the coordinator may be of the version before
                    continue
                if not error.code.passes:
                    self._give_up(error)
                    return
                if error.code in (Code.EPOCH, Code.UNAVAILABLE):
                    self._asking.turn()  # a standby, or one that has become active, may be elsewhere
                if error.code is Code.SESSION:
                    self._protocol = PROTOCOL  # the coordinator may have been updated
                    self._set(None)
                self._lost(str(error))
                wait_s = 0.0 if error.code is Code.SESSION else self._back_off()
            except (UnreachableError, FencedError) as error:
                if isinstance(error, FencedError):
                    self._asking.turn()
                self._lost(str(error))
                wait_s = self._back_off()
            except Exception as error:  # such as a full disk that does not take a new epoch: this thread must not end
                _log.exception("keeping the membership of site %s failed; it is tried again", self.description.site)
                self._lost(f"{type(error).__name__}: {error}")
                wait_s = self._back_off()
            self._ending.wait(wait_s)

    def _join(self) -> float:
        """Registers; gives how long to wait before the first heartbeat."""
        mine = self.description
        body = {
            "protocol": self._protocol,
            "site": mine.site,
            "instance": mine.instance,
            "version": mine.version,
            "now_ms": self._clock(),
            "address": mine.address,
            **({"broker": mine.broker} if mine.broker else {}),
            "nodes": [dict(node) for node in mine.nodes],
            **self._seen(),
        }
        begun = time.monotonic()
        try:
            answer = self._asking.ask("POST", "/sites", body)
        except RequestRefusedError as error:
            if error.code is Code.CLOCK and time.monotonic() - begun > SLOW_S:
                raise UnreachableError(f"the coordinator is too slow to compare clocks ({error})") from None
            raise
        if answer["protocol"] != self._protocol:
            raise RequestRefusedError(Code.PROTOCOL, not_spoken(PROTOCOL, int(answer["protocol"])))
        self._accept(answer)
        found = Admission(
            str(answer["session"]),
            Epoch.of_json(answer),
            int(answer["heartbeat_ms"]),
            int(answer["session_timeout_ms"]),
            tuple(answer["nodes"]),
        )
        self._last_session = found.session
        self._set(found)
        _log.info("site %s joined with %s, epoch %d", mine.site, ", ".join(found.nodes), found.epoch.number)
        self._listener.joined(found)
        return 0.0

    def _beat(self, membership: Admission) -> None:
        measures = self._listener.measures().as_json()  # which may take a moment
        if self.votes is not None:
            measures["host"][STANDBY_TERM] = self.votes.term
        begun = time.monotonic()
        body = {
            "session": membership.session,
            "protocol": self._protocol,
            "now_ms": self._clock(),
            "measures": measures,
            **self._seen(),
        }
        answer = self._say("POST", "heartbeats", body)
        if time.monotonic() - begun < SLOW_S:
            self._compare_clocks(self._clock() - int(answer["now_ms"]))
        if answer.get("peers") is not None:
            self._listener.peers({n: Peer(p["site"], p["address"]) for n, p in answer["peers"].items()})
        if "standby" in answer:
            self._asking.learn(answer["standby"]["coordinators"])
            if self.votes is not None:
                self.votes.heard(answer["standby"])
        self._listener.heard(answer)
        if self._protocol < min(PROTOCOL, int(answer.get("speaks", 0))):  # the coordinator was updated
            self._protocol = PROTOCOL
            self._set(None)

    def _compare_clocks(self, ahead_ms: int) -> None:
        """Says once that the clock here is too far off; times are wrong until it is set."""
        if abs(ahead_ms) <= CLOCK_MS:
            self._clock_told = False
        elif not self._clock_told:
            self._clock_told = True
            _log.warning(
                "the clock here is %.1f s %s the coordinator's; event times of its tuples are wrong until it is set "
                "(NTP)", abs(ahead_ms) / 1000, "ahead of" if ahead_ms > 0 else "behind",
            )  # fmt: skip

    def _say(self, method: str, what: str, body: Any, query: str = "") -> Any:
        path = "/sites/" + quote(self.description.site, safe="") + (f"/{what}" if what else "") + query
        answer = self._asking.ask(method, path, body)
        self._accept(answer)
        return answer

    def _accept(self, answer: Mapping[str, Any]) -> None:
        self.fence.accept(Epoch.of_json(answer))
        self._heard_at = time.monotonic()

    def _seen(self) -> dict[str, Any]:
        newest = self.fence.newest
        return {"seen": None if newest is None else newest.as_json()}

    # ---------------------------------------------------------------- what happened

    def _set(self, membership: Admission | None) -> None:
        with self._changed:
            self._membership = membership
            self._changed.notify_all()

    def _give_up(self, error: RequestRefusedError) -> None:
        with self._changed:
            self._membership, self._refused = None, error
            self._changed.notify_all()
        _log.error("the coordinator refused site %s: %s", self.description.site, error)
        self._listener.refused(error)

    def _lost(self, reason: str) -> None:
        if not self._lost_told:
            self._lost_told = True
            _log.warning("site %s goes on without the coordinator: %s", self.description.site, reason)
            self._listener.lost(reason)

    def _back_off(self) -> float:
        """Longer each time, and not all sites at once."""
        wait_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return wait_s
