"""Freezing: the part of a paused fragment in a change, although it never reaches a marker.

A fragment that data has broken stays where its last commit left it. It counts as drained there, if everything that it
had not consumed finds its way to the same operators afterwards: its successors are made of its operators alone, and
each of its input channels goes on to one of them. A second successor that reads the same operator gets a fork: a
channel of its own with the same records in it. Input of operators that ended is skipped. All of that is found out from
the change alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from meander.deploy.fragments import Channel, DeploymentChange, Fragment
from meander.model.ids import ChannelId, FragmentId, OperatorId


@dataclass(frozen=True, slots=True)
class Fork:
    """A channel that begins with all that waits in another one."""

    channel: ChannelId
    of: ChannelId


def may_freeze(change: DeploymentChange, fragment: FragmentId) -> bool:
    """Whether a fragment that a change replaces or ends may stay where it is until the change takes effect."""
    old = change.fragments_before[fragment]
    mine, successors = set(old.operators), list(_successors(change, old))
    if any(not mine.issuperset(s.operators) for s in successors):
        return False
    known = {c.id for c in change.channels_before.values()}
    for channel in _inputs(change, fragment):
        followers = [change.channels_after.get((channel.upstream, s.id)) for s in successors]
        if any(c is not None and c.id != channel.id and c.id in known for c in followers):
            return False  # it would go on with what another fragment has left
    return True


def forks(change: DeploymentChange, frozen: Collection[FragmentId]) -> list[Fork]:
    """Channels that have to begin with the waiting tuples of frozen fragments."""
    known = {c.id for c in change.channels_before.values()}
    return [
        Fork(c.id, channel.id)
        for f in frozen
        for channel in _inputs(change, f)
        for s in _successors(change, change.fragments_before[f])
        if (c := change.channels_after.get((channel.upstream, s.id))) is not None and c.id not in known
    ]


def skipped(change: DeploymentChange, frozen: Collection[FragmentId]) -> list[Channel]:
    """Channels of frozen fragments that go on for others: their tuples before the marker have no reader."""
    after = {c.id: c for c in change.channels_after.values()}
    found: list[Channel] = []
    for f in frozen:
        mine = set(change.fragments_before[f].operators)
        for channel in _inputs(change, f):
            reader = change.fragments_after.get(after[channel.id].receiver) if channel.id in after else None
            if channel.id in after and (reader is None or not mine.issuperset(reader.operators)):
                found.append(channel)
    return found


def heirs(
    change: DeploymentChange, failed: Mapping[FragmentId, Collection[OperatorId]]
) -> dict[FragmentId, FragmentId]:
    """For each new fragment that has an operator which failed, the old fragment in which it did."""
    found: dict[FragmentId, FragmentId] = {}
    for old, operators in failed.items():
        wanted = set(operators) or set(change.fragments_before[old].operators)
        for new in change.fragments_after.values():
            if not wanted.isdisjoint(new.operators):
                found[new.id] = old
    return found


def _successors(change: DeploymentChange, old: Fragment) -> Iterator[Fragment]:
    mine = set(old.operators)
    return (f for f in change.fragments_after.values() if not mine.isdisjoint(f.operators))


def _inputs(change: DeploymentChange, fragment: FragmentId) -> Iterator[Channel]:
    return (c for c in change.channels_before.values() if c.receiver == fragment)
