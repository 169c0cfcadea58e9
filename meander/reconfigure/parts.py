"""A reconfiguration cut into shares: who runs what, over which ways things come, and what each site needs to bind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Channel, Deployment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.operators import Sink
from meander.model.topology.graph import Topology
from meander.reconfigure.part import Part
from meander.reconfigure.serialised_fragment import made_of
from meander.run.channels.flight.proof import HOME
from meander.run.frames import by_position, channel_schema
from meander.run.installation import OUTSIDE


@dataclass(frozen=True, slots=True)
class SiteMap:
    """Where everything is."""

    topology: Topology
    site_of: Callable[[NodeId], str]
    """The site that runs a node's fragments."""

    def way(self, nodes: tuple[NodeId, ...] | None, source: str, reader: str) -> list[str]:
        """The sites from a reader to where something is, nearest first; over the nodes of a path if there is one."""
        between = [self.site_of(n) for n in nodes[1:-1]] if nodes else []
        sites = [source]
        for site in (*between, reader):
            if site in sites:  # a way that comes back to a site leaves out what lies in between
                del sites[sites.index(site) + 1 :]
            else:
                sites.append(site)
        return sites[-2::-1] if len(sites) > 1 else [source]

    def between(self, origin: NodeId, destination: NodeId) -> tuple[NodeId, ...] | None:
        alive = self.topology.is_alive(origin) and self.topology.is_alive(destination)
        path = self.topology.path(origin, destination) if alive and origin != destination else None
        return None if path is None else path.nodes


def cut(
    reconfiguration: Reconfiguration,
    plan: GlobalPlan,
    deployment: Deployment,
    where: Mapping[FragmentId, str],
    around: SiteMap,
) -> dict[str, Part]:
    """The shares of all sites that a reconfiguration touches, the coordinator's own host among them if it does."""
    change = reconfiguration.change
    ends = {
        f for c in (*change.channels_before.values(), *change.channels_after.values()) for f in (c.sender, c.receiver)
    }
    mine = {f: where.get(f, HOME) for f in change.fragments | ends}
    nodes = {f: deployment.fragments[f].node for f in ends if f in deployment.fragments}
    nodes |= {f: each.node for f, each in change.fragments_before.items()}
    nodes |= {f: each.node for f, each in change.fragments_after.items()}
    schemas = {c.id: channel_schema(by_position(plan[c.upstream].schema)) for c in change.channels_after.values()}
    handovers = tuple((h.operator, h.source, h.target) for h in reconfiguration.handovers)
    ways: dict[str, dict[str, list[str]]] = {
        "channels": {str(c.id): way_of(c, mine, around) for c in change.channels_after.values() if _is_far(c, mine)},
        "logs": _logs(reconfiguration, mine, nodes, around),
        "state": {
            str(place): around.way(around.between(nodes[s], nodes[t]), mine[s], mine[t])
            for place, (_, s, t) in enumerate(handovers)
            if mine[s] != mine[t]
        },
    }
    return {
        site: Part(
            reconfiguration.number,
            site,
            change,
            mine,
            reconfiguration.marker,
            handovers,
            schemas,
            ways,
            {} if site == HOME else _made(reconfiguration, plan, mine, site),
            {} if site == HOME else _outlets(reconfiguration, plan, mine, site),
        )
        for site in dict.fromkeys(mine.values())
    }


def _is_far(channel: Channel, where: Mapping[FragmentId, str]) -> bool:
    return where[channel.sender] != where[channel.receiver]


def way_of(channel: Channel, where: Mapping[FragmentId, str], around: SiteMap) -> list[str]:
    """The sites over which a channel is pulled."""
    nodes = None if channel.path is None else channel.path.nodes
    return around.way(nodes, where.get(channel.sender, HOME), where.get(channel.receiver, HOME))


def _logs(
    reconfiguration: Reconfiguration,
    where: Mapping[FragmentId, str],
    nodes: Mapping[FragmentId, NodeId],
    around: SiteMap,
) -> dict[str, list[str]]:
    """Ways of logs that begin at another site afterwards."""
    before = {c.id: c for c in reconfiguration.change.channels_before.values()}
    found: dict[str, list[str]] = {}
    for channel in reconfiguration.change.channels_after.values():
        old = before.get(channel.id)
        if old is not None and where[old.sender] != where[channel.sender]:
            path = around.between(nodes[old.sender], nodes[channel.sender])
            found[str(channel.id)] = around.way(path, where[old.sender], where[channel.sender])
    return found


def _made(
    reconfiguration: Reconfiguration, plan: GlobalPlan, where: Mapping[FragmentId, str], site: str
) -> dict[FragmentId, list[Any]]:
    after = reconfiguration.change.fragments_after
    return {f: made_of(plan, fragment) for f, fragment in after.items() if where[f] == site}


def _outlets(
    reconfiguration: Reconfiguration, plan: GlobalPlan, where: Mapping[FragmentId, str], site: str
) -> dict[ChannelId, tuple[str, str]]:
    """Result channels at a site, with the query and the sink that they are for."""
    queries = {OperatorId(s): name for name, running in plan.queries.items() for s in running.sinks}
    found: dict[ChannelId, tuple[str, str]] = {}
    for f, fragment in reconfiguration.change.fragments_after.items():
        for operator in fragment.operators if where[f] == site else ():
            spec = plan[operator].spec
            if isinstance(spec, Sink) and operator in queries:
                found[ChannelId(OUTSIDE + operator)] = (str(queries[operator]), spec.name)
    return found
