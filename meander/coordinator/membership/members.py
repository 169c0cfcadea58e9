"""Membership: the sites that are there, and the nodes that each of them runs.

Sites register, send heartbeats and leave; those without a heartbeat for too long are away. Changes of the topology that
follow go to the decision core as ordinary events. Durable facts are in the membership store; the times of heartbeats
are not, so a coordinator that starts again gives all sites the time to be heard of.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from meander.coordinator.core.commands import ANSWER_S
from meander.coordinator.core.core import Core
from meander.coordinator.epochs import SteppedDownError
from meander.coordinator.membership import checks
from meander.coordinator.membership.events import MembershipEvents
from meander.coordinator.membership.records import Heartbeat, MemberSite, MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import AuditEntry, MemberRow, MembershipStore, Pass
from meander.coordinator.problems import not_found
from meander.coordinator.values import check_name
from meander.membership.fence import refusal
from meander.membership.protocol import HEARTBEAT_MS, PROTOCOL, SESSION_TIMEOUT_MS, Code, Description, Epoch, Peer
from meander.model.errors import InputError, unknown
from meander.model.locks import reentrant_lock
from meander.run.reporting.host_report import HostReport

_log = logging.getLogger(__name__)
CLOCK_BEATS = 3
"""So many heartbeats in a row with a wrong time mean a wrong clock."""
PEERS_S = 0.5
"""The list of peers is made anew at most so often."""


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
        self.store, self.epoch, self.heartbeat_ms, self.session_timeout_ms = (
            store,
            epoch,
            heartbeat_ms,
            session_timeout_ms,
        )
        self.watchers: list[Callable[[str, MemberState], None]] = []
        """Called after the state of a site changed, from whichever thread changed it."""
        self.admission: Callable[[Description], None] = lambda said: None
        """Raises for sites that may not join now."""
        self.stepped_down: str | None = None
        self._events, self._wall_ms, self._monotonic, self._on_step_down = events, wall_ms, monotonic, on_step_down
        self._lock = reentrant_lock("members")
        self._core: Core | None = None
        self._claims = store.claims()
        now = monotonic()
        self._sites = {row.name: MemberSite(row, self._nodes_of(row.name), now) for row in store.sites()}
        self._peers_version, self._peers_made, self._peers_at = 0, -1, -PEERS_S
        self._peers_shown: dict[str, Any] = {}

    def ready(self, core: Core) -> None:
        """The decision core can be asked from now on; session timeout begins anew."""
        with self._lock:
            self._core = core
            gone = [site for site in self._sites.values() if not site.state.is_present and site.nodes]
            for site in gone:  # the coordinator before this one may have ended in between
                self._events.go(core, site.nodes).add_done_callback(partial(self._gone, site))
        self.forgive()

    def _gone(self, site: MemberSite, done: Future[None]) -> None:
        """The nodes of a site that is not there are out of the topology, or could not be taken out."""
        try:
            done.result()
            with self._lock:
                if site.state is MemberState.LEFT and self._sites.get(site.row.name) is site:
                    self._forget_claims(site)
        except InputError as error:
            _log.error("nodes of site %s could not be removed: %s", site.row.name, error)

    def forgive(self) -> None:
        """Counts all sites as heard of: it was this process that was not there."""
        now = self._monotonic()
        with self._lock:
            for site in self._sites.values():
                site.heard = now

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
                self._note(given.site, "join", ", ".join(said.names), f"refused: {error}")
            raise
        with self._lock:
            site.joining, site.heard = False, self._monotonic()
        self._tell(said.site, MemberState.HERE)
        terms = {
            "heartbeat_ms": self.heartbeat_ms,
            "session_timeout_ms": self.session_timeout_ms,
            "nodes": list(said.names),
        }
        return {"protocol": PROTOCOL, **self._answer(), "session": site.row.session, **terms}

    def heartbeat(self, given: Pass, name: str, said: Heartbeat, seen: Epoch | None) -> dict[str, Any]:
        """A site is heard of."""
        self._check_may_act(given, name, seen)
        with self._lock:
            site = self._in_session(name, said.session)
            if said.protocol != PROTOCOL:  # one of us was updated meanwhile; it hears so when it registers
                raise SiteRefusedError(Code.SESSION, f"site {name!r} speaks another version now; register again")
            foreign = sorted(set(said.measures.get("nodes", ())) - set(site.nodes))
            if foreign:
                raise SiteRefusedError(Code.NOT_YOURS, f"site {name!r} has no node {foreign[0]!r}; measure your own")
            site.heard, site.measures = self._monotonic(), said.measures
            self._compare_clocks(site, self._wall_ms() - said.now_ms)
            version, peers = self._peers()
            news = None if site.told_peers == version else peers
            site.told_peers = version
            return {**self._answer(), "state": site.state.value, "peers": news}

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
                self._note(site.row.name, "clock", ", ".join(site.nodes), str(error))

    def drain(self, given: Pass, name: str, session: str, seen: Epoch | None) -> dict[str, Any]:
        """A site wants to leave when nothing runs there any more."""
        self._check_may_act(given, name, seen)
        core = self._ready_core()
        with self._lock:
            site = self._in_session(name, session)
            changed = site.state is not MemberState.DRAINING
            if changed:
                self._save(site, MemberState.DRAINING, "drain")
            draining = self._events.drain(core, site.nodes)
        self._wait(draining)
        if changed:
            self._tell(name, MemberState.DRAINING)
        return {**self._answer(), "state": MemberState.DRAINING.value}

    def leave(self, given: Pass, name: str, session: str) -> dict[str, Any]:
        """A site is no member any more; its nodes are gone at once."""
        self._check_may_act(given, name, None)
        core = self._ready_core()
        with self._lock:
            site = self._sites.get(name)
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
            if name not in self._sites:
                raise not_found(unknown("site", name, self._sites))
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
            known = site in self._sites
        if known:
            self._end(self._ready_core(), site, who, "release")

    # ---------------------------------------------------------------- looking

    def owner(self, node: str) -> str | None:
        """The site that a node belongs to, wherever it is now."""
        return self._claims.get(node)

    @property
    def claims(self) -> Mapping[str, str]:
        """Sites by node."""
        return self._claims

    def peer(self, node: str) -> Peer | None:
        """The site that runs a node's fragments, if it is there."""
        with self._lock:
            site = self._sites.get(self._claims.get(node, ""))
            return Peer(site.row.name, site.row.address) if site is not None and site.state.is_present else None

    def shown(self) -> list[dict[str, Any]]:
        """All sites, also those that have a token and were never here."""
        with self._lock:
            found = {name: site.shown(self._monotonic()) for name, site in self._sites.items()}
        for given in self.store.passes():
            found.setdefault(given.site, {"site": given.site, "state": "expected", "nodes": list(given.nodes)})
        return [found[name] for name in sorted(found)]

    def present(self) -> list[str]:
        """The sites that are there now."""
        with self._lock:
            return sorted(name for name, site in self._sites.items() if site.state.is_present)

    def reports(self) -> dict[str, HostReport]:
        """The host reports of all sites that are there, from their last heartbeats."""
        with self._lock:
            said = {name: site.measures.get("host") for name, site in self._sites.items() if site.state.is_present}
        return {name: HostReport.of_json(host) for name, host in said.items() if isinstance(host, Mapping)}

    def troubles(self) -> dict[str, tuple[str, ...]]:
        """The problems of sites: those that they report, and members that are away."""
        found = {name: report.problems for name, report in self.reports().items()}
        with self._lock:
            away = [(name, site) for name, site in self._sites.items() if site.state is MemberState.AWAY]
            wrong = [name for name, site in self._sites.items() if site.clock_off >= CLOCK_BEATS]
        for name, _ in away:
            found[name] = (f"it is away; if it is not to come back, `meander site release {name}`",)
        for name in wrong:
            found[name] = (*found.get(name, ()), "its clock is wrong")
        return {name: problems for name, problems in sorted(found.items()) if problems}

    def absent_owner(self, node: str) -> str | None:
        """The site that runs a node and is not there: the node comes back with it."""
        with self._lock:
            site = self._sites.get(self._claims.get(node, ""))
            return None if site is None or site.state.is_present else site.row.name

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """The last facts about their processes from the sites that are there now."""
        with self._lock:
            here = [(name, site) for name, site in self._sites.items() if site.state.is_present]
            return {name: site.measures.get("host", {}) for name, site in here}

    def counts(self) -> Counter[MemberState]:
        """The number of sites in each state."""
        with self._lock:
            return Counter(site.state for site in self._sites.values())

    def site(self, name: str) -> dict[str, Any]:
        found = {each["site"]: each for each in self.shown()}
        if name not in found:
            raise not_found(unknown("site", name, found))
        return found[name]

    # ---------------------------------------------------------------- those that are not heard of

    def sweep(self) -> list[str]:
        """Sites that were not heard of for too long are away from now on; gives their names."""
        core = self._core
        if core is None or self.stepped_down:
            return []
        with self._lock:
            late = [site for site in self._sites.values() if self._is_late(site)]
            going = [self._lose(core, site) for site in late]
        for site, done in zip(late, going, strict=True):
            try:
                self._wait(done)
            except InputError as error:
                _log.error("nodes of site %s could not be removed: %s", site.row.name, error)
            self._tell(site.row.name, MemberState.AWAY)
        return [site.row.name for site in late]

    def _is_late(self, site: MemberSite) -> bool:
        return site.state.is_present and not site.joining and self._silent_ms(site) > self.session_timeout_ms

    def _silent_ms(self, site: MemberSite) -> float:
        return (self._monotonic() - site.heard) * 1000

    def _lose(self, core: Core, site: MemberSite) -> Future[None]:
        self._save(site, MemberState.AWAY, "away", f"not heard of for {self._silent_ms(site) / 1000:.1f} s")
        self._peers_version += 1
        return self._events.go(core, site.nodes)

    def check_epoch(self) -> None:
        """Steps down when another coordinator has begun on this directory."""
        try:
            self.store.check_epoch(self.epoch)
        except SteppedDownError as error:
            self.step_down(str(error))

    def step_down(self, reason: str) -> None:
        """Acts no more: another coordinator does."""
        with self._lock:
            if self.stepped_down is not None:
                return
            self.stepped_down = reason
        _log.error("stepping down: %s", reason)
        self._note("coordinator", "step down", f"epoch {self.epoch.number}", reason)
        self._on_step_down(reason)

    # ---------------------------------------------------------------- checks

    def _check_may_act(self, given: Pass, site: str, seen: Epoch | None) -> None:
        """Raises unless this coordinator may act, and the site for itself."""
        if self.stepped_down is not None:
            raise SiteRefusedError(Code.EPOCH, self.stepped_down)
        checks.check_own(given, site)
        if seen is None or seen == self.epoch or seen.number < self.epoch.number:
            return
        if not self.store.is_genuine(seen):
            raise SiteRefusedError(
                Code.INPUT, "the site's directory belongs to another coordinator; join with a fresh directory"
            )
        reason = refusal(seen, self.epoch)
        self.step_down(reason)
        raise SiteRefusedError(Code.EPOCH, reason)

    def _in_session(self, name: str, session: str) -> MemberSite:
        site = self._sites.get(name)
        if site is None or not site.state.is_present or site.row.session != session:
            raise SiteRefusedError(Code.SESSION, f"site {name!r} has no such session any more; register again")
        return site

    def _ready_core(self) -> Core:
        if self._core is None:
            raise SiteRefusedError(Code.UNAVAILABLE, "the coordinator is starting; try again in a moment")
        return self._core

    # ---------------------------------------------------------------- changes

    def _claim(self, core: Core, said: Description, behind_ms: int) -> tuple[MemberSite, Future[None]]:
        """Gives the site its nodes, unless another site has one of them; they are on their way into the topology."""
        with self._lock:
            known = self._sites.get(said.site)
            checks.check_alone(said, known, self._silent_ms(known) if known else 0.0, self.session_timeout_ms)
            for node in said.names:
                owner = self._claims.get(node)
                state = self._sites[owner].state if owner in self._sites else MemberState.AWAY
                checks.check_unclaimed(said.site, node, owner, state)
            now_ms = self._wall_ms()
            head = (said.site, MemberState.HERE.value, said.instance, secrets.token_hex(8))
            row = MemberRow(*head, said.address, said.version, now_ms, behind_ms, said.broker)
            with self._acting():
                self.store.save_site(row)
                self.store.claim(said.site, said.names)
                self.store.note(AuditEntry(now_ms, said.site, "join", ", ".join(said.names)))
            self._take_claims(said.site, said.names)
            site = self._sites[said.site] = MemberSite(row, tuple(said.names), self._monotonic(), joining=True)
            self._peers_version += 1
            return site, self._events.come(core, said.nodes)

    def _let_go(self, site: MemberSite) -> None:
        """A site that could not be taken in has nothing."""
        with self._lock:
            if self._sites.get(site.row.name) is site:
                self._save(site, MemberState.LEFT, "leave", "could not join")
                self._forget_claims(site)

    def _end(self, core: Core, name: str, who: str, did: str) -> None:
        with self._lock:
            site = self._sites.get(name)
            if site is None or (site.state is MemberState.LEFT and not site.nodes):
                return
            self._save(site, MemberState.LEFT, did, who=who)
            going = self._events.go(core, site.nodes)
        self._wait(going)
        with self._lock:
            if self._sites.get(name) is site:
                self._forget_claims(site)
        self._tell(name, MemberState.LEFT)

    def _forget_claims(self, site: MemberSite) -> None:
        with self._acting():
            self.store.claim(site.row.name, ())
        self._take_claims(site.row.name, ())
        site.nodes = ()
        self._peers_version += 1

    def _take_claims(self, site: str, nodes: Sequence[str]) -> None:
        """A site has these nodes and no others; at once, as others look without the lock."""
        others = {node: owner for node, owner in self._claims.items() if owner != site}
        self._claims = others | dict.fromkeys(nodes, site)

    def _save(
        self, site: MemberSite, state: MemberState, did: str, outcome: str = "done", who: str | None = None
    ) -> None:
        now_ms = self._wall_ms()
        row = replace(site.row, state=state.value, since_ms=now_ms)
        with self._acting():
            self.store.save_site(row)
            self.store.note(AuditEntry(now_ms, who or site.row.name, did, ", ".join(site.nodes), outcome))
        site.row = row

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """A transaction that only the newest coordinator can make; any other one steps down."""
        try:
            with self.store.transaction(self.epoch):
                yield
        except SteppedDownError as error:
            self.step_down(str(error))
            raise SiteRefusedError(Code.EPOCH, str(error)) from None

    def _wait(self, done: Future[None]) -> None:
        try:
            done.result(ANSWER_S)
        except TimeoutError:
            raise SiteRefusedError(Code.UNAVAILABLE, "the coordinator is busy; try again in a moment") from None
        except SteppedDownError as error:
            self.step_down(str(error))
            raise SiteRefusedError(Code.EPOCH, str(error)) from None

    # ---------------------------------------------------------------- small things

    def _answer(self) -> dict[str, Any]:
        """The fields that every answer has."""
        return {**self.epoch.as_json(), "now_ms": self._wall_ms()}

    def _nodes_of(self, site: str) -> tuple[str, ...]:
        return tuple(node for node, owner in self._claims.items() if owner == site)

    def _peers(self) -> tuple[int, dict[str, Any]]:
        """The list of sites and their nodes, which all sites share, and its number."""
        now = self._monotonic()
        if self._peers_made != self._peers_version and now - self._peers_at >= PEERS_S:
            self._peers_shown = {
                node: {"site": site.row.name, "address": site.row.address}
                for site in self._sites.values()
                if site.state.is_present
                for node in site.nodes
            }
            self._peers_made, self._peers_at = self._peers_version, now
        return self._peers_made, self._peers_shown

    def _note(self, who: str, did: str, about: str, outcome: str) -> None:
        self.store.note(AuditEntry(self._wall_ms(), who, did, about, outcome))

    def _tell(self, site: str, state: MemberState) -> None:
        for watcher in list(self.watchers):
            try:
                watcher(site, state)
            except Exception:
                _log.exception("a watcher of sites failed")
