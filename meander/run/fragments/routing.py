"""The routing table of a site host: which fragments run, in which slot, and how their ports and outputs are wired.

Changing it is all that adding, removing, rebinding or re-routing a fragment takes; Spark does not notice. A slot reads
its part as groups, upstream ones first, so that a tuple can cross several fragments in one step. A group is the
fragments of one template at one depth of the dataflow; they run as one frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from meander.deploy.markers import Marker
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.model.locks import lock
from meander.run.channels.base import Int64s
from meander.run.failures import Cause
from meander.run.fragments.template import BoundFragment, Template


@dataclass(frozen=True, slots=True)
class Wire:
    """A channel that an output feeds; `columns` are the names its tuples carry, None for names by position."""

    channel: ChannelId
    columns: tuple[str, ...] | None = None
    before_ms: int | None = None
    since_ms: int | None = None
    """While two fragments feed it, one sends what is before a time and the watermark, the other what is not."""
    tells: bool = False
    """Whether the younger of two tells its watermark as well, as it has a channel of its own."""

    @property
    def is_shared(self) -> bool:
        return self.before_ms is not None or self.since_ms is not None


@dataclass(frozen=True, slots=True)
class LateWire:
    """A channel for the tuples that came too late to one input of an operator, under its own names."""

    channel: ChannelId
    operator: str
    """A description of the operator, for people."""
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Installed:
    """A fragment that runs here."""

    fragment: FragmentId
    version: int
    slot: int
    bound: BoundFragment
    ports: tuple[ChannelId, ...]
    """The channel of each port."""
    outputs: tuple[tuple[Wire, ...], ...]
    """The channels of each output."""
    late: Mapping[tuple[int, int], tuple[LateWire, ...]] = field(default_factory=dict)
    """The channels for late tuples, by stage and by input of its operator with memory. Mostly empty."""
    is_beside: bool = False
    """Whether it runs beside the fragments that it will replace: they count late tuples."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The reason why a fragment does not run for the time being."""

    reason: str
    cause: Cause | None = None
    """The cause of the failure; None if nothing failed here, such as for a fragment of a node that is gone."""
    operators: frozenset[OperatorId] = frozenset()
    """The operators that failed; empty if they could not be found."""
    until: float | None = None
    """The time of the next try, in seconds of the stepper's clock; None if a user has to resume it."""

    @property
    def is_for_good(self) -> bool:
        """Whether it goes on only when a user resumes it: data broke an expression, or a function raised."""
        return self.cause is Cause.DATA

    @property
    def sets_apart(self) -> bool:
        """Whether the operators that failed must not keep others of their fragment from going on."""
        return self.is_for_good or bool(self.operators)


@dataclass(frozen=True, slots=True)
class RoutingRow:
    """An output for which every fragment of a group has one channel of its own, in the fragments' order."""

    channels: Int64s
    columns: tuple[str, ...] | None
    known: frozenset[ChannelId]
    """The same channels."""


@dataclass(frozen=True)
class Group:
    """Fragments that run as one frame. What steps ask again and again is found out once: groups have thousands."""

    template: Template
    fragments: tuple[Installed, ...]
    after: tuple[int, ...] = ()
    """The groups of its slot that it reads, by their places."""

    @cached_property
    def numbers(self) -> Int64s:
        return np.array([f.fragment for f in self.fragments], np.int64)

    @cached_property
    def ports(self) -> tuple[tuple[ChannelId, ...], ...]:
        """For each port the channel of every fragment."""
        return tuple(tuple(f.ports[p] for f in self.fragments) for p in range(len(self.template.ports)))

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        """The channels of all ports."""
        return tuple(c for channels in self.ports for c in channels)

    @cached_property
    def inputs(self) -> frozenset[ChannelId]:
        return frozenset(self.channels)

    @cached_property
    def versions(self) -> Mapping[FragmentId, int]:
        return {f.fragment: f.version for f in self.fragments}

    @cached_property
    def rows(self) -> tuple[RoutingRow | None, ...]:
        """Outputs that are fed alike by all; None for the others."""
        return tuple(self._row([f.outputs[n] for f in self.fragments]) for n in range(len(self.template.outputs)))

    @staticmethod
    def _row(wires: Sequence[tuple[Wire, ...]]) -> RoutingRow | None:
        if any(len(own) != 1 or own[0].is_shared or own[0].columns != wires[0][0].columns for own in wires):
            return None
        channels = [wire.channel for (wire,) in wires]
        return RoutingRow(np.array(channels, np.int64), wires[0][0].columns, frozenset(channels))


