"""The participants of reconfigurations: which host runs which fragments, and the parts that hosts of a change get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Channel, Deployment, DeploymentChange, Fragment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId
from meander.model.topology.graph import Topology
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.parts import SiteMap, cut
from meander.reconfigure.part import Part, Route
from meander.run.channels.flight.proof import HOME
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained_bindings import remember
from meander.run.host import Host
from meander.run.installation import install

Known = Mapping[tuple[FragmentId, int], Any]


class Participants:
    """All fragments run on the coordinator's own host until nodes belong to sites."""

    def __init__(self, host: Host, plan: GlobalPlan, agent: Agent, topology: Topology) -> None:
        self.host, self.plan, self._agent = host, plan, agent
        self.sites: dict[FragmentId, str] = {}
        """The sites of fragments that run at one, or are about to."""
        self.relays: set[str] = set()
        """Sites that something passes through, or once did."""
        self.map = SiteMap(topology, lambda node: HOME)

    def belong(self, owner: Callable[[str], str | None]) -> None:
        """From now on nodes are those of sites, by name; those that no site owns are the coordinator's."""
        topology = self.map.topology
        self.map = SiteMap(topology, lambda node: owner(topology.name(node)) or HOME)

    def site_of(self, fragment: FragmentId) -> str:
        return self.sites.get(fragment, HOME)

    @property
    def concerned(self) -> set[str]:
        """Sites that run or relay something."""
        return {*self.sites.values(), *self.relays}

    def route_of(self, channel: Channel) -> Route:
        """The sites over which a channel is pulled; none for one within the own host."""
        if self.site_of(channel.sender) == HOME == self.site_of(channel.receiver):
            return ()
        route = self.map.route_of(channel, self.sites)
        self.relays.update(route)
        return route

    def left(self, fragments: Iterable[FragmentId]) -> None:
        """Fragments do not run any more."""
        for fragment in fragments:
            self.sites.pop(fragment, None)

    def parts_of(self, each: Reconfiguration, deployment: Deployment) -> dict[str, Part]:
        """The parts of a change that is to begin, by site; that of the own host has its fragments bound."""
        change = each.change
        for fragment in change.fragments_after.values():
            if fragment.id not in change.fragments_before and (site := self._site_for(fragment, change)) != HOME:
                self.sites[fragment.id] = site
        parts = self.parts_again(each, deployment, self.plan)
        if HOME in parts and (own := parts[HOME].installation) is not None:
            remember(self.plan, own.fragments, change.fragments_after)
        for part in parts.values():
            routes = part.routes
            mine = (*routes.channels.values(), *routes.logs.values(), *routes.state.values())
            self.relays.update(site for route in mine for site in route)
        return parts

    def parts_again(
        self, each: Reconfiguration, deployment: Deployment, plan: GlobalPlan, known: Known | None = None
    ) -> dict[str, Part]:
        """The parts of a change that has begun; `known` are fragments that have been bound before."""
        parts = cut(each, plan, deployment, self.sites, self.map)
        if HOME in parts:
            parts[HOME] = self._bound(parts[HOME], plan, known)
        return parts

    def parts_expected(self, each: Reconfiguration, deployment: Deployment, plan: GlobalPlan) -> dict[str, Part]:
        """The parts of a change that may never be: nothing of it is remembered."""
        sites, change = dict(self.sites), each.change
        for fragment in change.fragments_after.values():
            if fragment.id not in change.fragments_before:
                sites[fragment.id] = self._site_for(fragment, change)
        parts = cut(each, plan, deployment, sites, self.map)
        if HOME in parts:
            parts[HOME] = self._bound(parts[HOME], plan)
        return parts

    def _site_for(self, fragment: Fragment, change: DeploymentChange) -> str:
        """Where a new fragment will run: with those it comes from if they are on its node, otherwise at its site.

        A site that takes a node over while something runs there gets what is new on it; what runs stays where it is.
        """
        mine = set(fragment.operators)
        former = [f for f in change.fragments_before.values() if f.node == fragment.node and mine & set(f.operators)]
        return self.site_of(former[0].id) if former else self.map.site_of(fragment.node)

    def _bound(self, part: Part, plan: GlobalPlan, known: Known | None = None) -> Part:
        """The own host's part, with its fragments bound: each in the slot of one that it comes from."""
        routing = self.host.routing
        before = {o: f.id for f in part.before.values() for o in f.operators}
        slots: dict[FragmentId, int] = {}
        for fragment in part.after.values():
            earlier = next((before[o] for o in fragment.operators if o in before), None)
            former = None if earlier is None else routing.fragments.get(earlier)
            kept = self.host.bindings.of(fragment.id)
            usual = first_slot(fragment.id, routing.slots) if former is None else former.slot
            slots[fragment.id] = usual if kept is None else kept
        channels = part.local.channels_after
        delays = {c.id: self._agent.delay_ms(c) for c in channels.values()}
        found = install(plan, part.after.values(), channels, slots, delays, known=known)
        return replace(part, installation=found)
