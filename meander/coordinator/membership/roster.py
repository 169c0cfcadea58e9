"""The roster: the sites that registered, the nodes that each has claimed, and what was last heard of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meander.coordinator.membership.records import MemberSite, MemberState
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import MemberRow, MembershipStore
from meander.coordinator.problems import not_found
from meander.membership.protocol import Code
from meander.model.errors import unknown
from meander.model.locks import reentrant_lock
from meander.run.reporting.host_report import HostReport

CLOCK_BEATS = 3
"""So many heartbeats in a row with a wrong time mean a wrong clock."""
PEERS_S = 0.5
"""The list of peers is made anew at most so often."""


class Roster:
    """All sites of a coordinator, for any thread; who changes it holds its lock."""

    def __init__(self, store: MembershipStore, monotonic: Callable[[], float]) -> None:
        self.lock = reentrant_lock("members")
        self._store, self._monotonic = store, monotonic
        self._claims = store.claims()
        self.sites = {
            row.name: MemberSite(row, tuple(n for n, owner in self._claims.items() if owner == row.name), monotonic())
            for row in store.sites()
        }
        self._peers_version, self._peers_made, self._peers_at = 0, -1, -PEERS_S
        self._peers_shown: dict[str, Any] = {}

    # ---------------------------------------------------------------- changing

    def enter(self, row: MemberRow, nodes: Iterable[str]) -> MemberSite:
        """A site is there, with these nodes and no others; they are on their way into the topology."""
        site = self.sites[row.name] = MemberSite(row, tuple(nodes), self._monotonic(), joining=True)
        self._claim(row.name, site.nodes)
        return site

    def clear(self, site: MemberSite) -> None:
        """A site has nothing any more."""
        self._claim(site.row.name, ())
        site.nodes = ()

    def changed(self) -> None:
        """The peers have to hear of it: a site came or went."""
        self._peers_version += 1

    def _claim(self, site: str, nodes: Iterable[str]) -> None:
        """At once, as others look without the lock."""
        others = {node: owner for node, owner in self._claims.items() if owner != site}
        self._claims = others | dict.fromkeys(nodes, site)
        self.changed()

    # ---------------------------------------------------------------- one site

    def in_session(self, name: str, session: str) -> MemberSite:
        """The site that registered and got this session."""
        site = self.sites.get(name)
        if site is None or not site.state.is_present or site.row.session != session:
            raise SiteRefusedError(Code.SESSION, f"site {name!r} has no such session any more; register again")
        return site

    def is_current(self, site: MemberSite) -> bool:
        """Whether no newer one of its name registered."""
        return self.sites.get(site.row.name) is site

    def silent_ms(self, site: MemberSite) -> float:
        return (self._monotonic() - site.heard) * 1000

    def hear(self, sites: Iterable[MemberSite]) -> None:
        """These sites are heard of now."""
        for site in sites:
            site.heard = self._monotonic()

    def owner(self, node: str) -> str | None:
        """The site that a node belongs to, wherever it is now."""
        return self._claims.get(node)

    @property
    def claims(self) -> Mapping[str, str]:
        """Sites by node."""
        return self._claims

    def absent_owner(self, node: str) -> str | None:
        """The site that runs a node and is not there: the node comes back with it."""
        with self.lock:
            site = self.sites.get(self._claims.get(node, ""))
            return None if site is None or site.state.is_present else site.row.name

    def news(self, site: MemberSite) -> dict[str, Any] | None:
        """The list of sites and their nodes, which all sites share; None when the site knows the newest."""
        now = self._monotonic()
        if self._peers_made != self._peers_version and now - self._peers_at >= PEERS_S:
            self._peers_shown = {
                node: {"site": each.row.name, "address": each.row.address}
                for each in self._present()
                for node in each.nodes
            }
            self._peers_made, self._peers_at = self._peers_version, now
        if site.told_peers == self._peers_made:
            return None
        site.told_peers = self._peers_made
        return self._peers_shown

    # ---------------------------------------------------------------- all sites

    def shown(self) -> list[dict[str, Any]]:
        """All sites, also those that have a token and were never here."""
        with self.lock:
            found = {name: site.shown(self._monotonic()) for name, site in self.sites.items()}
        for given in self._store.passes():
            found.setdefault(given.site, {"site": given.site, "state": "expected", "nodes": list(given.nodes)})
        return [found[name] for name in sorted(found)]

    def site(self, name: str) -> dict[str, Any]:
        """One of them."""
        found = {each["site"]: each for each in self.shown()}
        if name not in found:
            raise not_found(unknown("site", name, found))
        return found[name]

    def members(self) -> list[str]:
        """The sites that are there or may come back."""
        with self.lock:
            return sorted(site.row.name for site in self.sites.values() if site.state is not MemberState.LEFT)

    def present(self) -> list[str]:
        """The sites that are there now."""
        with self.lock:
            return sorted(site.row.name for site in self._present())

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """The last facts about their processes from the sites that are there now."""
        with self.lock:
            return {site.row.name: site.measures.get("host", {}) for site in self._present()}

    def reports(self) -> dict[str, HostReport]:
        """The host reports of all sites that are there, from their last heartbeats."""
        with self.lock:
            said = {site.row.name: site.measures.get("host") for site in self._present()}
        return {name: HostReport.of_json(host) for name, host in said.items() if isinstance(host, Mapping)}

    def counts(self) -> Counter[MemberState]:
        """The number of sites in each state."""
        with self.lock:
            return Counter(site.state for site in self.sites.values())

    def troubles(self) -> dict[str, tuple[str, ...]]:
        """The problems of sites: those that they report, and members that are away."""
        found = {name: report.problems for name, report in self.reports().items()}
        with self.lock:
            sites = dict(self.sites)
        for name, site in sites.items():
            if site.state is MemberState.AWAY:
                found[name] = (f"it is away; if it is not to come back, `meander site forget {name}`",)
            if site.clock_off >= CLOCK_BEATS:
                found[name] = (*found.get(name, ()), "its clock is wrong")
        return {name: problems for name, problems in sorted(found.items()) if problems}

    def _present(self) -> Iterable[MemberSite]:
        return (site for site in self.sites.values() if site.state.is_present)
