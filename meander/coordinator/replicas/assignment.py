"""The sites that keep replicas of a site's store: decided from who is there, changed as little as possible."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meander.deploy.fragments import Deployment
from meander.model.ids import FragmentId, NodeId
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import Topology
from meander.run.channels.flight.proof import HOME
from meander.run.store.records.replicas import KeepersRecord


@dataclass(frozen=True, slots=True)
class Candidates:
    """The sites that could keep replicas of one, the best first."""

    site: str
    towards: Sequence[str]
    """Those on the way to a cloud; with upstream backup, those that send to it."""
    present: Collection[str]
    refusing: Collection[str] = ()
    """Those that keep nothing of it."""

    def best(self, count: int, kept: Collection[str], without: str) -> list[str]:
        """So many sites; those that keep one already stay. The own host of the coordinator is always there."""
        others = [s for s in sorted(self.present) if s != HOME]
        order = dict.fromkeys((*(s for s in self.towards if s in kept), *kept, *self.towards, HOME, *others))
        left_out = {self.site, without, *self.refusing}
        usable = [s for s in order if s not in left_out and (s == HOME or s in self.present)]
        return usable[:count]


def assigned(record: KeepersRecord, candidates: Candidates, count: int) -> KeepersRecord:
    """The keepers from now on. One that is new, or comes again, begins a new term.

    >>> assigned(KeepersRecord("west"), Candidates("west", ["hub"], {"hub", "east"}), 2).keepers
    {'hub': 1, 'home': 1}
    """
    chosen = candidates.best(count, list(record.keepers), record.stands_in)
    if set(chosen) == set(record.keepers):
        return record
    term = record.term + 1
    keepers = {site: record.keepers.get(site, term) for site in chosen}
    return replace(record, keepers=keepers, term=term)


def towards_cloud(topology: Topology, nodes: Collection[str], owner: Mapping[str, str]) -> list[str]:
    """The sites on the shortest ways from these nodes to a cloud, nearest first; nodes without a site are home's."""
    clouds = np.flatnonzero((topology.nodes.kind == NodeKind.CLOUD) & topology.nodes.alive)
    found: dict[str, None] = {}
    for name in sorted(nodes):
        node = topology.find(name)
        if node is None or not topology.is_alive(node):
            continue
        paths = [p for c in clouds if (p := topology.path(node, NodeId(int(c)))) is not None and p.arcs]
        if paths:
            for passed in min(paths, key=lambda p: p.latency_ms).nodes[1:]:
                found.setdefault(owner.get(topology.name(passed), HOME))
    return list(found)


def node_of(topology: Topology, site: str, owner: Mapping[str, str], played: Collection[str] = ()) -> str | None:
    """A node of a site, beside which others can be: the one nearest to a cloud by its kind; None if none is there.

    `played` are nodes that are there because others play them.
    """
    names = [topology.name(n) for n in topology.ids()]
    mine = [name for name in names if owner.get(name, HOME) == site and name not in played]
    return min(mine, key=lambda name: (-topology.node(topology.id(name)).kind, name), default=None)


def senders_to(deployment: Deployment, site: str, sites: Mapping[FragmentId, str]) -> list[str]:
    """The sites whose fragments send to a site's."""
    channels = list(deployment.channels.values())
    found = [sites.get(c.sender, HOME) for c in channels if sites.get(c.receiver, HOME) == site]
    return [s for s in dict.fromkeys(found) if s != site]
