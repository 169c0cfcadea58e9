"""The records of the coordinator's own host about fragments and channels that are at sites."""

from __future__ import annotations

from collections.abc import Mapping

from meander.deploy.fragments import Deployment, DeploymentChange
from meander.deploy.records import deployment_from
from meander.model.ids import FragmentId
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    RemoteChannelRecord,
    RemoteFragmentRecord,
)
from meander.run.store.records.record import Change, forget_all
from meander.run.store.store import Store


def remote_records(change: DeploymentChange, sites: Mapping[FragmentId, str]) -> list[Change]:
    """Records of fragments and channels of a change that are at sites as a whole."""
    records = forget_all(RemoteFragmentRecord, change.fragments_before)
    records += forget_all(RemoteChannelRecord, (c.id for c in change.channels_before.values()))
    records += [RemoteFragmentRecord(sites[f.id], f) for f in change.fragments_after.values() if f.id in sites]
    between = (c for c in change.channels_after.values() if c.sender in sites and c.receiver in sites)
    return [*records, *map(RemoteChannelRecord, between)]


def recorded(store: Store) -> Deployment:
    """The deployment as the store of the own host knows it."""
    fragments = [r.fragment for r in store.records(FragmentRecord).values()]
    fragments += [r.fragment for r in store.records(RemoteFragmentRecord).values()]
    channels = [r.channel for r in store.records(ChannelRecord).values()]
    channels += [r.channel for r in store.records(RemoteChannelRecord).values()]
    return deployment_from(fragments, channels)
