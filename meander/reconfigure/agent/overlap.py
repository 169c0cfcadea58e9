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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meander.deploy.fragments import Channel, ChannelKey
from meander.deploy.protocols.sms import limits
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.agent.effect import buffers, rerouted, wiring
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.upstream_backup import has_state
from meander.reconfigure.agent.wiring import Wires, with_channels
from meander.reconfigure.part import Part
from meander.run.channels.base import ChannelSpec
from meander.run.failures import reason_of
from meander.run.fragments.retained_bindings import with_former
from meander.run.fragments.routing import Installed, Wire
from meander.run.frames import BEGIN, END, TS
from meander.run.host import Host
from meander.run.operators.pairs import Pairs
from meander.run.operators.time_window import TimeWindow
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.commit import Commit, Rewire
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import ChannelRecord
from meander.run.store.records.reconfigurations import DrainedRecord, OverlapRecord
from meander.run.store.records.record import Change, forget_all

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
        failover: Failover,
        delay_ms: Callable[[Channel], int],
    ) -> None:
        self.host, self.failover, self._delay_ms = host, failover, delay_ms
        self.plan: GlobalPlan | None = None
        """Where it is known, overlaps of one host alone need nobody to say when."""

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
            records: list[Change] = []
            add, rewire = [], []
            for change in changes:
                change.times = self._times(change)
                until = self._until(change)
                change.windows_s = max(0, until - store.now_ms()) / 1000 if until < FOREVER else 0.0
                records.append(OverlapRecord(change.number, change.part.change, dict(change.times)))
                shared = leaving(change.part)
                fresh = {c.id: c for c in change.part.change.channels_after.values() if c not in shared}
                add += [s for s in change.installation.channels if s.channel in fresh]
                rewire += [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in fresh.values()]
                rewire += self._opened(change)
                if backed_up:
                    kept = [f for f in change.installation.fragments if has_state(f)]
                    rewire += [Rewire(p, f.fragment, keeps=True) for f in kept for p in f.ports]
            store.commit(Commit(add=tuple(add), rewire=tuple(rewire), records=tuple(records)))
            for change in changes:
                change.is_forked = change.is_marked = True
                self.failover.stand_in(change.old)
                self._run_both(change)
        self.host.wake(slots)
        for change in changes:
            self.failover.stop_gone(change.part.change.fragments_after.values())

    def _times(self, change: InFlightChange) -> dict[OperatorId, int]:
        assert self.plan is not None
        return split_times(change.part, self.seen(change), self.entered(change), self.plan)

    def seen(self, change: InFlightChange) -> dict[OperatorId, int]:
        """Event times before which the operators here may have tuples that their new fragments never get."""
        exchange, found = self.host.store.exchange, dict[OperatorId, int]()
        for fragment in change.part.before.values():
            installed = change.old[fragment.id]
            reached = np.maximum(exchange.watermarks(installed.ports), BEGIN).tolist()
            behind = self._ports_below(installed)
            for o in fragment.operators:
                answered = min((reached[p] for p in behind.get(o, ())), default=BEGIN)
                found[o] = max(answered, self._newest_state(installed, o))
        return found

    def entered(self, change: InFlightChange) -> dict[OperatorId, int]:
        """The same for what waits in logs here for the old fragments."""
        part = change.part
        inside = part.change.fragments_before
        read = [c for c in part.local.channels_before.values() if c.receiver in inside and part.is_here(c.sender)]
        waiting = self.host.store.exchange.newest([c.id for c in read], TS).tolist()
        found: dict[OperatorId, int] = {}
        for channel, newest in zip(read, waiting, strict=True):
            found[channel.upstream] = max(found.get(channel.upstream, BEGIN), newest + 1)
        return found

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
        old = change.old
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

    # ---------------------------------------------------------------- the fork between hosts

    def fork_at(
        self,
        changes: Sequence[InFlightChange],
        times: Mapping[int, Mapping[OperatorId, int]],
        records: Sequence[Change],
    ) -> None:
        """Old fragments that have stopped go on up to times that all hosts have been told, new ones run beside them.

        What the new ones send waits here, in a channel of its own, until the old ones have ended.
        """
        store, told = self.host.store, list(records)
        known = set(store.exchange.channels())
        add: list[ChannelSpec] = []
        rewire: list[Rewire] = []
        for change in changes:
            part, change.times = change.part, dict(times[change.number])
            shared = {c.id for c in leaving(part)}
            fresh = [c for c in part.local.channels_after.values() if c.id not in shared]
            specs = {s.channel: s for s in change.installation.channels}
            add += [specs[c.id] for c in fresh if c.id not in known]
            add += [replace(specs[c], channel=own, receiver=None) for c, own in buffers(part).items()]
            rewire += [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in fresh]
            told += [*self._fresh_wiring(part, fresh), change.record]
            told += forget_all(DrainedRecord, ((change.number, f) for f in part.before))
        with self.host.between_steps({f for c in changes for f in around(c.part)}) as slots:
            store.commit(Commit(add=tuple(add), rewire=tuple(rewire), records=tuple(told)))
            for change in changes:
                self.failover.stand_in(change.old)
                self._run_beside(change)
                self.host.routing.go_on(change.number)
        self.host.wake(slots)

    def _fresh_wiring(self, part: Part, fresh: Collection[Channel]) -> list[Change]:
        before = replace(part, change=replace(part.change, channels_before={}))
        return wiring(before, fresh, self.host.store)

    def _run_beside(self, change: InFlightChange) -> None:
        routing, part, own = self.host.routing, change.part, buffers(change.part)
        shared = {c.id: change.times[c.upstream] for c in leaving(part)}
        wires = with_channels(routing, (c for c in entering(part) if part.is_here(c.sender)))
        for fragment, installed in change.old.items():
            wires[fragment] = _limited(installed.outputs, shared, is_old=True)
        routing.rewire(wires)
        fresh = change.installation.fragments
        new = [replace(f, outputs=_apart(f.outputs, shared, own), is_beside=True) for f in fresh]
        routing.install(new)
        change.is_forked = change.is_marked = change.is_armed = True
        until = self._until(change)
        change.windows_s = max(0, until - self.host.store.now_ms()) / 1000 if until < FOREVER else 0.0
        self.failover.stop_gone(part.after.values())

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
        self,
        changes: Iterable[InFlightChange],
        channels: Mapping[ChannelKey, Channel],
        routes: Mapping[ChannelId, list[str]],
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
            if not part.is_alone:
                self._reroute_part(change, mine.values(), routes)
            elif change.is_forked:
                own = [c for c in mine.values() if c.receiver in changed.fragments_after]
                rewire = [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in own]
                record = OverlapRecord(change.number, changed, dict(change.times))
                self.host.store.commit(Commit(rewire=(*rewire, *self._opened(change)), records=(record,)))
                self.host.wake()
        return left

    def _reroute_part(
        self, change: InFlightChange, channels: Iterable[Channel], routes: Mapping[ChannelId, list[str]]
    ) -> None:
        """Channels that both feed take the new route when the old fragments have ended, others take it now."""
        part, store = change.part, self.host.store
        told = {c.id: (c, routes[c.id]) for c in channels}
        known_routes = {**part.routes.channels, **{c: tuple(route) for c, (_, route) in told.items()}}
        change.part = replace(part, routes=replace(part.routes, channels=known_routes))
        shared = {c.id for c in leaving(part)}
        commit = rerouted({c: each for c, each in told.items() if c not in shared}, store, self._delay_ms)
        kept = [record for record in commit.records if not isinstance(record, ChannelRecord)]
        store.commit(replace(commit, records=(*kept, change.record)))

    # ---------------------------------------------------------------- the join

    def is_complete(self, change: InFlightChange) -> bool:
        """Whether the old fragments here have said all that is theirs, and new ones elsewhere have come as far."""
        part, shared, own = change.part, leaving(change.part), buffers(change.part)
        senders = {c.id: c.sender for c in part.change.channels_before.values()}
        pairs = [(c.id, change.times[c.upstream]) for c in shared if part.is_here(senders[c.id])]
        pairs += [(own[c.id], change.times[c.upstream]) for c in shared if c.id in own]
        told = self.host.store.exchange.told([channel for channel, _ in pairs]).tolist()
        times = [time for _, time in pairs]
        return all(t < NEVER or mark >= min(t, FOREVER) for t, mark in zip(times, told, strict=True))

    def resume(self, change: InFlightChange, times: Mapping[OperatorId, int]) -> None:
        """Takes up what was forked when the process ended; the old fragments are installed."""
        change.times, change.is_forked, change.is_marked = dict(times), True, True
        self._run_both(change) if change.part.is_alone else self._run_beside(change)
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


def _apart(
    outputs: tuple[tuple[Wire, ...], ...], times: Mapping[ChannelId, int], own: Mapping[ChannelId, ChannelId]
) -> tuple[tuple[Wire, ...], ...]:
    """Outputs of new fragments, whose results wait in channels of their own."""

    def apart(wire: Wire) -> Wire:
        if wire.channel not in own:
            return wire
        return replace(wire, channel=own[wire.channel], since_ms=times[wire.channel], tells=True)

    return tuple(tuple(map(apart, wires)) for wires in outputs)


def split_times(
    part: Part, seen: Mapping[OperatorId, int], entered: Mapping[OperatorId, int], plan: GlobalPlan
) -> dict[OperatorId, int]:
    """Where old ends and new begins, from what the old fragments have seen, and what they have still to read."""
    both = with_former(plan)
    inputs = {i: entered.get(i, BEGIN) for o in seen for i in both[o].inputs}
    found = limits(both, seen, seen, {**entered, **inputs})
    return {c.upstream: min(found[c.upstream], FOREVER) for c in leaving(part)}
