"""Reconfigurations: what the nodes must do so that running queries get from one deployment to the next.

The difference of two placements falls into independent parts. Each part is a reconfiguration of its own: a context for
every fragment it touches, one marker that tells each old fragment what to do when everything before the marker is
done, and one move for every operator with memory that will run elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from meander.deploy.fragments import Channel, ChannelKey, DeploymentChange, Fragment
from meander.deploy.markers import Marker, MarkerAction
from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.isqd import ISQD
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.model.operators import STATEFUL


class Action(Enum):
    """The action of a node on a fragment."""

    DEPLOY = "deploy"
    UPDATE = "update"
    UNDEPLOY = "undeploy"


@dataclass(frozen=True, slots=True)
class Context:
    """A deployment context: one node, one fragment, one action."""

    action: Action
    fragment: FragmentId
    node: NodeId


@dataclass(frozen=True, slots=True)
class Handover:
    """The state of one operator goes from one fragment to another. On one node that is only a change of names."""

    operator: OperatorId
    source: FragmentId
    target: FragmentId
    origin: NodeId
    destination: NodeId

    @property
    def travels(self) -> bool:
        return self.origin != self.destination


@dataclass(frozen=True)
class Reconfiguration:
    """One part of a change that takes effect as a whole or not at all."""

    number: int
    change: DeploymentChange
    contexts: tuple[Context, ...]
    marker: Marker
    handovers: tuple[Handover, ...]
    protocol: Protocol = ISQD
    strategy: str | None = None
    """The state strategy of this handover, where it differs from the protocol's."""

    def entering(self) -> Iterator[Channel]:
        """Channels from fragments that stay as they are to fragments that do not: where the marker is put in."""
        inside = self.change.fragments_before
        return (c for c in self.change.channels_before.values() if c.receiver in inside and c.sender not in inside)

    @property
    def opened(self) -> dict[ChannelKey, Channel]:
        """Channels that did not exist before."""
        known = {c.id for c in self.change.channels_before.values()}
        return {key: c for key, c in self.change.channels_after.items() if c.id not in known}

    @property
    def closed(self) -> dict[ChannelKey, Channel]:
        """Channels that are not needed after the change."""
        kept = {c.id for c in self.change.channels_after.values()}
        return {key: c for key, c in self.change.channels_before.items() if c.id not in kept}


def reconfiguration(
    number: int, change: DeploymentChange, plan: GlobalPlan, protocol: Protocol = ISQD
) -> Reconfiguration:
    """Contexts, marker and moves of one part of a change."""
    before, after = change.fragments_before, change.fragments_after
    handovers = () if protocol.overlaps else tuple(_handovers(change, plan))
    with_state_away = {h.source for h in handovers if h.travels}
    contexts = [Context(Action.UNDEPLOY, f.id, f.node) for f in before.values() if f.id not in after]
    contexts += [Context(Action.UPDATE if f.id in before else Action.DEPLOY, f.id, f.node) for f in after.values()]
    actions: dict[tuple[FragmentId, int], MarkerAction] = {}
    for fragment in before.values():
        if fragment.id in after:
            action = MarkerAction.UPDATE
        else:
            action = MarkerAction.UPDATE_THEN_DRAIN if fragment.id in with_state_away else MarkerAction.DRAIN
        actions[fragment.id, fragment.version] = action
    return Reconfiguration(number, change, tuple(contexts), Marker.of(number, actions), handovers, protocol)


def _handovers(change: DeploymentChange, plan: GlobalPlan) -> Iterator[Handover]:
    new = {o: f for f in change.fragments_after.values() for o in f.operators}
    for old in change.fragments_before.values():
        for operator in old.operators:
            target = new.get(operator)
            if target is not None and isinstance(plan[operator].spec, STATEFUL):
                yield Handover(operator, old.id, target.id, old.node, target.node)


def parts(change: DeploymentChange) -> list[DeploymentChange]:
    """A change cut into independent parts: fragments belong together that share operators or a channel."""
    fragments = sorted(change.fragments)
    leader = {f: f for f in fragments}

    def find(fragment: FragmentId) -> FragmentId:
        while leader[fragment] != fragment:
            leader[fragment] = leader[leader[fragment]]
            fragment = leader[fragment]
        return fragment

    def join(one: FragmentId, other: FragmentId) -> None:
        first, second = sorted((find(one), find(other)))
        leader[second] = first

    seen: dict[tuple[str, int], FragmentId] = {}
    for found in (*change.fragments_before.values(), *change.fragments_after.values()):
        for operator in found.operators:
            join(seen.setdefault(("operator", operator), found.id), found.id)
    for channel in (*change.channels_before.values(), *change.channels_after.values()):
        for end in (channel.sender, channel.receiver):
            if end in leader:
                join(seen.setdefault(("channel", channel.id), end), end)
    groups: dict[FragmentId, set[FragmentId]] = {}
    for fragment in fragments:
        groups.setdefault(find(fragment), set()).add(fragment)
    return [_part(change, members) for members in groups.values()]


def united(changes: Iterable[DeploymentChange]) -> DeploymentChange:
    """Independent parts as one change again."""
    found = list(changes)
    return DeploymentChange(
        {f: each for c in found for f, each in c.fragments_before.items()},
        {f: each for c in found for f, each in c.fragments_after.items()},
        {key: each for c in found for key, each in c.channels_before.items()},
        {key: each for c in found for key, each in c.channels_after.items()},
    )


def _part(change: DeploymentChange, members: set[FragmentId]) -> DeploymentChange:
    def fragments(of: Mapping[FragmentId, Fragment]) -> dict[FragmentId, Fragment]:
        return {f: fragment for f, fragment in of.items() if f in members}

    def channels(of: Mapping[ChannelKey, Channel]) -> dict[ChannelKey, Channel]:
        return {key: c for key, c in of.items() if c.sender in members or c.receiver in members}

    return DeploymentChange(
        fragments(change.fragments_before),
        fragments(change.fragments_after),
        channels(change.channels_before),
        channels(change.channels_after),
    )
