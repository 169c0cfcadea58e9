"""Deployments and reconfigurations as plain JSON values, so that they survive a crash beside their data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange, Fragment
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.model.topology.path_cache import Path


def fragment_to_json(fragment: Fragment) -> list[Any]:
    return [fragment.id, fragment.version, fragment.node, list(fragment.operators), list(fragment.outputs)]


def fragment_from_json(row: list[Any]) -> Fragment:
    number, version, node, operators, outputs = row
    return Fragment(
        FragmentId(number), version, NodeId(node), tuple(map(OperatorId, operators)), tuple(map(OperatorId, outputs))
    )


def channel_to_json(channel: Channel) -> list[Any]:
    path = None if channel.path is None else [channel.path.nodes, channel.path.arcs, channel.path.latency_ms]
    return [channel.id, channel.upstream, channel.sender, channel.receiver, path, channel.is_cut]


def channel_from_json(row: list[Any]) -> Channel:
    number, upstream, sender, receiver, path, is_cut = row
    way = None if path is None else Path(tuple(map(NodeId, path[0])), tuple(path[1]), path[2])
    return Channel(ChannelId(number), OperatorId(upstream), FragmentId(sender), FragmentId(receiver), way, is_cut)


def change_to_json(change: DeploymentChange) -> dict[str, Any]:
    return {
        "fragments": [
            [fragment_to_json(f) for f in side.values()] for side in (change.fragments_before, change.fragments_after)
        ],
        "channels": [
            [channel_to_json(c) for c in side.values()] for side in (change.channels_before, change.channels_after)
        ],
    }


def change_from_json(data: Mapping[str, Any]) -> DeploymentChange:
    before, after = ({f.id: f for f in map(fragment_from_json, side)} for side in data["fragments"])
    old, new = (_keyed(map(channel_from_json, side)) for side in data["channels"])
    return DeploymentChange(before, after, old, new)


def deployment_from(fragments: Iterable[Fragment], channels: Iterable[Channel]) -> Deployment:
    """The deployment of recorded fragments and channels; numbers go on behind the highest."""
    deployment = Deployment()
    found = {f.id: f for f in fragments}
    deployment.apply(DeploymentChange(fragments_after=found, channels_after=_keyed(channels)))
    deployment.next_fragment = max(found, default=0) + 1
    deployment.next_channel = max((c.id for c in deployment.channels.values()), default=0) + 1
    return deployment


def _keyed(channels: Iterable[Channel]) -> dict[ChannelKey, Channel]:
    return {(c.upstream, c.receiver): c for c in channels}
