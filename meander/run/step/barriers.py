"""Barriers: the positions where fragments of a group have to stop, because a reconfiguration waits for them.

A fragment reads each port up to the reconfiguration's marker. Ports that are there wait for the others; when all are,
the fragment has done exactly what lies before the marker. A port whose channel is cut at the moment counts as there:
its tuples wait at the sender for the fragment's successor.
"""

from __future__ import annotations

from collections.abc import Mapping

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId
from meander.run.channels.base import Int64s
from meander.run.channels.embedded import EmbeddedExchange
from meander.run.fragments.routing import Group, Routing

Bounds = tuple[Int64s, Int64s]

NOTHING: Mapping[ChannelId, Marker] = {}


class Barriers:
    """Positions of markers by fragment (its index in the group) and port; empty for most groups."""

    def __init__(
        self, group: Group, routing: Routing, exchange: EmbeddedExchange, passing: Mapping[ChannelId, Marker] = NOTHING
    ) -> None:
        """`passing` are markers that earlier groups of the same step sent, behind all that they handed over."""
        awaiting = routing.awaiting
        self.markers: dict[int, Marker] = {}
        self._positions: dict[int, list[int]] = {}
        self._is_there: dict[int, list[bool]] = {}
        for i, fragment in enumerate(group.fragments if awaiting else ()):
            marker = awaiting.get(fragment.fragment)
            if marker is not None:
                self.markers[i] = marker
                self._positions[i] = exchange.cuts(fragment.ports, {marker.reconfiguration}).tolist()
                self._is_there[i] = [
                    (c in passing and passing[c].reconfiguration == marker.reconfiguration) or exchange.is_cut(c)
                    for c in fragment.ports
                ]

    def limit(self, bounds: Mapping[int, Bounds]) -> None:
        """Ends every range before its marker; `bounds` by port."""
        for i, positions in self._positions.items():
            for port, position in enumerate(positions):
                if position >= 0:
                    bounds[port][1][i] = min(bounds[port][1][i], position)

    def are_reached(self, i: int, positions: Mapping[int, int]) -> bool:
        """Whether the marker is next in every port when the ports are at these positions."""
        if i not in self.markers:
            return False
        mine, there = self._positions[i], self._is_there[i]
        return all(at == mine[port] or there[port] for port, at in positions.items())

    def behind(self, i: int, ports: tuple[ChannelId, ...]) -> dict[ChannelId, int]:
        """Positions behind the fragment's markers, by channel."""
        return {c: p + 1 for c, p in zip(ports, self._positions[i], strict=True) if p >= 0}
