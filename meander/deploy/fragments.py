"""Fragments: what each node runs. A placement cut into maximal connected sets of operators on one node, and further
where such sets would read from each other in a cycle (`components.py`).

A fragment keeps its id as long as the set on its node overlaps with the former one; its version grows when its content
changes. Where an edge of the plan leads from one fragment to another there is a channel: one for each operator and each
fragment that reads it, however many operators inside that fragment do.

An operator that a change left without a place stays where it is as long as its node lives: it goes on with tuples that
reach it, and its output waits, until it gets a place again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meander.deploy.components import FragmentGrouping
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.placement import Edge, Placement
from meander.model.topology.graph import Topology
from meander.model.topology.path_cache import Path


@dataclass(frozen=True, slots=True)
class Fragment:
    """Operators that run together, in dataflow order."""

    id: FragmentId
    version: int
    node: NodeId
    operators: tuple[OperatorId, ...]
    outputs: tuple[OperatorId, ...] = ()
    """Operators that others read, by number."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The way of one operator's output to a fragment that reads it; the path's inner nodes forward."""

    id: ChannelId
    upstream: OperatorId
    sender: FragmentId
    receiver: FragmentId
    path: Path | None
    """None when both fragments are on one node, or when there is no way between their nodes: see `is_cut`."""
    is_cut: bool = False
    """Whether there is no way at the moment: the sender keeps its output."""


ChannelKey = tuple[OperatorId, FragmentId]
"""An operator and the fragment that reads it: what makes a channel the same one after a change."""


@dataclass(frozen=True)
class DeploymentChange:
    """Fragments that change, with all channels from and to them: before and after."""

    fragments_before: Mapping[FragmentId, Fragment] = field(default_factory=dict)
    fragments_after: Mapping[FragmentId, Fragment] = field(default_factory=dict)
    channels_before: Mapping[ChannelKey, Channel] = field(default_factory=dict)
    channels_after: Mapping[ChannelKey, Channel] = field(default_factory=dict)

    @cached_property
    def fragments(self) -> frozenset[FragmentId]:
        return frozenset(self.fragments_before) | frozenset(self.fragments_after)

    @cached_property
    def neighbours(self) -> frozenset[FragmentId]:
        """Fragments that stay as they are and have a channel to or from one that does not."""
        channels = (*self.channels_before.values(), *self.channels_after.values())
        return frozenset(f for c in channels for f in (c.sender, c.receiver)) - self.fragments

    @cached_property
    def operators(self) -> frozenset[OperatorId]:
        both = (*self.fragments_before.values(), *self.fragments_after.values())
        return frozenset(o for f in both for o in f.operators)

    def reversed(self) -> DeploymentChange:
        return DeploymentChange(self.fragments_after, self.fragments_before, self.channels_after, self.channels_before)

    def __bool__(self) -> bool:
        return bool(self.fragments_before or self.fragments_after)


