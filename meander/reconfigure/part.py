"""A site's share of a reconfiguration: the whole change, who runs what, and over which ways things come.

Every site of a change gets the same description and finds its own part in it: what runs here before and after, which
logs begin here, what has to be fetched. It is plain data; `sharing` acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from meander.deploy import freezing
from meander.deploy.contexts import Handover, Reconfiguration
from meander.deploy.fragments import Channel, ChannelKey, DeploymentChange, Fragment
from meander.deploy.freezing import Fork
from meander.deploy.markers import Marker
from meander.deploy.records import change_from_json, change_to_json
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.run.store.encoding import schema_from, schema_text

ELSEWHERE, HERE = NodeId(-1), NodeId(0)
"""Stand for where state comes from, as far as a site has to know."""


@dataclass(frozen=True)
class Part:
    """What a site does of one reconfiguration."""

    number: int
    site: str
    change: DeploymentChange
    """All of it, also what happens elsewhere."""
    where: Mapping[FragmentId, str]
    """The site of each fragment of the change, and of each that has a channel to or from one."""
    marker: Marker
    handovers: tuple[tuple[OperatorId, FragmentId, FragmentId], ...]
    """Operators with memory: from which fragment to which their state goes."""
    schemas: Mapping[ChannelId, pa.Schema]
    """Of the channels after the change."""
    ways: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    """Sites on the way to what is pulled, nearest first: `channels` by reader, `logs` by taker, `state` by place."""
    made: Mapping[FragmentId, list[Any]] = field(default_factory=dict)
    """What the fragments that begin here are made of."""
    outlets: Mapping[ChannelId, tuple[str, str]] = field(default_factory=dict)
    """Query and sink of the result channels that begin here."""

    # ---------------------------------------------------------------- what is here

    def is_here(self, fragment: FragmentId) -> bool:
        return self.where[fragment] == self.site

    @property
    def before(self) -> dict[FragmentId, Fragment]:
        return {f: each for f, each in self.change.fragments_before.items() if self.is_here(f)}

    @property
    def after(self) -> dict[FragmentId, Fragment]:
        return {f: each for f, each in self.change.fragments_after.items() if self.is_here(f)}

    def touches(self, channel: Channel) -> bool:
        """Whether one of its ends is here."""
        return self.is_here(channel.sender) or self.is_here(channel.receiver)

    def channels(self, of: Mapping[ChannelKey, Channel]) -> dict[ChannelKey, Channel]:
        return {key: c for key, c in of.items() if self.touches(c)}

    @property
    def local(self) -> DeploymentChange:
        """The change as far as it happens here."""
        return DeploymentChange(
            self.before,
            self.after,
            self.channels(self.change.channels_before),
            self.channels(self.change.channels_after),
        )

    @property
    def opened(self) -> dict[ChannelKey, Channel]:
        """Channels that did not exist before and begin here."""
        known = {c.id for c in self.change.channels_before.values()}
        found = self.change.channels_after.items()
        return {key: c for key, c in found if c.id not in known and self.is_here(c.sender)}

    @property
    def entering(self) -> list[Channel]:
        """Channels from here, from fragments that stay as they are, into the change: the marker is put in there."""
        inside = self.change.fragments_before
        return [
            c
            for c in self.change.channels_before.values()
            if c.receiver in inside and c.sender not in inside and self.is_here(c.sender)
        ]

    @property
    def given_away(self) -> list[Channel]:
        """Channels whose log is here and will be elsewhere."""
        after = {c.id: c for c in self.change.channels_after.values()}
        return [
            c
            for c in self.change.channels_before.values()
            if self.is_here(c.sender) and c.id in after and not self.is_here(after[c.id].sender)
        ]

    @property
    def taken_over(self) -> list[Channel]:
        """Channels whose log is elsewhere and will be here."""
        before = {c.id: c for c in self.change.channels_before.values()}
        return [
            c
            for c in self.change.channels_after.values()
            if self.is_here(c.sender) and c.id in before and not self.is_here(before[c.id].sender)
        ]

    @property
    def readings(self) -> list[Channel]:
        """Channels that go on after the change and are read here before it, by fragments that do not."""
        kept = {c.id for c in self.change.channels_after.values()}
        inside = self.change.fragments_before
        found = self.change.channels_before.values()
        return [c for c in found if c.id in kept and c.receiver in inside and self.is_here(c.receiver)]

    # ---------------------------------------------------------------- frozen fragments

    def forked(self, frozen: Collection[FragmentId]) -> list[Fork]:
        """Logs that begin here with what waits in others, because fragments of the change are frozen."""
        after = {c.id: c for c in self.change.channels_after.values()}
        return [f for f in freezing.forks(self.change, frozen) if self.is_here(after[f.channel].sender)]

    # ---------------------------------------------------------------- state

    def arriving(self) -> list[tuple[int, OperatorId, FragmentId]]:
        """State that comes here from elsewhere: its place among all handovers, the operator, the fragment."""
        return [
            (place, operator, target)
            for place, (operator, source, target) in enumerate(self.handovers)
            if self.is_here(target) and not self.is_here(source)
        ]

    def reconfiguration(self) -> Reconfiguration:
        """The change as the host here carries it out: state from elsewhere travels, all other changes its names."""
        handovers = [
            Handover(operator, source, target, HERE if self.is_here(source) else ELSEWHERE, HERE)
            for operator, source, target in self.handovers
            if self.is_here(target)
        ]
        return Reconfiguration(self.number, self.local, (), self.marker, tuple(handovers))

    # ---------------------------------------------------------------- as JSON

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "site": self.site,
            "change": change_to_json(self.change),
            "where": {str(f): site for f, site in self.where.items()},
            "marker": self.marker.to_json(),
            "handovers": [list(h) for h in self.handovers],
            "schemas": {str(c): schema_text(schema) for c, schema in self.schemas.items()},
            "ways": {kind: {k: list(way) for k, way in ways.items()} for kind, ways in self.ways.items()},
            "made": {str(f): rows for f, rows in self.made.items()},
            "outlets": {str(c): list(names) for c, names in self.outlets.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Part:
        return Part(
            int(data["number"]),
            str(data["site"]),
            change_from_json(data["change"]),
            {FragmentId(int(f)): str(site) for f, site in data["where"].items()},
            Marker.from_json(data["marker"]),
            tuple((OperatorId(o), FragmentId(s), FragmentId(t)) for o, s, t in data["handovers"]),
            {ChannelId(int(c)): schema_from(text) for c, text in data["schemas"].items()},
            data["ways"],
            {FragmentId(int(f)): rows for f, rows in data["made"].items()},
            {ChannelId(int(c)): (str(q), str(s)) for c, (q, s) in data["outlets"].items()},
        )
