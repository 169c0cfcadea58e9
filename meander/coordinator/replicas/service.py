"""Everything about replicas that a coordinator has: made when its own host joins, at work with its core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meander.coordinator.core.core import Core
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.store import MemberRow
from meander.coordinator.own_site import OwnSite
from meander.coordinator.replicas.forgetting import SiteForget
from meander.coordinator.replicas.keeper_records import ReplicaLedger
from meander.coordinator.replicas.orders import ReplicaOrders
from meander.coordinator.replicas.played_nodes import PlayedNodes
from meander.coordinator.replicas.preferences import preferences
from meander.coordinator.replicas.reports import ReplicaReports
from meander.coordinator.replicas.restoring import SiteRestore, home_or_peer
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.membership.protocol import Description
from meander.model.clock import wall_clock_ms
from meander.model.resilience import Resilience
from meander.reconfigure.driver.driver import Driver
from meander.run.channels.flight.proof import FORMER


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
        self.told = ReplicaReports(self.supervisor.ledger, membership.roster, own.replicas)
        self._played = PlayedNodes(membership, self.supervisor.ledger)

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
        return {**found, "lags": [lag.as_json() for lag in self.told.lags(site)]}

    def problems(self) -> Mapping[str, tuple[str, ...]]:
        """The problems of sites with their replicas."""
        return {site: (problem,) for site, problem in list(self.supervisor.problems.items())}

    # ---------------------------------------------------------------- what the supervisor asks

    def sites(self) -> Sequence[MemberRow]:
        return self._membership.store.sites()

    def key(self, site: str) -> str | None:
        members = self._members
        return members.former_key(site) if members.protocol(site) <= FORMER else members.key(site)

    def preferences(self, sites: Sequence[str], *, senders: bool) -> Mapping[str, Sequence[str]]:
        if self._core is None:
            return {}
        return preferences(self._core, self._driver, self._membership.roster.claims, sites, senders=senders)

    def runs(self, site: str) -> bool:
        outbox = self._own.outbox
        return site in list(self._driver.sites.values()) or (outbox is not None and outbox.has_messages(site))

    def moved(self, site: str) -> None:
        self._own.joined(site)

    def refusal(self, site: str, keeper: str) -> str | None:
        return self.told.refusal(site, keeper)

    def play(self, site: str, keeper: str, nodes: Sequence[str]) -> None:
        self._played.play(self._ready_core(), site, keeper, nodes)

    def end_play(self, nodes: Sequence[str]) -> None:
        self._played.end_play(self._ready_core(), nodes)
