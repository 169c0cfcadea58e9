"""A reconfiguration under way on a host: what was there, what will be, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from meander.deploy import freezing
from meander.deploy.contexts import Handover, Reconfiguration
from meander.deploy.fragments import Channel, DeploymentChange
from meander.deploy.freezing import Fork
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.state import StateMove
from meander.run.fragments.routing import Installed
from meander.run.fragments.template import BoundFragment
from meander.run.installation import OUTSIDE, Installation
from meander.run.step.stage_scheduler import STATES_PER_STAGE

STAGING = 1 << 40
"""State that arrives waits under a fragment number from here on until its reconfiguration takes effect."""
MOST_HANDOVERS = 10_000
REBUILT = 1 << 30
"""State that is built anew is so under a number from here on: steps count fragments in 32 bits."""


@dataclass
class InFlightChange:
    """One reconfiguration under way."""

    reconfiguration: Reconfiguration
    installation: Installation
    old: Mapping[FragmentId, Installed]
    started: float
    marked: float = 0.0
    drained: float | None = None
    moves: dict[Handover, StateMove] = field(default_factory=dict)
    preparing: Future[None] | None = None
    """While its plans are made ready: no marker is under way then."""
    problem: str | None = None
    """Why it is taken back, from the first attempt to do so on."""
    frozen: set[FragmentId] = field(default_factory=set)
    """Old fragments that are paused: they stay where their last commit left them."""
    windows_s: float = 0.0
    """How long the windows that had begun need at least, if event time runs like the clock."""

    @property
    def number(self) -> int:
        return self.reconfiguration.number

    @property
    def new(self) -> dict[FragmentId, Installed]:
        return {f.fragment: f for f in self.installation.fragments}

    @property
    def travelling(self) -> list[Handover]:
        return [h for h in self.reconfiguration.handovers if h.travels]

    @property
    def is_complete(self) -> bool:
        """Whether all old fragments have stopped, and the state of every operator that travels has arrived."""
        arrived = all(h in self.moves and self.moves[h].done for h in self.travelling)
        return self.drained is not None and arrived

    @property
    def forks(self) -> list[Fork]:
        """Channels here that begin with what frozen fragments had not consumed."""
        return freezing.forks(self.reconfiguration.change, self.frozen)

    @property
    def skipped(self) -> list[Channel]:
        """Channels here in which what frozen fragments had not consumed is for nobody."""
        return freezing.skipped(self.reconfiguration.change, self.frozen)

    def staging(self, handover: Handover) -> FragmentId:
        place = self.reconfiguration.handovers.index(handover)
        return FragmentId(STAGING + self.number * MOST_HANDOVERS + place)

    def rebuilt(self, handover: Handover) -> FragmentId:
        """Under which number the state of an old fragment is built anew, for one operator of it."""
        return FragmentId(REBUILT + (self.staging(handover) - STAGING) % REBUILT)

    def keys(self, handover: Handover) -> dict[int, int]:
        """Old to new numbers of the state tables of an operator that is handed over."""
        return _keys(handover.operator, self.old[handover.source].bound, self.new[handover.target].bound)


def cut_from_the_start(course: InFlightChange) -> list[Channel]:
    """New channels for which there is no way yet."""
    return [c for c in course.reconfiguration.opened.values() if c.is_cut] if course.old else []


def to_be_drained(course: InFlightChange) -> list[Channel]:
    """Cut channels that the old fragments must empty although there is no way: nobody reads them as they are later.

    What is in them is at the sender's, and so will be the operator that has to read it: the old fragment stands in for
    it. A channel that simply gets another reader is left alone; the new reader finds everything there.
    """
    return drained_although_cut(course.reconfiguration.change)


def drained_although_cut(change: DeploymentChange) -> list[Channel]:
    """Cut channels of a change that nobody reads afterwards as they are."""
    inside = change.fragments_before
    kept = Counter(c.upstream for c in change.channels_after.values() if c.sender not in change.fragments)
    readers = Counter(c.upstream for c in change.channels_before.values() if c.receiver in inside)
    found: list[Channel] = []
    for channel in change.channels_before.values():
        if channel.is_cut and channel.receiver in inside:
            one_to_one = readers[channel.upstream] == 1 and kept[channel.upstream] == 1
            if channel.sender in inside or not one_to_one:
                found.append(channel)
    return found


def gone_ports(course: InFlightChange) -> list[ChannelId]:
    """Channels of sources that nobody reads any more."""
    kept = {p for f in course.installation.fragments for p in f.ports}
    return [p for f in course.old.values() for p in f.ports if p >= OUTSIDE and p not in kept]


def _keys(operator: OperatorId, old: BoundFragment, new: BoundFragment) -> dict[int, int]:
    """Old to new numbers of an operator's state tables."""
    first = next(stage for stage, o in old.stateful.items() if o == operator)
    then = next(stage for stage, o in new.stateful.items() if o == operator)
    tables = range(len(old.template.stages[first].states))
    return {first * STATES_PER_STAGE + t: then * STATES_PER_STAGE + t for t in tables}