class Routing:
    """All installed fragments. Readers get consistent tuples; a change replaces them at once."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.version = 0
        self._lock = lock("routing")
        self._fragments: dict[FragmentId, Installed] = {}
        self._groups: dict[int, tuple[Group, ...]] | None = {}
        """None when a change came after they were last asked for, as is `_depths` when wires changed."""
        self._depths: dict[FragmentId, int] | None = {}
        self.paused: dict[FragmentId, str] = {}
        """Fragments that do not run for the time being, with the reason."""
        self.pauses: dict[FragmentId, Pause] = {}
        """The same, with all that is known about it."""
        self.awaiting: dict[FragmentId, Marker] = {}
        """Fragments that stop at the marker of a reconfiguration."""
        self.drained: dict[FragmentId, int] = {}
        """Fragments that have reached the marker: they wait for their successors, or to go on."""
        self.fresh: frozenset[FragmentId] = frozenset()
        """Fragments that have to look at their state once, whether or not something arrives."""

    @property
    def fragments(self) -> Mapping[FragmentId, Installed]:
        return self._fragments

    def install(self, fragments: Iterable[Installed]) -> None:
        """Adds fragments, or puts new versions in the place of old ones."""
        self.exchange((), fragments)

    def exchange(
        self,
        gone: Iterable[FragmentId],
        added: Iterable[Installed],
        pauses: Mapping[FragmentId, Pause] | None = None,
    ) -> None:
        """Puts fragments in the place of others, all at the same moment; those that ended a wait go on.

        `pauses` are those of fragments that are added; those that their ids had before are over. Without it they stay.
        """
        fresh = {f.fragment: f for f in added}
        for each in fresh.values():
            self._check(each)
        with self._lock:
            out = set(gone)
            kept = {f: i for f, i in self._fragments.items() if f not in out}
            both = out | set(fresh)
            self.awaiting = {f: marker for f, marker in self.awaiting.items() if f not in both}
            self.drained = {f: n for f, n in self.drained.items() if f not in both}
            self.fresh = (self.fresh - out) | frozenset(fresh)
            if pauses is not None:
                self.pauses = {**{f: pause for f, pause in self.pauses.items() if f not in both}, **pauses}
            self._replace({**kept, **fresh})

    def wait_for(self, marker: Marker) -> None:
        """The fragments here that a marker names stop at it, once they have reached it in every port."""
        with self._lock:
            here = {entry.fragment: marker for entry in marker.entries if entry.fragment in self._fragments}
            self.awaiting = {**self.awaiting, **here}

    def drain(self, fragments: Mapping[FragmentId, int]) -> None:
        """Fragments have reached the marker in every port."""
        with self._lock:
            self.drained = {**self.drained, **fragments}
            self._replace(self._fragments, rewired=False)

    @property
    def is_about_to_change(self) -> bool:
        """Whether all fragments of a reconfiguration have reached its marker: it takes effect in a moment."""
        awaiting, drained = self.awaiting, self.drained
        running = {m.reconfiguration for f, m in awaiting.items() if f not in drained}
        return any(number not in running for number in drained.values())

    def go_on(self, reconfiguration: int) -> None:
        """Ends the wait for this reconfiguration: its fragments run as they did."""
        with self._lock:
            back = {f for f, marker in self.awaiting.items() if marker.reconfiguration == reconfiguration}
            self.awaiting = {f: marker for f, marker in self.awaiting.items() if f not in back}
            self.drained = {f: n for f, n in self.drained.items() if f not in back}
            self.fresh |= back
            self._replace(self._fragments, rewired=False)

    def rewire(self, wires: Mapping[FragmentId, tuple[tuple[Wire, ...], ...]]) -> None:
        """Gives outputs other channels. The caller sees to it that the fragments are between two steps."""
        with self._lock:
            changed = {f: replace(self._fragments[f], outputs=outputs) for f, outputs in wires.items()}
            self.fresh |= frozenset(changed)
            self._replace({**self._fragments, **changed})

    def looked(self, fragments: Iterable[FragmentId]) -> None:
        """Fragments have had their look at their state."""
        with self._lock:
            self.fresh -= frozenset(fragments)

    def remove(self, fragments: Iterable[FragmentId]) -> None:
        gone = set(fragments)
        with self._lock:
            missing = gone - set(self._fragments)
            if missing:
                raise unknown("fragment", str(min(missing)), map(str, self._fragments))
        self.exchange(gone, ())

    def rebind(self, slots: Mapping[FragmentId, int], owner: int | None = None) -> tuple[FragmentId, ...]:
        """Gives fragments to other slots. The caller sees to it that the old slots are between two steps.

        With an owner, only fragments that are still bound to it are given away. Returns those that were.
        """
        with self._lock:
            mine = [f for f in slots if owner is None or (f in self._fragments and self._fragments[f].slot == owner)]
            moved = {f: replace(self._fragments[f], slot=slots[f]) for f in mine}
            for each in moved.values():
                self._check(each)
            self._replace({**self._fragments, **moved}, rewired=False)
        return tuple(moved)

    def as_bound(self, fragment: Installed) -> Installed:
        """A fragment's new version, in the slot that it has now: it may have changed slots since that was made."""
        now = self._fragments.get(fragment.fragment)
        return fragment if now is None else replace(fragment, slot=now.slot)

    def slots_of(self, fragments: Iterable[FragmentId]) -> tuple[int, ...]:
        """The slots that have these fragments, each once, ascending."""
        found = self._fragments
        return tuple(sorted({found[f].slot for f in fragments if f in found}))

    def pause(self, fragment: FragmentId, why: Pause | str) -> None:
        """Takes a fragment out of the steps; its channels keep what arrives."""
        self.pause_all([fragment], why)

    def pause_all(self, fragments: Iterable[FragmentId], why: Pause | str) -> None:
        pause = Pause(why) if isinstance(why, str) else why
        with self._lock:
            self.pauses = {**self.pauses, **dict.fromkeys(fragments, pause)}
            self._replace(self._fragments, rewired=False)

    def resume(self, fragment: FragmentId) -> None:
        self.resume_all([fragment])

    def resume_all(self, fragments: Iterable[FragmentId]) -> None:
        back = set(fragments)
        with self._lock:
            self.pauses = {f: pause for f, pause in self.pauses.items() if f not in back}
            self._replace(self._fragments, rewired=False)

    def resume_due(self, now: float) -> None:
        """Lets fragments go on whose time has come to be tried again."""
        if self.pauses:
            due = [f for f, pause in self.pauses.items() if pause.until is not None and pause.until <= now]
            if due:
                self.resume_all(due)

    def groups(self, slot: int) -> tuple[Group, ...]:
        """The groups that a slot runs in one step, in dataflow order."""
        found = self._groups
        if found is None:
            with self._lock:
                found = self._groups = self._grouped()
        return found.get(slot, ())

    def _check(self, each: Installed) -> None:
        if not 0 <= each.slot < self.slots:
            raise InputError(f"fragment {each.fragment}: there is no slot {each.slot}; slots are 0 to {self.slots - 1}")
        if len(each.ports) != len(each.bound.ports) or len(each.outputs) != len(each.bound.outputs):
            raise InputError(f"fragment {each.fragment}: every port and output of its template needs its channels")

    def _replace(self, fragments: dict[FragmentId, Installed], *, rewired: bool = True) -> None:
        self._fragments, self._groups = fragments, None
        if rewired:
            self._depths = None
        self.pauses = {f: pause for f, pause in self.pauses.items() if f in fragments}
        self.paused = {f: pause.reason for f, pause in self.pauses.items()}
        self.version += 1

    def _grouped(self) -> dict[int, tuple[Group, ...]]:
        """The groups of each slot. Changes come in bursts, so this is found out when a slot asks."""
        fragments = self._fragments
        depth = self._depths = _depths(fragments) if self._depths is None else self._depths
        groups: dict[tuple[int, int, str], list[Installed]] = {}
        for number in sorted(fragments):
            each = fragments[number]
            if number in self.paused or number in self.drained:
                continue
            groups.setdefault((each.slot, depth[number], each.bound.template.key), []).append(each)
        by_slot: dict[int, list[tuple[int, list[Installed]]]] = {}
        for (slot, level, _), members in sorted(groups.items(), key=lambda item: item[0]):
            by_slot.setdefault(slot, []).append((level, members))
        return {slot: _in_order(found) for slot, found in by_slot.items()}


