"""The outputs of fragments that stay while channels from them come and go."""

from __future__ import annotations

from collections.abc import Iterable

from meander.deploy.fragments import Channel
from meander.model.ids import FragmentId
from meander.run.fragments.routing import Routing, Wire

Wires = dict[FragmentId, tuple[tuple[Wire, ...], ...]]


def with_channels(routing: Routing, channels: Iterable[Channel], wires: Wires | None = None) -> Wires:
    """The outputs of the senders with these channels; a sender that has them already is left out."""
    found: Wires = {} if wires is None else wires
    for channel in channels:
        sender = routing.fragments.get(channel.sender)
        if sender is None:
            continue
        outputs = list(found.get(channel.sender, sender.outputs))
        at = sender.bound.outputs.index(channel.upstream)
        if all(wire.channel != channel.id for wire in outputs[at]):
            outputs[at] = (*outputs[at], Wire(channel.id))
            found[channel.sender] = tuple(outputs)
    return found


def without_channels(routing: Routing, channels: Iterable[Channel], wires: Wires | None = None) -> Wires:
    """The outputs of the senders without these channels."""
    found: Wires = {} if wires is None else wires
    for channel in channels:
        sender = routing.fragments.get(channel.sender)
        if sender is not None:
            outputs = found.get(channel.sender, sender.outputs)
            found[channel.sender] = tuple(tuple(w for w in out if w.channel != channel.id) for out in outputs)
    return found
