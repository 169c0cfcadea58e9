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
from dataclasses import replace
from typing import Any

import numpy as np

from meander.deploy.fragments import Channel, ChannelKey, DeploymentChange
from meander.deploy.protocols.sms import limits
from meander.deploy.records import change_from_json, change_to_json
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.failover import Failover
from meander.reconfigure.in_flight import InFlightChange
from meander.reconfigure.part import Part
from meander.reconfigure.upstream_backup import has_state
from meander.reconfigure.wiring import Wires, with_channels
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

_log = logging.getLogger(__name__)
NEVER, FOREVER = BEGIN // 2, END // 2
"""Before and after all times that tuples can have: streams that have not begun, or have ended."""


def entering(part: Part) -> list[Channel]:
    """Channels for the new fragments' inputs from fragments that stay."""
    inside = part.change.fragments_after
    return [c for c in part.change.channels_after.values() if c.receiver in inside and c.sender not in inside]


def leaving(part: Part) -> list[Channel]:
    """Channels that old and new fragments feed together."""
    inside = part.change.fragments_after
    return [c for c in part.change.channels_after.values() if c.receiver not in inside]


def around(part: Part) -> set[FragmentId]:
    """All fragments that must be between two steps when an overlap begins or ends."""
    return {*(c.sender for c in entering(part)), *part.change.fragments_before, *part.change.fragments_after}


