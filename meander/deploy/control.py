"""Control messages of a reconfiguration: orders to nodes and confirmations, each message once.

Sizes are those of the plain JSON values that the records of a deployment have; a confirmation names its order. State is
not among them: it is counted where it travels.
"""

from __future__ import annotations

import json
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.deploy.records import CHANNEL, FRAGMENT

CONFIRMATION = 16
"""Bytes of a confirmation: number of the reconfiguration 8, fragment 8."""
TIME = 24
"""Bytes that tell a fragment where its share of a channel ends or begins: channel 8, operator 8, time 8."""
COPY = 16
"""Bytes that tell a sender to feed another channel, or to stop: operator 8, channel 8."""


def control_of(reconfiguration: Reconfiguration) -> tuple[int, int]:
    """Messages and bytes."""
    change = reconfiguration.change
    both = {**change.fragments_before, **change.fragments_after}
    sizes: list[int] = []
    for context in reconfiguration.contexts:
        fragment = both[context.fragment]
        around = [c for c in change.channels_after.values() if fragment.id in (c.sender, c.receiver)]
        sizes.append(_size([context.action.value, FRAGMENT.encode(fragment), *map(CHANNEL.encode, around)]))
        sizes.append(CONFIRMATION)
    if reconfiguration.protocol.overlaps:
        inside, after = change.fragments_before, change.fragments_after
        entering = [c for c in change.channels_after.values() if c.receiver in after and c.sender not in after]
        leaving = [c for c in change.channels_before.values() if c.sender in inside and c.receiver not in inside]
        sizes += [COPY] * 2 * len(entering) + [TIME] * 2 * len(leaving)
    else:
        reached = [c for c in change.channels_before.values() if c.receiver in change.fragments_before]
        sizes += [_size(reconfiguration.marker.to_json())] * len(reached)
    return len(sizes), sum(sizes)


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
