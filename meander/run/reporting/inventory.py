"""The inventory of a host: fragments, channels and state, as plain values that can be compared or sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meander.model.ids import ChannelId, FragmentId
from meander.run.fragments.routing import Routing
from meander.run.store.store import Store


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """A fragment in a host's routing table."""

    version: int
    ports: tuple[ChannelId, ...]
    outputs: tuple[ChannelId, ...]


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """A channel in a host's store."""

    sender: FragmentId | None
    receiver: FragmentId | None
    is_cut: bool


@dataclass(frozen=True)
class Inventory:
    """The inventory of a host."""

    fragments: Mapping[FragmentId, FragmentFacts] = field(default_factory=dict)
    channels: Mapping[ChannelId, ChannelFacts] = field(default_factory=dict)
    state: frozenset[FragmentId] = frozenset()
    """Fragments that have state, also under numbers that are kept aside."""

    def to_json(self) -> dict[str, Any]:
        return {
            "fragments": [[f, x.version, list(x.ports), list(x.outputs)] for f, x in self.fragments.items()],
            "channels": [[c, x.sender, x.receiver, x.is_cut] for c, x in self.channels.items()],
            "state": sorted(self.state),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Inventory:
        return Inventory(
            {
                FragmentId(int(f)): FragmentFacts(int(v), _channels(ports), _channels(outputs))
                for f, v, ports, outputs in data["fragments"]
            },
            {ChannelId(int(c)): ChannelFacts(_end(s), _end(r), bool(cut)) for c, s, r, cut in data["channels"]},
            frozenset(FragmentId(int(f)) for f in data["state"]),
        )


def take_inventory(store: Store, routing: Routing) -> Inventory:
    """Takes the inventory of a host at this moment."""
    with store.lock:
        exchange = store.exchange
        fragments = {
            f: FragmentFacts(i.version, i.ports, tuple(dict.fromkeys(w.channel for out in i.outputs for w in out)))
            for f, i in routing.fragments.items()
        }
        specs = {channel: exchange.spec(channel) for channel in exchange.channels()}
        channels = {c: ChannelFacts(s.sender, s.receiver, exchange.is_cut(c)) for c, s in specs.items()}
        return Inventory(fragments, channels, frozenset(store.state.fragments()))


def _channels(values: list[Any]) -> tuple[ChannelId, ...]:
    return tuple(ChannelId(int(c)) for c in values)


def _end(value: Any) -> FragmentId | None:
    return None if value is None else FragmentId(int(value))
