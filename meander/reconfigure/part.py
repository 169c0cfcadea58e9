"""A participant's part of a reconfiguration: the whole change, the host of each fragment, the routes to its sources.

Every host of a change gets the same description and finds its own part in it: the fragments that run there before and
after, the logs that begin there, the state and logs that it fetches. It is plain data; `agent` acts on it. A change
that touches one host only has one part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from meander.deploy import freezing
from meander.deploy.contexts import Handover
from meander.deploy.fragments import Channel, DeploymentChange, Fragment
from meander.deploy.freezing import Fork
from meander.deploy.markers import Marker
from meander.deploy.records import change_from_json
from meander.model.ids import ChannelId, FragmentId, NodeId, OperatorId
from meander.reconfigure.codec import LOCAL
from meander.run.channels.flight.proof import HOME
from meander.run.installation import Installation
from meander.run.store.encoding import schema_from

Route = tuple[str, ...]
"""The sites on the way to something, nearest first; the last one has it."""
NOWHERE = NodeId(-1)


@dataclass(frozen=True, slots=True)
class FetchRoutes:
    """The routes of everything that one site fetches from another."""

    channels: Mapping[ChannelId, Route] = field(default_factory=dict)
    """From the reader of a channel to its log, afterwards."""
    logs: Mapping[ChannelId, Route] = field(default_factory=dict)
    """From the site that takes a log over to the one that has it."""
    state: Mapping[int, Route] = field(default_factory=dict)
    """By place among the handovers."""


@dataclass(frozen=True, eq=False)
class Part:
    """One host's part of one reconfiguration."""

    number: int
    site: str
    change: DeploymentChange
    """All of it, also the changes at other sites."""
    where: Mapping[FragmentId, str]
    """The site of each fragment of the change, and of each that has a channel to or from one."""
    marker: Marker
    handovers: tuple[Handover, ...]
    """Operators with memory, and the fragments between which their state goes."""
    overlaps: bool = False
    """Whether operators run at both places for a while, instead of moving their state."""
    strategy: str | None = None
    """The strategy by which state moves within a host, if it is not the usual one."""
    schemas: Mapping[ChannelId, pa.Schema] = field(default_factory=dict)
    """Schemas of the channels after the change, for a host without a plan."""
    routes: FetchRoutes = field(default_factory=FetchRoutes)
    serialised: Mapping[FragmentId, list[Any]] = field(default_factory=dict)
    """The operators of the fragments that begin here, for a host without a plan."""
    results: Mapping[ChannelId, tuple[str, str]] = field(default_factory=dict)
    """Query and sink of the result channels that begin here, for a host that has to deliver them by itself."""
    installation: Installation | None = field(default=None, metadata=LOCAL)
    """The fragments that begin here, already bound; it never leaves the process."""

    # ---------------------------------------------------------------- here and elsewhere

    @cached_property
    def is_alone(self) -> bool:
        """Whether no other host takes part."""
        return all(site == self.site for site in self.where.values())

    def is_here(self, fragment: FragmentId) -> bool:
        return self.where[fragment] == self.site

    @cached_property
    def before(self) -> Mapping[FragmentId, Fragment]:
        found = self.change.fragments_before
        return found if self.is_alone else {f: each for f, each in found.items() if self.is_here(f)}

    @cached_property
    def after(self) -> Mapping[FragmentId, Fragment]:
        found = self.change.fragments_after
        return found if self.is_alone else {f: each for f, each in found.items() if self.is_here(f)}

    def touches(self, channel: Channel) -> bool:
        """Whether one of its ends is here."""
        return self.is_here(channel.sender) or self.is_here(channel.receiver)

    @cached_property
    def local(self) -> DeploymentChange:
        """The change as far as it happens here."""
        if self.is_alone:
            return self.change
        both = (self.change.channels_before, self.change.channels_after)
        before, after = ({key: c for key, c in side.items() if self.touches(c)} for side in both)
        return DeploymentChange(self.before, self.after, before, after)

    # ---------------------------------------------------------------- channels

    @cached_property
    def _ids_before(self) -> frozenset[ChannelId]:
        return frozenset(c.id for c in self.change.channels_before.values())

    @cached_property
    def _by_id_after(self) -> Mapping[ChannelId, Channel]:
        return {c.id: c for c in self.change.channels_after.values()}

    @cached_property
    def opened(self) -> list[Channel]:
        """Channels that did not exist before and whose log begins here."""
        known = self._ids_before
        return [c for c in self.change.channels_after.values() if c.id not in known and self.is_here(c.sender)]

    @cached_property
    def closed(self) -> list[Channel]:
        """Channels with an end here that do not exist afterwards, or have no end here any more."""
        kept = {c.id for c in self.local.channels_after.values()}
        return [c for c in self.local.channels_before.values() if c.id not in kept]

    @cached_property
    def entering(self) -> list[Channel]:
        """Channels from here, from fragments that stay as they are, into the change: the marker is put in there."""
        inside = self.change.fragments_before
        found = self.change.channels_before.values()
        return [c for c in found if c.receiver in inside and c.sender not in inside and self.is_here(c.sender)]

    @cached_property
    def given_away(self) -> list[Channel]:
        """Channels whose log is here and will be elsewhere."""
        after = self._by_id_after
        found = (c for c in self.local.channels_before.values() if c.id in after and self.is_here(c.sender))
        return [] if self.is_alone else [c for c in found if not self.is_here(after[c.id].sender)]

    @cached_property
    def taken_over(self) -> list[Channel]:
        """Channels whose log is elsewhere and will be here."""
        before = {} if self.is_alone else {c.id: c for c in self.change.channels_before.values()}
        found = (c for c in self.local.channels_after.values() if c.id in before and self.is_here(c.sender))
        return [c for c in found if not self.is_here(before[c.id].sender)]

    @cached_property
    def read_elsewhere(self) -> list[Channel]:
        """Channels that are read here before the change, by fragments of it, and elsewhere after it."""
        inside, after = self.before, self._by_id_after
        found = () if self.is_alone else self.local.channels_before.values()
        return [c for c in found if c.receiver in inside and c.id in after and not self.is_here(after[c.id].receiver)]

    def forked(self, frozen: Collection[FragmentId]) -> list[Fork]:
        """Logs that begin here with what waits in others, because fragments of the change are frozen."""
        if not frozen:
            return []
        after = self._by_id_after
        return [f for f in freezing.forks(self.change, frozen) if self.is_here(after[f.channel].sender)]

    # ---------------------------------------------------------------- state

    @cached_property
    def places(self) -> Mapping[Handover, int]:
        """Handovers by their place, which is the same at every site."""
        return {handover: place for place, handover in enumerate(self.handovers)}

    @cached_property
    def arriving(self) -> list[Handover]:
        """State that comes here from elsewhere."""
        return [h for h in self.handovers if self.is_here(h.target) and not self.is_here(h.source)]

    @property
    def fetches(self) -> bool:
        """Whether something has to come here from elsewhere before the change can take effect."""
        return bool(self.taken_over or self.arriving)


