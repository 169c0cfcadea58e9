"""The records of the coordinator's own host about what is deployed, at sites too, and which numbers are next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meander.deploy.fragments import Channel, Deployment, DeploymentChange
from meander.deploy.records import deployment_from
from meander.model.ids import FragmentId
from meander.run.store.commit import Commit
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    NumbersRecord,
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


def remember_numbers(store: Store, deployment: Deployment, reconfiguration: int) -> None:
    """Remembers the next numbers of fragments, channels and reconfigurations, before any of them is given."""
    numbers = NumbersRecord(deployment.next_fragment, deployment.next_channel, reconfiguration)
    store.commit(Commit(records=(numbers,)))


def numbers(store: Store) -> NumbersRecord:
    """The next numbers."""
    return store.record(NumbersRecord) or NumbersRecord(1, 1, 1)


def remember_remote(store: Store, channels: Iterable[Channel], records: Iterable[Change] = ()) -> None:
    """Remembers channels between sites as they are now."""
    found = (*records, *map(RemoteChannelRecord, channels))
    if found:
        store.commit(Commit(records=found))