@dataclass
class Deployment:
    """All fragments and channels of a placement."""

    fragments: dict[FragmentId, Fragment] = field(default_factory=dict)
    channels: dict[ChannelKey, Channel] = field(default_factory=dict)
    owner: dict[OperatorId, FragmentId] = field(default_factory=dict)
    """The fragment that each operator runs in."""
    next_fragment: int = 1
    next_channel: int = 1
    _touching: dict[FragmentId, dict[ChannelKey, None]] = field(default_factory=dict, compare=False, repr=False)
    _within: dict[ChannelKey, Channel] = field(default_factory=dict, compare=False, repr=False)
    """Channels that do not leave their node."""

    def channels_of(self, fragment: FragmentId) -> Iterator[tuple[ChannelKey, Channel]]:
        """The channels from and to a fragment."""
        for key in self._touching.get(fragment, ()):
            yield key, self.channels[key]

    @property
    def pieces(self) -> set[FragmentId]:
        """Fragments that are connected to another one on their node."""
        return {f for c in self._within.values() for f in (c.sender, c.receiver)}

    def apply(self, change: DeploymentChange) -> None:
        """Becomes what the change says."""
        for key, channel in change.channels_before.items():
            del self.channels[key]
            self._within.pop(key, None)
            self._untouch(key, channel)
        for fragment in change.fragments_before.values():
            del self.fragments[fragment.id]
            for operator in fragment.operators:
                del self.owner[operator]
        for fragment in change.fragments_after.values():
            self.fragments[fragment.id] = fragment
            self.owner.update((operator, fragment.id) for operator in fragment.operators)
        for key, channel in change.channels_after.items():
            self.channels[key] = channel
            if self.fragments[channel.sender].node == self.fragments[channel.receiver].node:
                self._within[key] = channel
            for end in (channel.sender, channel.receiver):
                self._touching.setdefault(end, {})[key] = None

    def _untouch(self, key: ChannelKey, channel: Channel) -> None:
        for end in (channel.sender, channel.receiver):
            touching = self._touching[end]
            touching.pop(key, None)
            if not touching:
                del self._touching[end]

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Takes over channels that lead another way between the same fragments."""
        self.channels.update(channels)

    def fresh_fragment(self) -> FragmentId:
        self.next_fragment += 1
        return FragmentId(self.next_fragment - 1)

    def fresh_channel(self) -> ChannelId:
        self.next_channel += 1
        return ChannelId(self.next_channel - 1)


@dataclass(frozen=True, slots=True)
class Placed:
    """The input of deployment: operators, their nodes and routes, and the topology for those that wait for a place."""

    plan: GlobalPlan
    placement: Placement
    topology: Topology
    held: dict[OperatorId, NodeId] = field(default_factory=dict)
    """Operators that stay where they are for now, whatever the placement says: they move in a later step."""
    apart: dict[OperatorId, str] = field(default_factory=dict)
    """Operators that have fragments of their own for now, together with those of the same name only."""
    withheld: set[OperatorId] = field(default_factory=set)
    """Operators that do not begin yet, although they have a place: others that they need have none."""

    def path(self, upstream: OperatorId, readers: Iterable[OperatorId], ends: tuple[NodeId, NodeId]) -> Path | None:
        """The route of one of the edges that a channel stands for; any way where none was decided."""
        if ends[0] == ends[1]:
            return None
        wanted = self.plan[upstream].readers if upstream in self.plan.operators else ()
        routes = (self.placement.routes.get((upstream, reader)) for reader in readers if reader in wanted)
        found = next((r for r in routes if r is not None and (r.nodes[0], r.nodes[-1]) == ends), None)
        return self.topology.path(*ends) if found is None and all(map(self.topology.is_alive, ends)) else found


def deploy(placed: Placed) -> Deployment:
    """The deployment of a placement, from nothing."""
    deployment = Deployment()
    deployment.apply(redeploy(placed, deployment, placed.plan.operators))
    return deployment


def redeploy(placed: Placed, deployment: Deployment, seeds: Iterable[OperatorId]) -> DeploymentChange:
    """The change of the deployment that the placement of some operators (that came, went or moved) makes; fragments
    that go on keep their ids.

    Looks at the fragments of the seeds and their neighbours only.
    """
    return _Redeployment(placed, deployment).change(set(seeds))


def rerouted(placed: Placed, deployment: Deployment, edges: Iterable[Edge]) -> dict[ChannelKey, Channel]:
    """Channels of edges between operators that stay, but lead another way or none now."""
    found: dict[ChannelKey, Channel] = {}
    for upstream, reader in edges:
        key = (upstream, deployment.owner.get(reader, FragmentId(-1)))
        old = deployment.channels.get(key)
        if old is None:
            continue
        ends = deployment.fragments[old.sender].node, deployment.fragments[old.receiver].node
        path = placed.path(upstream, deployment.fragments[old.receiver].operators, ends)
        new = Channel(old.id, upstream, old.sender, old.receiver, path, path is None and ends[0] != ends[1])
        if new != old:
            found[key] = new
    return found


class _Redeployment:
    """Finds the region that a change touches, groups it anew, and compares."""

    def __init__(self, placed: Placed, deployment: Deployment) -> None:
        self.placed, self.deployment = placed, deployment
        self._ready: dict[OperatorId, bool] = {}
        self.plan, self.placement = placed.plan, placed.placement

    def node_of(self, operator: OperatorId) -> NodeId | None:
        """The node on which the operator shall run, or runs while it has no place; None for an operator that does not
        run.

        One that has never run begins when all its inputs do.
        """
        if operator not in self.plan.operators:
            return None
        node = self.placed.held.get(operator, self.placement.nodes.get(operator))
        if operator in self.placed.withheld:
            return None
        owner = self.deployment.owner.get(operator)
        if owner is not None:
            return self.deployment.fragments[owner].node if node is None else node
        return node if node is not None and self._has_inputs(operator) else None

    def place_of(self, operator: OperatorId) -> tuple[NodeId, str | None] | None:
        """Its node, and its name if it has to be apart."""
        node = self.node_of(operator)
        return None if node is None else (node, self.placed.apart.get(operator))

    def _has_inputs(self, operator: OperatorId) -> bool:
        if operator not in self._ready:
            self._ready[operator] = all(self.node_of(i) is not None for i in self.plan[operator].inputs)
        return self._ready[operator]

    def change(self, seeds: set[OperatorId]) -> DeploymentChange:
        touched, starts = self._region(seeds)
        groups = self._groups(starts, touched)
        after = self._numbered(groups, touched)
        old = self.deployment.fragments
        same = {f for f, fragment in after.items() if old.get(f) == fragment}
        before = {f: old[f] for f in sorted(touched) if f not in same}
        after = {f: fragment for f, fragment in after.items() if f not in same}
        channels_before = dict(item for f in before for item in self.deployment.channels_of(f))
        channels_after = self._channels(before, after, channels_before)
        return DeploymentChange(before, after, channels_before, channels_after)

    def _region(self, seeds: set[OperatorId]) -> tuple[set[FragmentId], dict[OperatorId, None]]:
        """Fragments whose content or outputs may change, and the operators to group anew."""
        plan, deployment = self.plan, self.deployment
        touched: set[FragmentId] = set()
        starts: dict[OperatorId, None] = {}
        stack = list(seeds)
        while stack:  # operators that wait for a seed may begin with it
            record = plan.operators.get(stack.pop())
            fresh = [r for r in record.readers if r not in deployment.owner and r not in seeds] if record else []
            seeds.update(fresh)
            stack.extend(fresh)
        for seed in sorted(seeds):
            if seed in plan.operators:
                near = [seed, *plan.neighbours(seed)]
                starts.update((o, None) for o in near)
                touched.update(deployment.owner[o] for o in near if o in deployment.owner)
            elif seed in deployment.owner:
                fragment = deployment.owner[seed]
                touched.add(fragment)
                touched.update(c.sender for _, c in deployment.channels_of(fragment) if c.receiver == fragment)
        for fragment in sorted(touched):
            starts.update((o, None) for o in deployment.fragments[fragment].operators)
        for fragment in sorted(self._pieces(starts) - touched):
            starts.update((o, None) for o in deployment.fragments[fragment].operators)
        return touched, {o: None for o in starts if self.node_of(o) is not None}

    def _pieces(self, starts: Iterable[OperatorId]) -> set[FragmentId]:
        """Fragments beside others of their node that they read or that read them: they may belong together now."""
        deployment, plan = self.deployment, self.plan
        pieces = deployment.pieces
        plans = {plan.plan_of(o) for o in starts if o in plan.operators} if pieces else set()
        return {
            f
            for f in pieces
            if any(o in plan.operators and plan.plan_of(o) in plans for o in deployment.fragments[f].operators)
        }

    def _groups(self, starts: Iterable[OperatorId], touched: set[FragmentId]) -> list[tuple[OperatorId, ...]]:
        """The sets of operators that shall run together; fragments that they reach into are touched as well."""
        groups = FragmentGrouping(self.plan, self.place_of).around(starts)
        owner = self.deployment.owner
        touched.update(owner[o] for members in groups for o in members if o in owner)
        return [tuple(_in_dataflow_order(self.plan, members)) for members in groups]

    def _numbered(self, groups: list[tuple[OperatorId, ...]], touched: set[FragmentId]) -> dict[FragmentId, Fragment]:
        former = self.deployment.owner
        taken: set[FragmentId] = set()
        found: dict[FragmentId, Fragment] = {}
        for members in sorted(groups, key=lambda m: (-len(m), min(m))):
            node = self.node_of(members[0])
            assert node is not None
            votes = Counter(former[o] for o in members if o in former)
            old = [self.deployment.fragments[f] for f, _ in votes.most_common() if f in touched and f not in taken]
            here = next((f for f in old if f.node == node), None)
            inside = set(members)
            outputs = tuple(sorted(m for m in members if any(r not in inside for r in self.plan[m].readers)))
            if here is None:
                fragment = Fragment(self.deployment.fresh_fragment(), 1, node, members, outputs)
            else:
                same = set(here.operators) == inside and here.outputs == outputs
                fragment = here if same else Fragment(here.id, here.version + 1, node, members, outputs)
            taken.add(fragment.id)
            found[fragment.id] = fragment
        return found

    def _channels(
        self,
        before: Mapping[FragmentId, Fragment],
        after: Mapping[FragmentId, Fragment],
        channels_before: Mapping[ChannelKey, Channel],
    ) -> dict[ChannelKey, Channel]:
        owner = {o: f.id for f in after.values() for o in f.operators}
        gone = {o for f in before.values() for o in f.operators if o not in owner}

        def owner_of(operator: OperatorId) -> FragmentId | None:
            return owner.get(operator) or (None if operator in gone else self.deployment.owner.get(operator))

        wanted: dict[ChannelKey, FragmentId] = {}
        for fragment in after.values():
            for operator in fragment.operators:
                for upstream in dict.fromkeys(self.plan[operator].inputs):
                    sender = owner_of(upstream)
                    if sender is not None and sender != fragment.id:
                        wanted[upstream, fragment.id] = sender
            for operator in fragment.outputs:
                for reader in self.plan[operator].readers:
                    receiver = owner_of(reader)
                    if receiver is not None and receiver != fragment.id:
                        wanted[operator, receiver] = fragment.id
        spare = [c for key, c in channels_before.items() if key not in wanted]
        return {key: self._channel(key, sender, channels_before, spare, after) for key, sender in wanted.items()}

    def _channel(
        self,
        key: ChannelKey,
        sender: FragmentId,
        channels_before: Mapping[ChannelKey, Channel],
        spare: list[Channel],
        after: Mapping[FragmentId, Fragment],
    ) -> Channel:
        """A channel goes on for its reader, or for another reader of the same operator; otherwise it is new.

        Best for one that has operators of the former reader: it takes over the unconsumed input.
        """
        upstream, receiver = key
        mine = set((after.get(receiver) or self.deployment.fragments[receiver]).operators)
        others = [c for c in spare if c.upstream == upstream]
        heir = (c for c in others if not mine.isdisjoint(self.deployment.fragments[c.receiver].operators))
        old = channels_before.get(key) or next(heir, None) or next(iter(others), None)
        if old in spare:
            spare.remove(old)
        number = self.deployment.fresh_channel() if old is None else old.id
        ends = [after.get(f) or self.deployment.fragments[f] for f in (sender, receiver)]
        nodes = ends[0].node, ends[1].node
        path = self.placed.path(upstream, ends[1].operators, nodes)
        return Channel(number, upstream, sender, receiver, path, path is None and nodes[0] != nodes[1])


def _in_dataflow_order(plan: GlobalPlan, members: Iterable[OperatorId]) -> list[OperatorId]:
    inside = set(members)
    order: dict[OperatorId, None] = {}
    stack = [(o, False) for o in sorted(inside, reverse=True)]
    while stack:
        operator, ready = stack.pop()
        if ready:
            order[operator] = None
        elif operator not in order:
            stack.append((operator, True))
            stack.extend((i, False) for i in plan[operator].inputs if i in inside and i not in order)
    return list(order)
