"""Giving up a site whose directory is lost for good: what ran there goes on elsewhere or can be stopped, and it ends.

From a replica, if one can go on. Without any, the site begins anew with nothing: other sites know how far its channels
are, so that its fragments go on behind what was lost, which is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from meander.coordinator.core.commands import ANSWER_S, Answer, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import MemberState
from meander.coordinator.problems import conflict, not_found
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.deploy.contexts import reconfiguration
from meander.deploy.fragments import DeploymentChange
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId, NodeId
from meander.model.operators import STATEFUL, Sink, Source, describe
from meander.reconfigure.agent.positions import ChannelPosition, positions_of
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.replicas.lost_site import LostSite
from meander.reconfigure.replicas.replicas import Replicas
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME
from meander.run.fragments.retained import with_former
from meander.run.store.records.replicas import KeepersRecord


class SiteForget:
    """From any thread, once the core is there."""

    def __init__(
        self,
        supervisor: ReplicaSupervisor,
        membership: Membership,
        driver: Driver,
        own: Replicas,
        core: Callable[[], Core],
    ) -> None:
        self._supervisor, self._membership, self._driver, self._own, self._core = (
            supervisor,
            membership,
            driver,
            own,
            core,
        )

    def forget(self, site: str, who: str) -> dict[str, Any]:
        """Gives a site up; says where what ran there goes on, and what is lost."""
        supervisor = self._supervisor
        rows = {row.name: row for row in supervisor.around.sites()}
        if site not in rows:
            raise not_found(unknown("site", site, rows))
        if MemberState(rows[site].state).is_present:
            raise conflict(f"site {site!r} is here; stop it first, or let it leave, which moves what can run elsewhere")
        lost: list[str] = []
        if not supervisor.ledger.of(site).is_forgotten:
            present = {name for name, row in rows.items() if MemberState(row.state).is_present}
            lost = self._lost_nodes(site)
            goes_on = site in supervisor.stand_ins or not supervisor.around.runs(site)
            if not goes_on and not supervisor.take_over(site, present):
                lost += self._begin_anew(site)
            record = supervisor.ledger.of(site)
            supervisor.ledger.save(replace(record, is_forgotten=True, restoring=rows[site].instance))
            supervisor.problems.pop(site, None)
            self._membership.release(site, who)
        return {"site": site, "goes_on_at": supervisor.ledger.of(site).stands_in or None, "lost": lost}

    # ---------------------------------------------------------------- without any replica

    def _begin_anew(self, site: str) -> list[str]:
        """Lets a site begin with nothing at the coordinator's own host; says what is lost."""
        supervisor, key = self._supervisor, self._supervisor.around.key(site)
        if key is None:
            raise conflict(f"site {site!r} has no token any more; make one with `meander site token create` first")
        part, ends, lost = self._ask(lambda core: self._known(core, site))
        found = dict[ChannelId, ChannelPosition]()
        for other, channels in ends.items():
            found |= self._positions(other, channels)
        self._own.begin_anew(site, key, LostSite(part, found))
        record = supervisor.ledger.of(site)
        supervisor.ledger.save(KeepersRecord(site, {}, record.term, stands_in=HOME))
        if not supervisor.stand_in(supervisor.ledger.of(site)):
            raise conflict(supervisor.problems.get(site, f"site {site!r} could not begin anew"))
        return list(lost)

    def _known(self, core: Core, site: str) -> Answer:
        """What is known of a site: its fragments as a change that begins them, and where its channels end elsewhere."""
        deployment, sites = core.loop.deployer.deployment, self._driver.sites
        plan = with_former(core.loop.catalog.plan)
        fragments = {f: each for f, each in deployment.fragments.items() if sites.get(f) == site}
        channels = {k: c for k, c in deployment.channels.items() if {c.sender, c.receiver} & fragments.keys()}
        change = DeploymentChange({}, fragments, {}, channels)
        parts = self._driver.participants.parts_again(reconfiguration(0, change, plan), deployment, plan)
        ends: dict[str, list[ChannelId]] = {}
        for channel in channels.values():
            other = next((f for f in (channel.sender, channel.receiver) if f not in fragments), None)
            if other is not None:
                ends.setdefault(sites.get(other, HOME), []).append(channel.id)
        stateful = [o for f in fragments.values() for o in f.operators if isinstance(plan[o].spec, STATEFUL)]
        lost = [f"the state of operator {o} ({describe(plan[o].spec)})" for o in stateful]
        if fragments:
            lost.append(f"tuples on their way inside site {site}, and results that had not left it")
        return HTTPStatus.OK, (parts[site], ends, lost)

    def _positions(self, other: str, channels: list[ChannelId]) -> dict[ChannelId, ChannelPosition]:
        if other == HOME:
            found = positions_of(self._driver.host.store, channels)
        else:
            try:
                found = self._supervisor.orders.ask(other, "positions", {"channels": channels})
            except (AwayError, InputError) as error:
                raise conflict(f"site {other!r}, at the other end of its channels, has to be there: {error}") from None
        return {ChannelId(int(c)): ChannelPosition(*at) for c, at in found.items()}

    # ---------------------------------------------------------------- what goes with its nodes

    def _lost_nodes(self, site: str) -> list[str]:
        """The sources and sinks on the nodes of a site, which nobody has any more."""

        def found(core: Core) -> Answer:
            topology, plan = core.loop.catalog.topology, core.loop.catalog.plan
            claims = self._membership.roster.claims
            nodes = {n for n in range(len(topology.nodes.alive)) if claims.get(topology.name(NodeId(n))) == site}
            lost: list[str] = []
            for operator, record in plan.operators.items():
                spec = record.spec
                if isinstance(spec, Source | Sink) and record.pin in nodes:
                    users = ", ".join(sorted(str(q) for q in plan.queries if operator in plan.serving(q)))
                    what = f"{describe(spec)} at {topology.name(record.pin)}"
                    lost.append(f"{what}, of query {users}, which waits for a site with that node, or can be stopped")
            return HTTPStatus.OK, lost

        answer: list[str] = self._ask(found)
        return answer

    def _ask(self, run: Callable[[Core], Answer]) -> Any:
        return self._core().ask(CoreTask(run)).result(ANSWER_S)[1]
