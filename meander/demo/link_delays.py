"""The share of emulated links in a result's latency: the delays of the channels on its longest way from a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.host import Host


def longest_delays_ms(
    exchange: EmbeddedExchange, ports: Mapping[FragmentId, Sequence[ChannelId]], channels: Iterable[ChannelId]
) -> dict[ChannelId, int]:
    """For each channel the delays up to its reader, by the fragments' ports. Channels that are gone are left out."""
    known = set(exchange.channels())
    found: dict[ChannelId, int] = {}

    def up_to(channel: ChannelId) -> int:
        if channel not in found:
            spec = exchange.spec(channel)
            before = ports.get(spec.sender, ()) if spec.sender is not None else ()
            found[channel] = spec.delay_ms + max((up_to(c) for c in before if c in known), default=0)
        return found[channel]

    return {channel: up_to(channel) for channel in channels if channel in known}


def sink_delays_ms(host: Host, channels: Iterable[ChannelId]) -> list[int]:
    """The delays of emulated links on the longest way to each of these sinks, as fragments are placed now."""
    ports = {number: each.ports for number, each in host.routing.fragments.items()}
    return list(longest_delays_ms(host.store.exchange, ports, channels).values())
