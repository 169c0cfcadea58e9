"""An in-flight change on a host: the fragments that ran before, those that will run, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from meander.deploy.contexts import Handover
from meander.deploy.fragments import Channel, DeploymentChange
from meander.deploy.records import change_to_json
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.messages import Positions
from meander.reconfigure.part import Part, part_of_share
from meander.reconfigure.state import StateMove
from meander.run.fragments.routing import Installed
from meander.run.fragments.template import BoundFragment
from meander.run.installation import OUTSIDE, Installation
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.records.reconfigurations import DrainedRecord, PartRecord, ReconfigurationRecord
from meander.run.store.records.record import Change, forget_all
from meander.run.store.store import Store

STAGING = 1 << 40
"""State that arrives waits under a fragment number from here on until its reconfiguration takes effect."""
MOST_HANDOVERS = 10_000
REBUILT = 1 << 30
"""State that is built anew is so under a number from here on: steps count fragments in 32 bits."""


@dataclass(eq=False)
class InFlightChange:
    """One host's part of a reconfiguration under way."""

    part: Part
    installation: Installation
    old: Mapping[FragmentId, Installed]
    moving: tuple[Handover, ...] = ()
    """State that travels to here, from another host or from another node of this one."""
    is_armed: bool = False
    """Whether old fragments stop at the marker."""
    goes_ahead: bool = False
    """Whether state that is worth it has begun to be sent before the fragments stop."""
    is_marked: bool = False
    fetched: Positions | None = None
    """Where everything has stopped, once that is known and things are fetched."""
    added: list[ChannelId] = field(default_factory=list)
    """Logs that were begun here to take others over: they go when the change is aborted."""
    moves: dict[Handover, StateMove] = field(default_factory=dict)
    sent_ahead: dict[Handover, int] = field(default_factory=dict)
    """Bytes of state that were sent before the marker."""
    preparing: Future[None] | None = None
    """Plans that are being made ready."""
    frozen: set[FragmentId] = field(default_factory=set)
    """Old fragments that are paused: they stay where their last commit left them."""
    times: dict[OperatorId, int] = field(default_factory=dict)
    """For each operator whose results leave an overlap: the time at which old ends and new begins."""
    is_forked: bool = False
    """Whether old and new fragments run side by side."""
    is_complete: bool = False
    """Whether old fragments that do have said all that is theirs."""
    windows_s: float = 0.0
    """How long the windows that had begun need at least, if event time runs like the clock."""

    @property
    def number(self) -> int:
        return self.part.number

    @property
    def new(self) -> dict[FragmentId, Installed]:
        return {f.fragment: f for f in self.installation.fragments}

    def staging(self, handover: Handover) -> FragmentId:
        return FragmentId(STAGING + self.number * MOST_HANDOVERS + self.part.places[handover])

    def rebuilt(self, handover: Handover) -> FragmentId:
        """Under which number the state of an old fragment is built anew, for one operator of it."""
        return FragmentId(REBUILT + (self.staging(handover) - STAGING) % REBUILT)

    def keys(self, handover: Handover) -> dict[int, int]:
        """Old to new numbers of the state tables of an operator; what comes from elsewhere has the new ones already."""
        new = keys_of(handover.operator, self.new[handover.target].bound)
        old = self.old.get(handover.source) if self.part.is_here(handover.source) else None
        return dict(zip(new if old is None else keys_of(handover.operator, old.bound), new, strict=True))

    @property
    def gone_ports(self) -> list[ChannelId]:
        """Channels of sources that nobody reads any more."""
        kept = {p for f in self.installation.fragments for p in f.ports}
        return [p for f in self.old.values() for p in f.ports if p >= OUTSIDE and p not in kept]

    @property
    def has_logs_that_end(self) -> bool:
        """Whether logs that are given away stay as they are: nobody appends to them any more."""
        return self.is_complete or not self.part.overlaps

    @property
    def lets_senders_wait(self) -> bool:
        """Whether channels that are new are fed from the effect on only: nothing stops, so there is no marker."""
        return not self.part.change.fragments_before

    @property
    def record(self) -> PartRecord:
        """Its record while it is under way."""
        fetched = None if self.fetched is None else encode(self.fetched)
        times = dict(self.times) if self.times else None
        return PartRecord(self.number, encode(self.part), self.is_marked, fetched, tuple(self.added), times)

    @property
    def marked_record(self) -> PartRecord | ReconfigurationRecord:
        """The same with its markers in the channels; one that is alone can only be aborted, which takes less."""
        if self.part.is_alone:
            return ReconfigurationRecord(self.number, self.part.change)
        return replace(self.record, is_marked=True)

    def forgotten(self) -> list[Change]:
        """Forgets what was under way: it is of no use afterwards."""
        drained = forget_all(DrainedRecord, ((self.number, f) for f in self.part.before))
        return [(ReconfigurationRecord if self.part.is_alone else PartRecord).forgotten(self.number), *drained]


def parts_under_way(store: Store) -> list[tuple[Part, PartRecord]]:
    """The parts that were under way, also those that earlier versions wrote down."""
    found = [(_part_of(record.part), record) for record in store.records(PartRecord).values()]
    for record in store.records(ReconfigurationRecord).values():
        told = {"number": record.number, "change": change_to_json(record.change)}
        found.append((part_of_share(told), PartRecord(record.number, told, is_marked=True)))
    return found


def _part_of(told: Mapping[str, Any]) -> Part:
    return part_of_share(told) if "ways" in told else decode(Part, told)


def keys_of(operator: OperatorId, bound: BoundFragment) -> list[int]:
    """The numbers of an operator's state tables in a fragment."""
    stage = next(stage for stage, o in bound.stateful.items() if o == operator)
    return [stage * STATES_PER_STAGE + t for t in range(len(bound.template.stages[stage].states))]


def drained_although_cut(change: DeploymentChange) -> list[Channel]:
    """Cut channels of a change that the old fragments must empty although there is no route.

    Nobody reads them afterwards as they are. What is in them is at the sender's, and so will be the operator that has
    to read it: the old fragment stands in for it. A channel that simply gets another reader is left alone; the new
    reader finds everything there.
    """
    inside = change.fragments_before
    if not any(c.is_cut for c in change.channels_before.values()):
        return []
    kept = Counter(c.upstream for c in change.channels_after.values() if c.sender not in change.fragments)
    readers = Counter(c.upstream for c in change.channels_before.values() if c.receiver in inside)
    found: list[Channel] = []
    for channel in change.channels_before.values():
        if channel.is_cut and channel.receiver in inside:
            one_to_one = readers[channel.upstream] == 1 and kept[channel.upstream] == 1
            if channel.sender in inside or not one_to_one:
                found.append(channel)
    return found
