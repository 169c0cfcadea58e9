"""Deployments and reconfigurations as plain JSON values, so that they survive a crash beside their data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange, Fragment
from meander.deploy.typed_json import codec_of

FRAGMENT, CHANNEL = codec_of(Fragment), codec_of(Channel)


def change_to_json(change: DeploymentChange) -> dict[str, Any]:
    return {
        "fragments": [
            [FRAGMENT.encode(f) for f in side.values()] for side in (change.fragments_before, change.fragments_after)
        ],
        "channels": [
            [CHANNEL.encode(c) for c in side.values()] for side in (change.channels_before, change.channels_after)
        ],
    }


def change_from_json(data: Mapping[str, Any]) -> DeploymentChange:
    before, after = ({f.id: f for f in map(FRAGMENT.decode, side)} for side in data["fragments"])
    old, new = (_keyed(map(CHANNEL.decode, side)) for side in data["channels"])
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
