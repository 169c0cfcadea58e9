"""Membership: sites register, send heartbeats and leave; those without a heartbeat for too long are away.

Changes of the topology that follow go to the decision core as ordinary events. Durable facts are in the membership
store; the times of heartbeats are not, so a coordinator that starts again gives all sites the time to be heard of.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from meander.coordinator.core.commands import ANSWER_S
from meander.coordinator.core.core import Core
from meander.coordinator.membership import checks
from meander.coordinator.membership.audit_log import AuditEntry
from meander.coordinator.membership.events import MembershipEvents
from meander.coordinator.membership.leadership import Leadership
from meander.coordinator.membership.records import Heartbeat, MemberSite, MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.roster import CLOCK_BEATS, Roster
from meander.coordinator.membership.store import MemberRow, MembershipStore, Pass
from meander.coordinator.problems import not_found
from meander.coordinator.request_values import check_name
from meander.membership.protocol import HEARTBEAT_MS, PROTOCOL, SESSION_TIMEOUT_MS, Code, Description, Epoch
from meander.model.errors import InputError, unknown

_log = logging.getLogger(__name__)


class Membership:
    """The sites of one coordinator, from any thread."""

    def __init__(
        self,
        store: MembershipStore,
        epoch: Epoch,
        events: MembershipEvents,
        *,
        wall_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        heartbeat_ms: int = HEARTBEAT_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        on_step_down: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.store, self.heartbeat_ms, self.session_timeout_ms = store, heartbeat_ms, session_timeout_ms
        self.roster = Roster(store, monotonic)
        self._lock = self.roster.lock
        self.leadership = Leadership(store, epoch, self._lock, wall_ms, on_step_down)
        self.watchers: list[Callable[[str, MemberState], None]] = []
        """Called after the state of a site changed, from whichever thread changed it."""
        self.admission: Callable[[Description], None] = lambda said: None
        """Raises for sites that may not join now."""
        self.announced: Callable[[], Mapping[str, Any] | None] = lambda: None
        """The facts about the standby that sites have to know."""
        self.probe: Callable[[Sequence[str]], None] = lambda sites: None
        """Asks sites directly whether they listen to another coordinator."""
        self.events, self._wall_ms = events, wall_ms
        self._core: Core | None = None

    def ready(self, core: Core) -> None:
        """The decision core can be asked from now on; session timeout begins anew."""
        with self._lock:
            self._core = core
            gone = [site for site in self.roster.sites.values() if not site.state.is_present and site.nodes]
            for site in gone:  # the coordinator before this one may have ended in between
                self.events.go(core, site.nodes).add_done_callback(partial(self._gone, site))
        self.forgive()

    def _gone(self, site: MemberSite, done: Future[None]) -> None:
        """The nodes of a site that is not there are out of the topology, or could not be taken out."""
        try:
            done.result()
            with self._lock:
                if site.state is MemberState.LEFT:
                    self._clear(site)
        except InputError as error:
            _log.error("nodes of site %s could not be removed: %s", site.row.name, error)

    def forgive(self) -> None:
        """Counts all sites as heard of: it was this process that was not there."""
        with self._lock:
            self.roster.hear(self.roster.sites.values())

    # ---------------------------------------------------------------- what sites say

    def admit(self, token: str | None) -> Pass:
        """The owner of a token; requests without a valid one are refused."""
        found = self.store.pass_of(token) if token else None
        if found is None:
            text = "this token is not known" if token else "a site needs a token: send `Authorization: Bearer TOKEN`"
            raise SiteRefusedError(Code.TOKEN, f"{text}; make one with `meander site token create`")
        return found

    def register(self, given: Pass, said: Description, now_ms: int, seen: Epoch | None) -> dict[str, Any]:
        """Takes a site in, or says why not."""
        behind_ms = self._wall_ms() - now_ms
        try:
            self._check_may_act(given, said.site, seen)
            checks.check_nodes(given, said)
            checks.check_clock(said.site, behind_ms)
            self.admission(said)
            site, arriving = self._claim(self._ready_core(), said, behind_ms)
            try:
                self._wait(arriving)
            except InputError:
                self._let_go(site)
                raise
        except InputError as error:
            if not (isinstance(error, SiteRefusedError) and error.code is Code.UNAVAILABLE):
                self._note(given.site, "join", said.names, f"refused: {error}")
            raise
        with self._lock:
            site.joining = False
            self.roster.hear([site])
        self._tell(said.site, MemberState.HERE)
        terms = {
            "heartbeat_ms": self.heartbeat_ms,
            "session_timeout_ms": self.session_timeout_ms,
            "nodes": list(said.names),
        }
        return {"protocol": said.protocol, **self._answer(), "session": site.row.session, **terms}

    def heartbeat(self, given: Pass, name: str, said: Heartbeat, seen: Epoch | None) -> dict[str, Any]:
        """A site is heard of."""
        self._check_may_act(given, name, seen)
        with self._lock:
            site = self.roster.in_session(name, said.session)
            if said.protocol != site.row.protocol:  # one of us was updated meanwhile; they agree anew
                raise SiteRefusedError(Code.SESSION, f"site {name!r} speaks another version now; register again")
            foreign = sorted(set(said.measures.get("nodes", ())) - set(site.nodes))
            if foreign:
                raise SiteRefusedError(Code.NOT_YOURS, f"site {name!r} has no node {foreign[0]!r}; measure your own")
            site.measures = said.measures
            self.roster.hear([site])
            self._compare_clocks(site, self._wall_ms() - said.now_ms)
            return {
                **self._answer(),
                "state": site.state.value,
                "peers": self.roster.news(site),
                "speaks": PROTOCOL,
                **({"standby": told} if (told := self.announced()) else {}),
            }

    def _compare_clocks(self, site: MemberSite, behind_ms: int) -> None:
        """A clock that goes wrong while a site is there is told of; sending it away would not mend it."""
        site.row = replace(site.row, clock_ms=behind_ms)
        try:
            checks.check_clock(site.row.name, behind_ms)
            site.clock_off = 0
        except SiteRefusedError as error:
            site.clock_off += 1
            if site.clock_off == CLOCK_BEATS:
                _log.warning("%s", error)
                self._note(site.row.name, "clock", site.nodes, str(error))

    def drain(self, given: Pass, name: str, session: str, seen: Epoch | None) -> dict[str, Any]:
        """A site wants to leave when nothing runs there any more."""
        self._check_may_act(given, name, seen)
        core = self._ready_core()
        with self._lock:
            site = self.roster.in_session(name, session)
            changed = site.state is not MemberState.DRAINING
            if changed:
                self._save(site, MemberState.DRAINING, "drain")
            draining = self.events.drain(core, site.nodes)
        self._wait(draining)
        if changed:
            self._tell(name, MemberState.DRAINING)
        return {**self._answer(), "state": MemberState.DRAINING.value}

    def leave(self, given: Pass, name: str, session: str) -> dict[str, Any]:
        """A site is no member any more; its nodes are gone at once."""
        self._check_may_act(given, name, None)
        core = self._ready_core()
        with self._lock:
            site = self.roster.sites.get(name)
            if site is not None and site.state is not MemberState.LEFT and site.row.session != session:
                raise SiteRefusedError(
                    Code.SESSION, f"another session of site {name!r} is there; that one has to leave"
                )
        self._end(core, name, given.site, "leave")
        return {**self._answer(), "state": MemberState.LEFT.value}

    # ---------------------------------------------------------------- what operators say

    def release(self, name: str, who: str) -> None:
        """Takes a site's nodes from it: it is not expected to come back."""
        with self._lock:
            if name not in self.roster.sites:
                raise not_found(unknown("site", name, self.roster.sites))
        self._end(self._ready_core(), name, who, "release")

    def make_token(self, site: str, nodes: Sequence[str], who: str, *, renew: bool = False) -> str:
        check_name(site, "the site's name")
        for node in nodes:
            check_name(node, "a node's name")
        return self.store.make_token(site, nodes, self._wall_ms(), who, renew=renew)

    def revoke(self, site: str, who: str) -> None:
        """A token is good no more; if its site is there, its nodes go."""
        self.store.revoke(site, self._wall_ms(), who)
        with self._lock:
            known = site in self.roster.sites
        if known:
            self._end(self._ready_core(), site, who, "release")

    # ---------------------------------------------------------------- those that are not heard of

    def silent(self) -> list[str]:
        """Sites that are about to count as away."""
        with self._lock:
            return [site.row.name for site in self.roster.sites.values() if self._is_late(site)]

    def sweep(self) -> list[str]:
        """Sites that were not heard of for too long are away from now on; gives their names."""
        core = self._core
        if core is None or self.leadership.stepped_down:
            return []
        with self._lock:
            late = [site for site in self.roster.sites.values() if self._is_late(site)]
            going = [self._lose(core, site) for site in late]
        for site, done in zip(late, going, strict=True):
            try:
                self._wait(done)
            except InputError as error:
                _log.error("nodes of site %s could not be removed: %s", site.row.name, error)
            self._tell(site.row.name, MemberState.AWAY)
        return [site.row.name for site in late]

    def _is_late(self, site: MemberSite) -> bool:
        is_silent = self.roster.silent_ms(site) > self.session_timeout_ms
        return site.state.is_present and not site.joining and is_silent

    def _lose(self, core: Core, site: MemberSite) -> Future[None]:
        silent_s = self.roster.silent_ms(site) / 1000
        self._save(site, MemberState.AWAY, "away", f"not heard of for {silent_s:.1f} s")
        self.roster.changed()
        return self.events.go(core, site.nodes)

    # ---------------------------------------------------------------- changes

    def _check_may_act(self, given: Pass, site: str, seen: Epoch | None) -> None:
        """Raises unless this coordinator may act, and the site for itself."""
        checks.check_own(given, site)
        self.leadership.check_seen(seen)

    def _ready_core(self) -> Core:
        if self._core is None:
            raise SiteRefusedError(Code.UNAVAILABLE, "the coordinator is starting; try again in a moment")
        return self._core

    def _claim(self, core: Core, said: Description, behind_ms: int) -> tuple[MemberSite, Future[None]]:
        """Gives the site its nodes, unless another site has one of them; they are on their way into the topology."""
        roster = self.roster
        with self._lock:
            known = roster.sites.get(said.site)
            checks.check_alone(said, known, roster.silent_ms(known) if known else 0.0, self.session_timeout_ms)
            for node in said.names:
                owner = roster.owner(node)
                state = roster.sites[owner].state if owner in roster.sites else MemberState.AWAY
                checks.check_unclaimed(said.site, node, owner, state)
            now_ms = self._wall_ms()
            head = (said.site, MemberState.HERE.value, said.instance, secrets.token_hex(8))
            row = MemberRow(*head, said.address, said.version, now_ms, behind_ms, said.broker, said.protocol)
            with self.leadership.transaction():
                self.store.save_site(row)
                self.store.claim(said.site, said.names)
                self._note(said.site, "join", said.names)
            return roster.enter(row, said.names), self.events.come(core, said.nodes)

    def _let_go(self, site: MemberSite) -> None:
        """A site that could not be taken in has nothing."""
        with self._lock:
            if self.roster.is_current(site):
                self._save(site, MemberState.LEFT, "leave", "could not join")
                self._clear(site)

    def _end(self, core: Core, name: str, who: str, did: str) -> None:
        with self._lock:
            site = self.roster.sites.get(name)
            if site is None or (site.state is MemberState.LEFT and not site.nodes):
                return
            self._save(site, MemberState.LEFT, did, who=who)
            going = self.events.go(core, site.nodes)
        self._wait(going)
        with self._lock:
            self._clear(site)
        self._tell(name, MemberState.LEFT)

    def _clear(self, site: MemberSite) -> None:
        """Takes its nodes from a site, unless it has registered again."""
        if self.roster.is_current(site):
            with self.leadership.transaction():
                self.store.claim(site.row.name, ())
            self.roster.clear(site)

    def _save(
        self, site: MemberSite, state: MemberState, did: str, outcome: str = "done", who: str | None = None
    ) -> None:
        row = replace(site.row, state=state.value, since_ms=self._wall_ms())
        with self.leadership.transaction():
            self.store.save_site(row)
            self._note(who or site.row.name, did, site.nodes, outcome)
        site.row = row

    def _wait(self, done: Future[None]) -> None:
        with self.leadership.held():
            try:
                done.result(ANSWER_S)
            except TimeoutError:
                raise SiteRefusedError(Code.UNAVAILABLE, "the coordinator is busy; try again in a moment") from None

    # ---------------------------------------------------------------- small things

    def _answer(self) -> dict[str, Any]:
        """The fields that every answer has."""
        return {**self.leadership.epoch.as_json(), "now_ms": self._wall_ms()}

    def _note(self, who: str, did: str, nodes: Sequence[str], outcome: str = "done") -> None:
        self.store.audit.note(AuditEntry(self._wall_ms(), who, did, ", ".join(nodes), outcome))

    def _tell(self, site: str, state: MemberState) -> None:
        for watcher in list(self.watchers):
            try:
                watcher(site, state)
            except Exception:
                _log.exception("a watcher of sites failed")
