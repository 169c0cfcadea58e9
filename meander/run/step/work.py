"""The work in progress of a step: the batch of a group, and the commit as it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from meander.deploy.markers import Marker
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelAppend, Int64s
from meander.run.fragments.routing import Group, Installed
from meander.run.fragments.stage_nodes import StageEdge
from meander.run.fragments.template import Template
from meander.run.frames import FRAGMENT
from meander.run.store.commit import Commit, Passed, StateAppend, StateDrop, Writer
from meander.run.store.records.reconfigurations import DrainedRecord
from meander.run.store.records.record import Change


@dataclass(slots=True)
class StepReport:
    """The result of a step."""

    batch_id: int
    repeated: bool = False
    tuples_in: int = 0
    tuples_out: int = 0
    late: int = 0
    rounds: int = 0
    """Rounds of stages that ran on Spark: how long the longest way through the step was."""
    fragments: int = 0
    drained: int = 0
    """Fragments that have reached a marker, and wait for their successors."""
    searched: int = 0
    """Times that parts of a group were run alone to find out which of them fails."""
    seconds: float = 0.0

    def take(self, other: StepReport) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(other, f.name))


@dataclass(slots=True)
class GroupHandover:
    """Tuples on their way from one group to a later one within the step."""

    table: pa.Table
    watermark: int


@dataclass(slots=True)
class Work:
    """The commit as it grows."""

    consumed: dict[ChannelId, int] = field(default_factory=dict)
    passed: list[tuple[ChannelId, int, int]] = field(default_factory=list)
    appends: list[ChannelAppend] = field(default_factory=list)
    drops: list[StateDrop] = field(default_factory=list)
    states: list[StateAppend] = field(default_factory=list)
    versions: dict[FragmentId, int] = field(default_factory=dict)
    counters: dict[tuple[FragmentId, str], int] = field(default_factory=dict)
    handed: dict[ChannelId, GroupHandover] = field(default_factory=dict)
    markers: dict[ChannelId, Marker] = field(default_factory=dict)
    """Markers that go out behind everything else."""
    passing: dict[ChannelId, Marker] = field(default_factory=dict)
    """Markers that later groups of this step may meet right behind tuples that were handed to them."""
    drained: dict[FragmentId, int] = field(default_factory=dict)
    """Fragments that have done all that lies before a marker, by reconfiguration: this was their last step."""
    records: list[Change] = field(default_factory=list)
    looked: set[FragmentId] = field(default_factory=set)
    """Fragments that had to look at their state, and have."""

    def copy(self) -> Work:
        """A commit that can be thrown away when a group fails."""
        return Work(**{f.name: copy(getattr(self, f.name)) for f in fields(self)})

    def take(self, other: Work) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(other, f.name))

    def commit(self, writer: Writer, batch_id: int) -> Commit:
        """All of it under the id of its batch."""
        passed = [Passed.of(*(list(column) for column in zip(*self.passed, strict=True)))] if self.passed else []
        return Commit(
            writer=writer,
            batch_id=batch_id,
            versions=self.versions,
            consumed=self.consumed,
            passed=tuple(passed),
            appends=tuple(self.appends),
            state_drops=tuple(self.drops),
            state_appends=tuple(self.states),
            counters=self.counters,
            records=(*self.records, *(DrainedRecord(number, fragment) for fragment, number in self.drained.items())),
        )


@dataclass(slots=True)
class GroupBatch:
    """A group's active fragments with their input. Arrays run in the order of `fragments`."""

    group: Group
    places: Int64s
    """The places of these fragments in the group."""
    fragments: Sequence[Installed]
    numbers: Int64s
    held: Int64s
    """By port and fragment: the watermarks of the inputs before the step, and how far they are read then."""
    reached: Int64s
    edges: dict[StageEdge, pa.Table]
    acting: Mapping[int, Marker] = field(default_factory=dict)
    """Fragments, by index, for which this batch ends at a marker in every port."""
    seconds: float = 0.0
    """The time that it has taken so far."""

    @property
    def template(self) -> Template:
        return self.group.template

    def passed(self, ports: Sequence[int]) -> tuple[Int64s, Int64s]:
        """Each fragment's watermark before the step and after, for the readers of these ports.

        Time is of those whom an input leads to: operators that have nothing to do with a port do not wait for it.
        """
        before = self.held[list(ports)].min(axis=0)
        after: Int64s = np.maximum(before, self.reached[list(ports)].min(axis=0))
        return before, after

    def rows_of(self, table: pa.Table) -> Int64s:
        """For each row the index of its fragment."""
        found: Int64s = np.searchsorted(self.numbers, table.column(FRAGMENT).to_numpy())
        return found
