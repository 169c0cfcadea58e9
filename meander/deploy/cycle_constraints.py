"""Cycle constraints: parts of a change that must not take effect at different times.

Parts that take effect one after the other are, for a while, a mixture of old and new. Each deployment as a whole is
free of cycles, but a mixture need not be: then its fragments would wait for each other's markers. Parts whose old and
new channels together make a cycle are therefore one part, and a part waits for one in flight with which it would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from meander.deploy.components import strongly_connected
from meander.deploy.contexts import parts, united
from meander.deploy.fragments import Deployment, DeploymentChange
from meander.model.ids import FragmentId

Cycle = set[FragmentId]


def cycles_between(
    deployment: Deployment, under_way: Iterable[DeploymentChange], wanted: Iterable[DeploymentChange]
) -> list[Cycle]:
    """Cycles that the old and new channels of some changes make, together with all that stays as it is.

    `deployment` is what will run when the changes in flight are done.
    """
    changes = list(wanted)
    more: dict[FragmentId, dict[FragmentId, None]] = {}
    for channels in (*(c.channels_before for c in under_way), *(c.channels_after for c in changes)):
        for channel in channels.values():
            more.setdefault(channel.sender, {})[channel.receiver] = None

    def readers(fragment: FragmentId) -> list[FragmentId]:
        here = [c.receiver for _, c in deployment.channels_of(fragment) if c.sender == fragment]
        return [*here, *more.get(fragment, ())]

    return strongly_connected([f for c in changes for f in sorted(c.fragments)], readers)


def independent(
    change: DeploymentChange, deployment: Deployment, under_way: Iterable[DeploymentChange]
) -> list[DeploymentChange]:
    """A change cut into parts that may take effect in any order."""
    found = parts(change)
    if len(found) < 2:
        return found
    for cycle in cycles_between(deployment, under_way, found):
        through = [p for p in found if not cycle.isdisjoint(p.fragments)]
        if len(through) > 1:
            found = [p for p in found if cycle.isdisjoint(p.fragments)] + [united(through)]
    return found


def share_a_cycle(some: Collection[Cycle], one: DeploymentChange, other: DeploymentChange) -> bool:
    """Whether a cycle goes through both changes."""
    return any(not c.isdisjoint(one.fragments) and not c.isdisjoint(other.fragments) for c in some)


def has_own_cycle(some: Collection[Cycle], change: DeploymentChange) -> bool:
    """Whether the fragments before and after the change would wait for each other if both ran."""
    return any(not c.isdisjoint(change.fragments_before) and not c.isdisjoint(change.fragments_after) for c in some)
