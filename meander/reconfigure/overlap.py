"""Overlaps: operators run at their old and their new place for a while, so that no state has to move.

It begins with the fork, one commit: the new fragments get channels of their own, into which their senders write from
then on what they also write for the old ones, and for every operator whose results leave, a time is fixed. Old
fragments send the results before that time, and the watermark; new ones, which began without state, send those from
that time on, into the same channel. When the old ones' watermark has reached the time they have nothing more to say:
the join, one commit again, ends them, and the new ones go on alone. Nobody stops in between.

A crash before the fork leaves what was; after it the overlap goes on, as the store knows the times. There is no way
back after the fork, because both have sent their share; none is needed, since the end depends on nothing but event
time. If an old fragment's node fails meanwhile, its copy does what is left to do; if a new one's does, it waits at the
join like any fragment of a failed node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from meander.deploy.contexts import Reconfiguration, reconfiguration
from meander.deploy.fragments import Channel, ChannelKey, DeploymentChange
from meander.deploy.protocols.sms import SMS, limits
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.effect import effect
from meander.reconfigure.in_flight import InFlightChange
from meander.reconfigure.paths import Paths
from meander.reconfigure.upstream_backup import has_state
from meander.run.failures import reason_of
from meander.run.fragments.retained import with_former
from meander.run.fragments.routing import Installed, Wire
from meander.run.frames import BEGIN, END, TS
from meander.run.host import Host
from meander.run.operators.pairs import Pairs
from meander.run.operators.time_window import TimeWindow
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.commit import Commit, Rewire
from meander.run.store.journal import JournalError
from meander.run.store.records.reconfigurations import OverlapRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)
NEVER, FOREVER = BEGIN // 2, END // 2
"""Before and after all times that tuples can have: streams that have not begun, or have ended."""
NODE_GONE = "its node is gone"
"""Why fragments of a node that failed are paused until they have another place."""

Wires = dict[FragmentId, tuple[tuple[Wire, ...], ...]]


@dataclass
class Overlap:
    """One overlap under way. Its course is `marked` at the fork and `drained` when the old fragments are done."""

    course: InFlightChange
    times: dict[OperatorId, int] = field(default_factory=dict)
    """For each operator whose results leave: where old ends and new begins. Empty before the fork."""
    is_forked: bool = False

    @property
    def change(self) -> DeploymentChange:
        return self.course.reconfiguration.change

    @property
    def entering(self) -> list[Channel]:
        """Channels for the new fragments' inputs from fragments that stay."""
        inside = self.change.fragments_after
        return [c for c in self.change.channels_after.values() if c.receiver in inside and c.sender not in inside]

    @property
    def leaving(self) -> list[Channel]:
        """Channels that old and new fragments feed together."""
        inside = self.change.fragments_after
        return [c for c in self.change.channels_after.values() if c.receiver not in inside]

    @property
    def fragments(self) -> set[FragmentId]:
        """All that must be between two steps when it begins or ends."""
        around = {c.sender for c in self.entering}
        return {*around, *self.change.fragments_before, *self.change.fragments_after}

    @property
    def record(self) -> OverlapRecord:
        return OverlapRecord(self.course.number, self.change, dict(self.times))


