"""Everything about replicas that a coordinator has: made when its own host joins, at work with its core.

How replicas are doing is said by those who know: sites about the keepers of their own stores, keepers about replicas
that they keep and that run there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from meander.coordinator.core.commands import ANSWER_S, Answer, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.store import MemberRow
from meander.coordinator.own_site import OwnSite
from meander.coordinator.replicas.assignment import node_of, senders_to, towards_cloud
from meander.coordinator.replicas.forgetting import SiteForget
from meander.coordinator.replicas.lags import KeeperLag, Kept, lagging, lags_of, mapping, refusal_of
from meander.coordinator.replicas.ledger import ReplicaLedger
from meander.coordinator.replicas.orders import ReplicaOrders
from meander.coordinator.replicas.restoring import SiteRestore, home_or_peer
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.membership.protocol import Description
from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError
from meander.model.resilience import Resilience
from meander.reconfigure.driver.driver import Driver
from meander.run.channels.flight.proof import HOME
from meander.run.reporting.host_report import HostReport

_log = logging.getLogger(__name__)


class ReplicaService:
    """Implements `CoordinatorFacts`."""

    def __init__(
        self, driver: Driver, membership: Membership, members: MemberFleet, own: OwnSite, settings: Resilience
    ) -> None:
        assert own.replicas is not None
        self._driver, self._membership, self._members, self._own = driver, membership, members, own
        self._core: Core | None = None
        orders = ReplicaOrders(own.clients, own.replicas.orders)
        self.supervisor = ReplicaSupervisor(
            ReplicaLedger(driver.host.store), orders, members, self, settings, wall_ms=wall_clock_ms
        )
        self._returning = SiteRestore(
            self.supervisor, lambda keeper, site: home_or_peer(own.clients.peers_of(site), keeper)
        )
        self._forget = SiteForget(self.supervisor, membership, driver, own.replicas, self._ready_core)
        membership.admission = self._check
        membership.events.played = frozenset(n for r in self.supervisor.ledger.all().values() for n in r.nodes)

    def ready(self, core: Core) -> None:
        """Sites can be looked after from now on."""
        assert self._own.replicas is not None
        self._core = core
        self._own.replicas.recover()
        self.supervisor.start()

    def _ready_core(self) -> Core:
        assert self._core is not None, "sites are not looked after yet"
        return self._core

    def stop(self) -> None:
        self.supervisor.stop()

    # ---------------------------------------------------------------- sites that come

    def restore(self, site: str, instance: str) -> Mapping[str, Any] | None:
        """Where a site that starts gets its store from; None if it has it."""
        return self._returning.restore(site, instance)

    def _check(self, said: Description) -> None:
        self._returning.check(said.site, said.instance)

    def joined(self, site: str) -> None:
        row = next((r for r in self.sites() if r.name == site), None)
        if row is not None:
            self._returning.joined(site, row.instance)

    # ---------------------------------------------------------------- what users ask

    def forget(self, site: str, who: str) -> Mapping[str, Any]:
        """Gives a site up."""
        return self._forget.forget(site, who)

    def shown(self, site: str) -> Mapping[str, Any] | None:
        found = self.supervisor.shown(site)
        if found is None:
            return None
        return {**found, "lags": [lag.as_json() for lag in self._lags(site)]}

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """The facts about replicas that run in place of sites, as their keepers tell them, by site."""
        found: dict[str, Mapping[str, Any]] = {}
        for keeper, kept in self._kept().items():
            for site, status in kept.items():
                if report := mapping(mapping(status).get("report")):
                    found[site] = {**report, "stands_in": keeper}
        return found

    def reports(self) -> dict[str, HostReport]:
        """The reports of sites that are there, and of replicas that run in place of others, with how replicas do."""
        stand_ins = {site: HostReport.of_json(facts) for site, facts in self.facts().items()}
        found = {**self._membership.roster.reports(), **stand_ins}
        return {site: replace(report, lagging=lagging(site, self._lags(site))) for site, report in found.items()}

    def _kept(self) -> dict[str, Kept]:
        """What keepers say about the replicas that they keep, by keeper and site."""
        assert self._own.replicas is not None
        told = {keeper: mapping(facts.get("replicas")) for keeper, facts in self._membership.roster.facts().items()}
        return {**told, HOME: self._own.replicas.status(with_reports=True)}

    def _lags(self, site: str) -> list[KeeperLag]:
        own = {**self._membership.roster.facts(), **self.facts()}.get(site, {})
        return lags_of(self.supervisor.ledger.of(site), mapping(own.get("replication")), self._kept())

    def problems(self) -> Mapping[str, tuple[str, ...]]:
        """The problems of sites with their replicas."""
        return {site: (problem,) for site, problem in list(self.supervisor.problems.items())}

    # ---------------------------------------------------------------- what the supervisor asks

    def sites(self) -> Sequence[MemberRow]:
        return self._membership.store.sites()

    def key(self, site: str) -> str | None:
        return self._members.key(site)

    def preferences(self, sites: Sequence[str], *, senders: bool) -> Mapping[str, Sequence[str]]:
        core = self._core
        if core is None:
            return {}

        def found(core: Core) -> Answer:
            loop, owner = core.loop, self._membership.roster.claims
            liked: dict[str, list[str]] = {}
            for site in sites:
                if senders:
                    liked[site] = senders_to(loop.deployer.deployment, site, self._driver.sites)
                else:
                    nodes = [node for node, other in owner.items() if other == site]
                    liked[site] = towards_cloud(loop.catalog.topology, nodes, owner)
            return HTTPStatus.OK, liked

        try:
            answer: dict[str, list[str]] = core.ask(CoreTask(found)).result(ANSWER_S)[1]
        except (InputError, NotInTime):
            return {}
        return answer

    def runs(self, site: str) -> bool:
        outbox = self._own.outbox
        return site in list(self._driver.sites.values()) or (outbox is not None and outbox.is_owed(site))

    def moved(self, site: str) -> None:
        self._own.joined(site)

    def refusal(self, site: str, keeper: str) -> str | None:
        own = {**self._membership.roster.facts(), **self.facts()}.get(site, {})
        return refusal_of(self._kept().get(keeper, {}).get(site), mapping(own.get("replication")).get(keeper))

    def play(self, site: str, keeper: str, nodes: Sequence[str]) -> None:
        core, events, claims = self._ready_core(), self._membership.events, self._membership.roster.claims
        mine = [node for node in nodes if claims.get(node) == site]

        def beside(core: Core) -> Answer:
            return HTTPStatus.OK, node_of(core.loop.catalog.topology, keeper, claims, events.played)

        try:
            node = core.ask(CoreTask(beside)).result(ANSWER_S)[1]
            if mine and node is not None:
                events.play(core, mine, node).result(ANSWER_S)
        except (InputError, NotInTime) as error:
            _log.warning("%s of site %s cannot be there beside %s: %s", ", ".join(mine), site, keeper, error)

    def end_play(self, nodes: Sequence[str]) -> None:
        try:
            self._membership.events.end_play(self._ready_core(), nodes).result(ANSWER_S)
        except (InputError, NotInTime) as error:
            _log.warning("%s could not be taken out of the topology: %s", ", ".join(nodes), error)
