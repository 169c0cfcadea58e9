"""A reconfiguration cut into parts: which host runs what, by which routes things come, what each host needs to bind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Channel, Deployment, Fragment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.operators import Sink
from meander.model.topology.graph import Topology
from meander.reconfigure.part import FetchRoutes, Part, Route
from meander.reconfigure.serialised_fragment import serialised
from meander.run.channels.flight.proof import HOME
from meander.run.frames import by_position, channel_schema
from meander.run.installation import OUTSIDE


@dataclass(frozen=True, slots=True)
class SiteMap:
    """Where everything is."""

    topology: Topology
    site_of: Callable[[NodeId], str]
    """The site that runs a node's fragments."""

    def route(self, nodes: tuple[NodeId, ...] | None, source: str, reader: str) -> Route:
        """The sites from a reader to where something is, nearest first; over the nodes of a path if there is one."""
        between = [self.site_of(n) for n in nodes[1:-1]] if nodes else []
        sites = [source]
        for site in (*between, reader):
            if site in sites:  # a route that comes back to a site leaves out what lies in between
                del sites[sites.index(site) + 1 :]
            else:
                sites.append(site)
        return tuple(sites[-2::-1]) if len(sites) > 1 else (source,)

    def between(self, origin: NodeId, destination: NodeId) -> tuple[NodeId, ...] | None:
        alive = self.topology.is_alive(origin) and self.topology.is_alive(destination)
        path = self.topology.path(origin, destination) if alive and origin != destination else None
        return None if path is None else path.nodes

    def route_of(self, channel: Channel, where: Mapping[FragmentId, str]) -> Route:
        """The sites over which a channel is pulled."""
        nodes = None if channel.path is None else channel.path.nodes
        return self.route(nodes, where.get(channel.sender, HOME), where.get(channel.receiver, HOME))


def cut(
    reconfiguration: Reconfiguration,
    plan: GlobalPlan,
    deployment: Deployment,
    hosts: Mapping[FragmentId, str],
    sites: SiteMap,
) -> dict[str, Part]:
    """The parts of all hosts that a reconfiguration touches; `hosts` are the sites of fragments that run at one."""
    change = reconfiguration.change
    channels = (*change.channels_before.values(), *change.channels_after.values())
    where = {f: hosts.get(f, HOME) for f in change.fragments} if hosts else dict.fromkeys(change.fragments, HOME)
    where |= {f: hosts.get(f, HOME) for c in channels for f in (c.sender, c.receiver)}
    taking_part = dict.fromkeys(where.values())
    shared = len(taking_part) > 1
    routes = _routes(reconfiguration, deployment, where, sites) if shared else FetchRoutes()
    r, overlaps = reconfiguration, reconfiguration.protocol.overlaps
    found: dict[str, Part] = {}
    for site in taking_part:
        own = site == HOME  # which has the plan, binds what it runs, and delivers results itself
        new = () if own else change.channels_after.values()  # what sent on former ones may have left the plan
        schemas = {c.id: channel_schema(by_position(plan[c.upstream].schema)) for c in new}
        mine = {f: each for f, each in change.fragments_after.items() if where[f] == site}
        found[site] = Part(
            r.number,
            site,
            change,
            where,
            r.marker,
            r.handovers,
            overlaps,
            r.strategy,
            schemas,
            routes,
            {f: serialised(plan, each) for f, each in mine.items() if not own or _changes_inputs(plan, each)},
            {} if own else _results(plan, [o for f in mine.values() for o in f.operators]),
        )
    return found


def _changes_inputs(plan: GlobalPlan, fragment: Fragment) -> bool:
    """Whether the plan may change the inputs of a fragment's operators, such as parts of a join, or drop what they
    read, while they run."""
    near = {*fragment.operators, *(r for o in fragment.operators for r in plan[o].readers)} if plan.bundles else ()
    return any(o in bundle for bundle in plan.bundles.values() for o in near)


def _routes(
    reconfiguration: Reconfiguration, deployment: Deployment, where: Mapping[FragmentId, str], sites: SiteMap
) -> FetchRoutes:
    change = reconfiguration.change
    nodes = {f: deployment.fragments[f].node for f in where if f in deployment.fragments}
    nodes |= {f: each.node for side in (change.fragments_before, change.fragments_after) for f, each in side.items()}
    before = {c.id: c for c in change.channels_before.values()}
    after = change.channels_after.values()
    channels = {c.id: sites.route_of(c, where) for c in after if where[c.sender] != where[c.receiver]}

    def straight(source: FragmentId, target: FragmentId) -> Route:
        return sites.route(sites.between(nodes[source], nodes[target]), where[source], where[target])

    logs = {
        c.id: straight(old.sender, c.sender)
        for c in after
        if (old := before.get(c.id)) is not None and where[old.sender] != where[c.sender]
    }
    state = {
        place: straight(h.source, h.target)
        for place, h in enumerate(reconfiguration.handovers)
        if where[h.source] != where[h.target]
    }
    return FetchRoutes(channels, logs, state)


def _results(plan: GlobalPlan, operators: list[OperatorId]) -> dict[ChannelId, tuple[str, str]]:
    """Result channels of operators, with the query and the sink that they are for."""
    queries = {OperatorId(s): name for name, running in plan.queries.items() for s in running.sinks}
    found: dict[ChannelId, tuple[str, str]] = {}
    for operator in operators:
        spec: Any = plan[operator].spec
        if isinstance(spec, Sink) and operator in queries:
            found[ChannelId(OUTSIDE + operator)] = (str(queries[operator]), spec.name)
    return found