def _in_order(levels: Sequence[tuple[int, Sequence[Installed]]]) -> tuple[Group, ...]:
    """A slot's groups by their level, each with those of lower levels that it reads."""
    readers = {channel: place for place, (_, members) in enumerate(levels) for f in members for channel in f.ports}
    after: list[set[int]] = [set() for _ in levels]
    for place, (level, members) in enumerate(levels):
        for wire in (wire for f in members for wires in f.outputs for wire in wires):
            reader = readers.get(wire.channel)
            if reader is not None and levels[reader][0] > level:
                after[reader].add(place)
    return tuple(
        Group(members[0].bound.template, tuple(members), tuple(sorted(after[place])))
        for place, (_, members) in enumerate(levels)
    )


def _depths(fragments: Mapping[FragmentId, Installed]) -> dict[FragmentId, int]:
    """Longest way from a fragment without upstream fragments; a cycle between fragments is cut where it is entered."""
    reader = {channel: f.fragment for f in fragments.values() for channel in f.ports}
    upstream: dict[FragmentId, set[FragmentId]] = {f: set() for f in fragments}
    for each in fragments.values():
        for wires in each.outputs:
            for wire in wires:
                below = reader.get(wire.channel)
                if below is not None:
                    upstream[below].add(each.fragment)
    depth: dict[FragmentId, int] = {}
    open_: set[FragmentId] = set()
    for start in fragments:
        stack = [start]
        while stack:
            fragment = stack[-1]
            waiting = [u for u in upstream[fragment] if u not in depth and u not in open_]
            open_.add(fragment)
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            open_.discard(fragment)
            if fragment not in depth:
                depth[fragment] = 1 + max((depth[u] for u in upstream[fragment] if u in depth), default=-1)
    return depth