def part_of_share(data: Mapping[str, Any]) -> Part:
    """The part that version 2 of the protocol called a share and wrote down in another form."""
    change = change_from_json(data["change"])
    channels = (*change.channels_before.values(), *change.channels_after.values())
    where = dict.fromkeys([*change.fragments, *(f for c in channels for f in (c.sender, c.receiver))], HOME)
    where |= {FragmentId(int(f)): str(site) for f, site in data.get("where", {}).items()}
    rows = data.get("handovers", ())
    ways = {kind: {int(k): tuple(way) for k, way in ways.items()} for kind, ways in data.get("ways", {}).items()}
    return Part(
        int(data["number"]),
        str(data.get("site", HOME)),
        change,
        where,
        Marker.from_json(data["marker"]) if "marker" in data else Marker(int(data["number"]), ()),
        tuple(Handover(OperatorId(o), FragmentId(s), FragmentId(t), NOWHERE, NOWHERE) for o, s, t in rows),
        schemas={ChannelId(int(c)): schema_from(text) for c, text in data.get("schemas", {}).items()},
        routes=FetchRoutes(**ways),  # type: ignore[arg-type]
        serialised={FragmentId(int(f)): rows for f, rows in data.get("made", {}).items()},
        results={ChannelId(int(c)): (str(q), str(s)) for c, (q, s) in data.get("outlets", {}).items()},
    )