class Overlaps:
    """All overlaps of a host. `poll` does what is due; nobody waits inside."""

    def __init__(
        self,
        host: Host,
        plan: GlobalPlan,
        paths: Paths,
        clock: Callable[[], float],
        stand_in: Callable[[Iterable[FragmentId]], None],
    ) -> None:
        """`stand_in` lets fragments of a node that is gone go on where there is a copy."""
        self.host, self.plan, self.paths, self._clock = host, plan, paths, clock
        self._stand_in = stand_in
        self._overlaps: dict[int, Overlap] = {}

    @property
    def under_way(self) -> tuple[int, ...]:
        return tuple(self._overlaps)

    @property
    def forked(self) -> tuple[int, ...]:
        """Those that cannot be taken back."""
        return tuple(n for n, each in self._overlaps.items() if each.is_forked)

    def begin(self, courses: Iterable[InFlightChange]) -> None:
        self._overlaps.update((c.number, Overlap(c)) for c in courses)

    def give_up(self, number: int) -> InFlightChange | None:
        """Forgets one that is not forked yet."""
        found = self._overlaps.get(number)
        return self._overlaps.pop(number).course if found is not None and not found.is_forked else None

    def poll(self, is_ready: Callable[[InFlightChange], bool], *, backed_up: bool) -> list[InFlightChange]:
        """Forks what is ready and joins what is complete; gives the courses that ended."""
        fresh = [o for o in self._overlaps.values() if not o.is_forked and o.course.problem is None]
        ready = [o for o in fresh if is_ready(o.course)]
        if ready:
            self._try_fork(ready, backed_up)
        done = [o for o in self._overlaps.values() if o.is_forked and self._is_complete(o)]
        if done:
            self._join(done, backed_up)
        return [o.course for o in done]

    def broken(self) -> list[InFlightChange]:
        """Those that cannot begin: they are to be aborted."""
        return [o.course for o in self._overlaps.values() if not o.is_forked and o.course.problem is not None]

    # ---------------------------------------------------------------- the fork

    def _try_fork(self, overlaps: list[Overlap], backed_up: bool) -> None:
        """Forks overlaps, together; if that is impossible, one by one, without the one that cannot."""
        try:
            self._fork(overlaps, backed_up)
        except JournalError:
            raise
        except Exception as error:
            if any(o.is_forked for o in overlaps):
                raise
            if len(overlaps) > 1:
                for overlap in overlaps:
                    self._try_fork([overlap], backed_up)
                return
            _log.exception("overlap %d cannot begin", overlaps[0].course.number)
            overlaps[0].course.problem = f"it could not begin: {reason_of(error)}"

    def _fork(self, overlaps: list[Overlap], backed_up: bool) -> None:
        store = self.host.store
        with self.host.between_steps({f for o in overlaps for f in o.fragments}) as slots:
            records: list[Change] = []
            add, rewire = [], []
            for overlap in overlaps:
                overlap.times = self._times(overlap)
                until = self._until(overlap)
                overlap.course.windows_s = max(0, until - store.now_ms()) / 1000 if until < FOREVER else 0.0
                records.append(overlap.record)
                fresh = {c.id: c for c in overlap.change.channels_after.values() if c not in overlap.leaving}
                add += [s for s in overlap.course.installation.channels if s.channel in fresh]
                rewire += [Rewire(c.id, c.receiver, self.paths.delay_ms(c), c.is_cut) for c in fresh.values()]
                rewire += self._opened(overlap)
                if backed_up:
                    kept = [f for f in overlap.course.installation.fragments if has_state(f)]
                    rewire += [Rewire(p, f.fragment, keeps=True) for f in kept for p in f.ports]
            store.commit(Commit(add=tuple(add), rewire=tuple(rewire), records=tuple(records)))
            for overlap in overlaps:
                overlap.is_forked = True
                self._stand_in(overlap.course.old)
                self._run_both(overlap)
        self.host.wake(slots)
        now = self._clock()
        for overlap in overlaps:
            overlap.course.marked = now
            self._pause_lost(overlap)

    def _times(self, overlap: Overlap) -> dict[OperatorId, int]:
        """Where old ends and new begins, from what the old fragments have seen, and what they have still to read."""
        exchange, old, plan = self.host.store.exchange, overlap.course.old, with_former(self.plan)
        seen: dict[OperatorId, int] = {}
        entered: dict[OperatorId, int] = {}
        for fragment in overlap.change.fragments_before.values():
            installed = old[fragment.id]
            waiting = exchange.newest(installed.ports, TS).tolist()
            reached = np.maximum(exchange.watermarks(installed.ports), BEGIN).tolist()
            behind = self._ports_below(installed)
            for upstream, newest in zip(installed.bound.ports, waiting, strict=True):
                entered[upstream] = max(entered.get(upstream, BEGIN), newest + 1)
            for o in fragment.operators:
                answered = min((reached[p] for p in behind.get(o, ())), default=BEGIN)
                seen[o] = max(answered, self._newest_state(installed, o))
        inputs = {i for o in seen for i in plan[o].inputs}
        entered |= {i: BEGIN for i in inputs if i not in entered}
        found = limits(plan, seen, seen, entered)
        return {c.upstream: min(found[c.upstream], FOREVER) for c in overlap.leaving}

    @staticmethod
    def _ports_below(fragment: Installed) -> dict[OperatorId, set[int]]:
        """For each operator of a fragment the ports whose tuples get to it: only for these its time waits."""
        bound = fragment.bound
        found = {operator: {number} for number, operator in enumerate(bound.ports)}
        for operator, inputs in bound.members.inputs.items():
            found.setdefault(operator, set()).update(*(found[i] for i in inputs))
        return found

    def _until(self, overlap: Overlap) -> int:
        """The event time that the inputs must reach before the old fragments have answered all that is theirs."""
        old = {f.id: overlap.course.old[f.id] for f in overlap.change.fragments_before.values()}
        inner = {o: (f, number) for f in old.values() for number, o in enumerate(f.bound.outputs)}
        behind: dict[FragmentId, int] = {}

        def lag_of(operator: OperatorId) -> int:
            if operator not in inner:
                return 0
            fragment, number = inner[operator]
            if fragment.fragment not in behind:
                behind[fragment.fragment] = 0
                behind[fragment.fragment] = max(map(lag_of, fragment.bound.ports))
            return behind[fragment.fragment] + fragment.bound.template.lag_of(number)

        return max((time + lag_of(operator) for operator, time in overlap.times.items()), default=BEGIN)

    def _newest_state(self, fragment: Installed, operator: OperatorId) -> int:
        """A time that all tuples in the state of an operator are before."""
        stage = next((s for s, o in fragment.bound.stateful.items() if o == operator), None)
        if stage is None:
            return BEGIN
        stateful = fragment.bound.template.stages[stage].stateful
        newest = BEGIN
        for table in range(len(fragment.bound.template.stages[stage].states)):
            key = stage * STATES_PER_STAGE + table
            buckets = self.host.store.state.buckets(fragment.fragment, key)
            if not buckets:
                continue
            if isinstance(stateful, TimeWindow):
                newest = max(newest, buckets[-1] + stateful.slide_ms)
            else:
                assert isinstance(stateful, Pairs)
                rows = self.host.store.state.read([fragment.fragment], key, buckets[-1]).table
                assert rows is not None
                newest = max(newest, int(rows.column(TS).to_numpy().max()) + 1)
        return newest

    def _run_both(self, overlap: Overlap) -> None:
        """Senders feed both, old and new fragments share what leaves. All of them are between two steps."""
        routing, times = self.host.routing, overlap.times
        shared = {c.id: times[c.upstream] for c in overlap.leaving}
        wires = self._with_new_inputs(overlap)
        for fragment, installed in overlap.course.old.items():
            wires[fragment] = _limited(installed.outputs, shared, is_old=True)
        new = [
            replace(f, outputs=_limited(f.outputs, shared, is_old=False), is_beside=True)
            for f in overlap.course.installation.fragments
        ]
        routing.rewire(wires)
        routing.install(new)

    def _with_new_inputs(self, overlap: Overlap) -> Wires:
        found: Wires = {}
        for channel in overlap.entering:
            sender = self.host.routing.fragments[channel.sender]
            outputs = list(found.get(channel.sender, sender.outputs))
            at = sender.bound.outputs.index(channel.upstream)
            if all(wire.channel != channel.id for wire in outputs[at]):
                outputs[at] = (*outputs[at], Wire(channel.id))
            found[channel.sender] = tuple(outputs)
        return found

    # ---------------------------------------------------------------- in between

    def _opened(self, overlap: Overlap) -> list[Rewire]:
        """Channels that old fragments need and that are cut: a copy where there is a way stands in for them.

        An input stays cut if the new fragments cannot have it either, a result if neither can send it.
        """
        exchange = self.host.store.exchange
        change = overlap.change
        flowing = {c.upstream for c in overlap.entering if not c.is_cut}
        flowing |= {o for f in change.fragments_before.values() for o in f.operators}
        open_ = {c.id for c in overlap.leaving if not c.is_cut}
        found: list[Rewire] = []
        for channel in change.channels_before.values():
            inward = channel.receiver in change.fragments_before
            if (channel.upstream in flowing if inward else channel.id in open_) and exchange.is_cut(channel.id):
                found.append(Rewire(channel.id, channel.receiver, is_cut=False))
        return found

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> dict[ChannelKey, Channel]:
        """Takes over new ways of channels that belong to overlaps; gives the others back."""
        left = dict(channels)
        for overlap in self._overlaps.values():
            mine = {key: left.pop(key) for key in overlap.change.channels_after if key in left}
            if not mine:
                continue
            changed = replace(overlap.change, channels_after={**overlap.change.channels_after, **mine})
            course = overlap.course
            course.reconfiguration = replace(course.reconfiguration, change=changed)
            if overlap.is_forked:
                inside = changed.fragments_after
                own = [c for c in mine.values() if c.receiver in inside]
                rewire = [Rewire(c.id, c.receiver, self.paths.delay_ms(c), c.is_cut) for c in own]
                opened = self._opened(overlap)
                self.host.store.commit(Commit(rewire=(*rewire, *opened), records=(overlap.record,)))
                self.host.wake()
        return left

    def _pause_lost(self, overlap: Overlap) -> None:
        """New fragments on nodes that failed before the fork wait until they have another place."""
        for fragment in overlap.change.fragments_after.values():
            if not self.paths.topology.is_alive(fragment.node):
                self.host.routing.pause(fragment.id, f"{NODE_GONE}: {self.paths.topology.name(fragment.node)}")

    # ---------------------------------------------------------------- the join

    def _is_complete(self, overlap: Overlap) -> bool:
        """Whether the old fragments have said all that is theirs."""
        leaving = overlap.leaving
        told = self.host.store.exchange.told([c.id for c in leaving]).tolist()
        times = [overlap.times[c.upstream] for c in leaving]
        return all(t < NEVER or mark >= min(t, FOREVER) for t, mark in zip(times, told, strict=True))

    def _join(self, overlaps: list[Overlap], backed_up: bool) -> None:
        """Ends the old fragments; the new ones go on alone."""
        host, routing = self.host, self.host.routing
        now = self._clock()
        courses = [o.course for o in overlaps]
        with host.between_steps({f for o in overlaps for f in o.fragments}) as slots:
            found = effect(courses, host.store, self.paths, backed_up=backed_up)
            records = (*found.records, *forget_all(OverlapRecord, (c.number for c in courses)))
            gone = {f: c.number for c in courses for f in c.old}
            routing.drain(gone)  # nobody looks at their channels from here on
            try:
                host.store.commit(replace(found, records=records))
            except BaseException:
                routing.install([routing.fragments[f] for f in gone])
                raise
            added = [routing.as_bound(f) for c in courses for f in c.installation.fragments]
            routing.exchange(gone, added)
            wires = self._without_old_inputs(overlaps)
            if wires:
                routing.rewire(wires)
            host.store.state.begin_epoch()
        for overlap in overlaps:
            overlap.course.drained = now
            del self._overlaps[overlap.course.number]
        host.wake(slots)

    def _without_old_inputs(self, overlaps: Iterable[Overlap]) -> Wires:
        found: Wires = {}
        for overlap in overlaps:
            for channel in overlap.change.channels_before.values():
                sender = self.host.routing.fragments.get(channel.sender)
                if channel.receiver in overlap.change.fragments_before and sender is not None:
                    outputs = found.get(channel.sender, sender.outputs)
                    found[channel.sender] = tuple(tuple(w for w in o if w.channel != channel.id) for o in outputs)
        return found

    # ---------------------------------------------------------------- coming back

    def recover(
        self, plan: GlobalPlan, course_of: Callable[[Reconfiguration], InFlightChange]
    ) -> list[Reconfiguration]:
        """Takes up what was forked when the process ended; the old fragments are installed."""
        found: list[Reconfiguration] = []
        for number, record in self.host.store.records(OverlapRecord).items():
            again = reconfiguration(number, record.change, plan, SMS)
            course = course_of(again)
            course.marked = course.started
            overlap = Overlap(course, dict(record.times), is_forked=True)
            self._overlaps[course.number] = overlap
            self._run_both(overlap)
            self._pause_lost(overlap)
            found.append(again)
        return found


def _limited(
    outputs: tuple[tuple[Wire, ...], ...], shared: Mapping[ChannelId, int], *, is_old: bool
) -> tuple[tuple[Wire, ...], ...]:
    def limited(wire: Wire) -> Wire:
        at = shared.get(wire.channel)
        if at is None:
            return wire
        return replace(wire, before_ms=at) if is_old else replace(wire, since_ms=at)

    return tuple(tuple(map(limited, wires)) for wires in outputs)