class Overlaps:
    """The overlaps of a host: how they fork, and when they may join."""

    def __init__(
        self,
        host: Host,
        plan: GlobalPlan,
        failover: Failover,
        delay_ms: Callable[[Channel], int],
    ) -> None:
        self.host, self.plan, self.failover, self._delay_ms = host, plan, failover, delay_ms

    # ---------------------------------------------------------------- the fork

    def fork(self, changes: list[InFlightChange], *, backed_up: bool) -> dict[int, str]:
        """Forks overlaps, together; if that is impossible, one by one. Gives those that cannot, with the reason."""
        try:
            self._fork(changes, backed_up)
        except JournalError:
            raise
        except Exception as error:
            if any(c.is_forked for c in changes):
                raise
            if len(changes) > 1:
                return {n: why for c in changes for n, why in self.fork([c], backed_up=backed_up).items()}
            _log.exception("overlap %d cannot begin", changes[0].number)
            return {changes[0].number: f"it could not begin: {reason_of(error)}"}
        return {}

    def _fork(self, changes: list[InFlightChange], backed_up: bool) -> None:
        store = self.host.store
        with self.host.between_steps({f for c in changes for f in around(c.part)}) as slots:
            notes: dict[str, Any] = {}
            add, rewire = [], []
            for change in changes:
                change.times = self._times(change)
                until = self._until(change)
                change.windows_s = max(0, until - store.now_ms()) / 1000 if until < FOREVER else 0.0
                notes[overlap_note(change.number)] = _record(change)
                shared = leaving(change.part)
                fresh = {c.id: c for c in change.part.change.channels_after.values() if c not in shared}
                add += [s for s in change.installation.channels if s.channel in fresh]
                rewire += [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in fresh.values()]
                rewire += self._opened(change)
                if backed_up:
                    kept = [f for f in change.installation.fragments if has_state(f)]
                    rewire += [Rewire(p, f.fragment, keeps=True) for f in kept for p in f.ports]
            store.commit(Commit(add=tuple(add), rewire=tuple(rewire), notes=notes))
            for change in changes:
                change.is_forked = change.is_marked = True
                self.failover.stand_in(change.old)
                self._run_both(change)
        self.host.wake(slots)
        for change in changes:
            self.failover.stop_gone(change.part.change.fragments_after.values())

    def _times(self, change: InFlightChange) -> dict[OperatorId, int]:
        """Where old ends and new begins, from what the old fragments have seen, and what they have still to read."""
        exchange, old, plan = self.host.store.exchange, change.old, with_former(self.plan)
        seen: dict[OperatorId, int] = {}
        entered: dict[OperatorId, int] = {}
        for fragment in change.part.change.fragments_before.values():
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
        return {c.upstream: min(found[c.upstream], FOREVER) for c in leaving(change.part)}

    @staticmethod
    def _ports_below(fragment: Installed) -> dict[OperatorId, set[int]]:
        """For each operator of a fragment the ports whose tuples get to it: only for these its time waits."""
        bound = fragment.bound
        found = {operator: {number} for number, operator in enumerate(bound.ports)}
        for operator, inputs in bound.members.inputs.items():
            found.setdefault(operator, set()).update(*(found[i] for i in inputs))
        return found

    def _until(self, change: InFlightChange) -> int:
        """The event time that the inputs must reach before the old fragments have answered all that is theirs."""
        old = {f.id: change.old[f.id] for f in change.part.change.fragments_before.values()}
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

        return max((time + lag_of(operator) for operator, time in change.times.items()), default=BEGIN)

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

    def _run_both(self, change: InFlightChange) -> None:
        """Senders feed both, old and new fragments share what leaves. All of them are between two steps."""
        routing, times = self.host.routing, change.times
        shared = {c.id: times[c.upstream] for c in leaving(change.part)}
        wires: Wires = with_channels(routing, entering(change.part))
        for fragment, installed in change.old.items():
            wires[fragment] = _limited(installed.outputs, shared, is_old=True)
        new = [
            replace(f, outputs=_limited(f.outputs, shared, is_old=False), is_beside=True)
            for f in change.installation.fragments
        ]
        routing.rewire(wires)
        routing.install(new)

    # ---------------------------------------------------------------- in between

    def _opened(self, change: InFlightChange) -> list[Rewire]:
        """Channels that old fragments need and that are cut: a copy where there is a way stands in for them.

        An input stays cut if the new fragments cannot have it either, a result if neither can send it.
        """
        exchange = self.host.store.exchange
        old = change.part.change.fragments_before
        flowing = {c.upstream for c in entering(change.part) if not c.is_cut}
        flowing |= {o for f in old.values() for o in f.operators}
        open_ = {c.id for c in leaving(change.part) if not c.is_cut}
        found: list[Rewire] = []
        for channel in change.part.change.channels_before.values():
            inward = channel.receiver in old
            if (channel.upstream in flowing if inward else channel.id in open_) and exchange.is_cut(channel.id):
                found.append(Rewire(channel.id, channel.receiver, is_cut=False))
        return found

    def reroute(
        self, changes: Iterable[InFlightChange], channels: Mapping[ChannelKey, Channel]
    ) -> dict[ChannelKey, Channel]:
        """Takes over new routes of channels that belong to overlaps; gives the others back."""
        left = dict(channels)
        for change in changes:
            part = change.part
            mine = {key: left.pop(key) for key in part.change.channels_after if key in left} if part.overlaps else {}
            if not mine:
                continue
            changed = replace(part.change, channels_after={**part.change.channels_after, **mine})
            change.part = replace(part, change=changed)
            if change.is_forked:
                own = [c for c in mine.values() if c.receiver in changed.fragments_after]
                rewire = [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in own]
                notes = {overlap_note(change.number): _record(change)}
                self.host.store.commit(Commit(rewire=(*rewire, *self._opened(change)), notes=notes))
                self.host.wake()
        return left

    # ---------------------------------------------------------------- the join

    def is_complete(self, change: InFlightChange) -> bool:
        """Whether the old fragments have said all that is theirs."""
        shared = leaving(change.part)
        told = self.host.store.exchange.told([c.id for c in shared]).tolist()
        times = [change.times[c.upstream] for c in shared]
        return all(t < NEVER or mark >= min(t, FOREVER) for t, mark in zip(times, told, strict=True))

    def resume(self, change: InFlightChange, times: Mapping[OperatorId, int]) -> None:
        """Takes up what was forked when the process ended; the old fragments are installed."""
        change.times, change.is_forked, change.is_marked = dict(times), True, True
        self._run_both(change)
        self.failover.stop_gone(change.part.change.fragments_after.values())
        self.failover.stand_in(change.old)


def _limited(
    outputs: tuple[tuple[Wire, ...], ...], shared: Mapping[ChannelId, int], *, is_old: bool
) -> tuple[tuple[Wire, ...], ...]:
    def limited(wire: Wire) -> Wire:
        at = shared.get(wire.channel)
        if at is None:
            return wire
        return replace(wire, before_ms=at) if is_old else replace(wire, since_ms=at)

    return tuple(tuple(map(limited, wires)) for wires in outputs)


def overlap_note(number: int) -> str:
    """Under which name the store remembers an overlap."""
    return f"overlap {number}"


def forked(notes: Mapping[str, Any]) -> Iterable[tuple[int, DeploymentChange, dict[OperatorId, int]]]:
    """The overlaps that the notes of a store name: number, change, and the times where old ends and new begins."""
    for key, data in sorted(notes.items()):
        times = {OperatorId(o): int(time) for o, time in data["times"]}
        yield int(key.rsplit(" ", 1)[1]), change_from_json(data["change"]), times


def _record(change: InFlightChange) -> dict[str, Any]:
    return {"change": change_to_json(change.part.change), "times": sorted(change.times.items())}
