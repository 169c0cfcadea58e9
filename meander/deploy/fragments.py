"""Fragments: what each node runs. A placement cut into maximal connected sets of operators on one node.

A fragment keeps its id as long as the set on its node overlaps with what it was; its version grows when its content
changes. Where an edge of the plan leads from one fragment to another there is a channel: one for each operator and
each fragment that reads it, however many operators inside that fragment do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.path_cache import Path
from meander.model.placement import Placement


@dataclass(frozen=True, slots=True)
class Fragment:
    """Operators that run together, in dataflow order."""

    id: FragmentId
    version: int
    node: NodeId
    operators: tuple[OperatorId, ...]


@dataclass(frozen=True, slots=True)
class Channel:
    """The way of one operator's output to a fragment that reads it; the path's inner nodes forward."""

    id: ChannelId
    upstream: OperatorId
    sender: FragmentId
    receiver: FragmentId
    path: Path | None
    """None when both fragments are on one node, which happens when they belong together only through others."""


ChannelKey = tuple[OperatorId, FragmentId]
"""An operator and the fragment that reads it: what makes a channel the same one after a change."""


@dataclass(frozen=True)
class Deployment:
    """All fragments and channels of a placement."""

    fragments: Mapping[FragmentId, Fragment] = field(default_factory=dict)
    channels: Mapping[ChannelKey, Channel] = field(default_factory=dict)
    next_fragment: int = 1
    next_channel: int = 1

    @property
    def fragment_of(self) -> dict[OperatorId, FragmentId]:
        return {o: f.id for f in self.fragments.values() for o in f.operators}


def deploy(plan: GlobalPlan, placement: Placement, previous: Deployment | None = None) -> Deployment:
    """The deployment of a placement, with the ids of the previous one where fragments and channels go on."""
    previous = previous or Deployment()
    fragments, next_fragment = _fragments(plan, placement, previous)
    owner = {o: f.id for f in fragments.values() for o in f.operators}
    channels: dict[ChannelKey, Channel] = {}
    next_channel = previous.next_channel
    for operator, receiver in owner.items():
        for upstream in dict.fromkeys(plan[operator].inputs):
            sender = owner.get(upstream)
            if sender is None or sender == receiver or (upstream, receiver) in channels:
                continue
            known = previous.channels.get((upstream, receiver))
            number = known.id if known else ChannelId(next_channel)
            next_channel += 0 if known else 1
            path = placement.routes.get((upstream, operator))
            channels[upstream, receiver] = Channel(number, upstream, sender, receiver, path)
    return Deployment(fragments, channels, next_fragment, next_channel)


def _fragments(plan: GlobalPlan, placement: Placement, previous: Deployment) -> tuple[dict[FragmentId, Fragment], int]:
    former = previous.fragment_of
    taken: set[FragmentId] = set()
    fresh = previous.next_fragment
    found: dict[FragmentId, Fragment] = {}
    for members in sorted(co_located(plan, placement), key=lambda m: (-len(m), min(m))):
        node = placement.nodes[members[0]]
        votes = Counter(former[o] for o in members if o in former)
        ids = [f for f, _ in votes.most_common() if f not in taken and previous.fragments[f].node == node]
        if ids:
            old = previous.fragments[ids[0]]
            same = set(old.operators) == set(members)
            fragment = Fragment(old.id, old.version if same else old.version + 1, node, members)
        else:
            fragment = Fragment(FragmentId(fresh), 1, node, members)
            fresh += 1
        taken.add(fragment.id)
        found[fragment.id] = fragment
    return found, fresh


def co_located(plan: GlobalPlan, placement: Placement) -> list[tuple[OperatorId, ...]]:
    """Maximal connected sets of placed operators on one node, each in dataflow order."""
    nodes = placement.nodes
    component: dict[OperatorId, int] = {}
    groups: list[list[OperatorId]] = []
    for start in nodes:
        if start in component:
            continue
        component[start] = len(groups)
        members, stack = [start], [start]
        while stack:
            for neighbour in plan.neighbours(stack.pop()):
                if neighbour not in component and nodes.get(neighbour) == nodes[start]:
                    component[neighbour] = len(groups)
                    members.append(neighbour)
                    stack.append(neighbour)
        groups.append(members)
    return [tuple(_in_dataflow_order(plan, members)) for members in groups]


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
