"""Checks that a deployment is what the catalog says: every operator on its node, every channel on its route, no more.

Operators of changes that are in flight, or wait for one, are left out: they will agree with the catalog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from meander.deploy.fragments import Channel, ChannelKey, Deployment, Fragment, Placed
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.model.placement import is_live
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path


def validate(placed: Placed, deployment: Deployment, unsettled: Collection[OperatorId] = ()) -> list[str]:
    """Every difference, in sentences; empty when the present or coming deployment agrees with the catalog."""
    check = _Check(placed, deployment, frozenset(unsettled))
    return [*check.operators(), *check.fragments(), *check.channels()]


class _Check:
    def __init__(self, placed: Placed, deployment: Deployment, unsettled: frozenset[OperatorId]) -> None:
        self.placed, self.deployment, self.unsettled = placed, deployment, unsettled
        self.plan = placed.plan
        self.busy = frozenset(deployment.owner[o] for o in unsettled if o in deployment.owner)

    def wanted(self, operator: OperatorId) -> NodeId | None:
        """The node on which the operator shall run: where it is held, or where it is placed."""
        return self.placed.held.get(operator, self.placed.placement.nodes.get(operator))

    def operators(self) -> Iterator[str]:
        """Operators that run elsewhere than they should, or should run and do not, or the other way round."""
        owner, fragments, name = self.deployment.owner, self.deployment.fragments, self.placed.topology.name
        for operator in self.plan.operators:
            node = self.wanted(operator)
            if operator in self.unsettled or node is None:
                continue
            fragment = owner.get(operator)
            if fragment is None:
                if self._can_begin(operator):
                    yield f"operator {operator} is placed on {name(node)}, but does not run"
            elif fragments[fragment].node != node:
                there = name(fragments[fragment].node)
                yield f"operator {operator} is placed on {name(node)}, but runs on {there} in fragment {fragment}"
        for operator, fragment in owner.items():
            if operator not in self.plan.operators and operator not in self.unsettled:
                yield f"operator {operator} runs in fragment {fragment}, but is not in the plan"

    def _can_begin(self, operator: OperatorId) -> bool:
        """Whether all that it reads runs, or is about to; operators that only make sense together begin together."""
        bundles = [b for b in self.plan.bundles.values() if operator in b]
        if any(self.wanted(o) is None and o not in self.deployment.owner for bundle in bundles for o in bundle):
            return False
        return all(i in self.deployment.owner or i in self.unsettled for i in self.plan[operator].inputs)

    def fragments(self) -> Iterator[str]:
        """Fragments whose operators or outputs are not what the plan makes of them."""
        for fragment in self.deployment.fragments.values():
            for operator in fragment.operators:
                if self.deployment.owner.get(operator) != fragment.id:
                    yield f"operator {operator} is in fragment {fragment.id} and said to be in another"
            needed = self._needed(fragment)
            if fragment.id not in self.busy and not needed <= set(fragment.outputs) <= set(fragment.operators):
                found = f"fragment {fragment.id} emits operators {list(fragment.outputs)}"
                yield f"{found}, but others read {sorted(needed)}"

    def _needed(self, fragment: Fragment) -> set[OperatorId]:
        """Operators whose readers run elsewhere. More may be emitted, for readers that wait to begin or never did."""
        inside, owner = set(fragment.operators), self.deployment.owner
        here = [o for o in fragment.operators if o in self.plan.operators]
        return {o for o in here if any(r not in inside and r in owner for r in self.plan[o].readers)}

    def channels(self) -> Iterator[str]:
        """Channels that are missing, lead nowhere, or do not take the route that was decided."""
        wanted = self._wanted_channels()
        found = self.deployment.channels
        for key, sender in wanted.items():
            channel = found.get(key)
            if channel is None:
                yield f"no channel leads from operator {key[0]} in fragment {sender} to fragment {key[1]}"
            elif channel.sender != sender:
                yield f"channel {channel.id} is fed by fragment {channel.sender}, but operator {key[0]} is in {sender}"
            else:
                yield from self._route_faults(channel)
        for key, channel in found.items():
            if key not in wanted and not self._is_busy(channel):
                yield f"channel {channel.id} leads from operator {key[0]} to fragment {key[1]}, which does not read it"

    def _wanted_channels(self) -> dict[ChannelKey, FragmentId]:
        owner, wanted = self.deployment.owner, dict[ChannelKey, FragmentId]()
        for operator, fragment in owner.items():
            if fragment in self.busy or operator not in self.plan.operators:
                continue
            for upstream in dict.fromkeys(self.plan[operator].inputs):
                sender = owner.get(upstream)
                if sender is not None and sender != fragment and sender not in self.busy:
                    wanted[upstream, fragment] = sender
        return wanted

    def _is_busy(self, channel: Channel) -> bool:
        return channel.sender in self.busy or channel.receiver in self.busy

    def _route_faults(self, channel: Channel) -> Iterator[str]:
        fragments, topology = self.deployment.fragments, self.placed.topology
        ends = fragments[channel.sender].node, fragments[channel.receiver].node
        what = f"channel {channel.id} from {topology.name(ends[0])} to {topology.name(ends[1])}"
        decided = self._decided(channel, ends)
        if ends[0] == ends[1]:
            if channel.path is not None or channel.is_cut:
                yield f"{what} stays on one node, but has a route or is cut"
        elif channel.path is None:
            if not channel.is_cut:
                yield f"{what} has neither a route nor is it cut"
            elif decided or (all(map(topology.is_alive, ends)) and topology.reachable(*ends)):
                yield f"{what} is cut, although there is a route"
        elif channel.is_cut:
            yield f"{what} is cut, although it has a route"
        elif decided and channel.path not in decided:
            yield f"{what} goes by {_named(channel.path, topology)}, but {_named(decided[0], topology)} was decided"
        elif not decided and not is_live(channel.path, topology):
            yield f"{what} goes by {_named(channel.path, topology)}, where a link is gone"

    def _decided(self, channel: Channel, ends: tuple[NodeId, NodeId]) -> list[Path]:
        """The routes of the edges that a channel stands for, as the catalog has them."""
        readers = self.deployment.fragments[channel.receiver].operators
        routes = (self.placed.placement.routes.get((channel.upstream, r)) for r in readers)
        return [r for r in routes if r is not None and (r.nodes[0], r.nodes[-1]) == ends]


def _named(path: Path, topology: Topology) -> str:
    return " > ".join(topology.name(node) for node in path.nodes)
