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

from meander.deploy.fragments import Channel, ChannelKey
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, OperatorId
from meander.reconfigure.agent import split_times
from meander.reconfigure.agent.effect import buffers, rerouted, wiring
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.split_times import FOREVER, NEVER, around, entering, leaving
from meander.reconfigure.agent.state.upstream_backup import has_state
from meander.reconfigure.agent.wiring import Wires, with_channels
from meander.run.channels.base import ChannelSpec
from meander.run.failures import reason_of
from meander.run.fragments.routing import Wire
from meander.run.host import Host
from meander.run.store.commit import Commit, Rewire
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import ChannelRecord
from meander.run.store.records.reconfigurations import DrainedRecord, OverlapRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)
Times = Mapping[OperatorId, int]


class Overlaps:
    """The overlaps of a host: how they fork, and when they may join."""

    def __init__(self, host: Host, failover: Failover, delay_ms: Callable[[Channel], int], *, backed_up: bool) -> None:
        """`backed_up` says whether senders keep what fragments consume."""
        self.host, self.failover, self._delay_ms, self._backed_up = host, failover, delay_ms, backed_up
        self.plan: GlobalPlan | None = None
        """Where it is known, overlaps of one host alone need nobody to say when."""

    # ---------------------------------------------------------------- the fork

    def fork_at_once(self, changes: list[InFlightChange]) -> dict[int, str]:
        """Forks overlaps of this host alone, together; if that is impossible, one by one. Gives those that cannot,
        with the reason."""
        try:
            self.fork(changes, None, ())
        except JournalError:
            raise
        except Exception as error:
            if any(c.is_forked for c in changes):
                raise
            if len(changes) > 1:
                return {n: why for c in changes for n, why in self.fork_at_once([c]).items()}
            _log.exception("overlap %d cannot begin", changes[0].number)
            return {changes[0].number: f"it could not begin: {reason_of(error)}"}
        return {}

    def fork(
        self, changes: Sequence[InFlightChange], times: Mapping[int, Times] | None, records: Sequence[Change]
    ) -> None:
        """Lets old and new fragments run side by side; `records` go into the commit.

        Between hosts old fragments have stopped, and `times` is what all hosts have been told. One host alone chooses
        the times while all are between two steps, so that nobody has to stop.
        """
        store, told = self.host.store, list(records)
        add: list[ChannelSpec] = []
        rewire: list[Rewire] = []
        with self.host.between_steps({f for c in changes for f in around(c.part)}) as slots:
            known = set(store.exchange.channels())
            for change in changes:
                part, change.times = change.part, dict(self._times(change) if times is None else times[change.number])
                shared = {c.id for c in leaving(part)}
                fresh = [c for c in part.local.channels_after.values() if c.id not in shared]
                specs = {s.channel: s for s in change.installation.channels}
                add += [specs[c.id] for c in fresh if c.id not in known]
                add += [replace(specs[c], channel=own, receiver=None) for c, own in buffers(part).items()]
                rewire += [Rewire(c.id, c.receiver, self._delay_ms(c), c.is_cut) for c in fresh]
                rewire += self._opened(change)
                kept = [f for f in change.installation.fragments if self._backed_up and has_state(f)]
                rewire += [Rewire(p, f.fragment, keeps=True) for f in kept for p in f.ports]
                told += self._records(change, fresh)
            store.commit(Commit(add=tuple(add), rewire=tuple(rewire), records=tuple(told)))
            for change in changes:
                self.failover.fail_over(change.old)
                self._run_both(change)
                self.host.routing.go_on(change.number)
        self.host.wake(slots)
        for change in changes:
            self.failover.stop_gone(change.part.after.values())

    def _times(self, change: InFlightChange) -> Times:
        assert self.plan is not None
        seen, entered = (find(change, self.host.store) for find in (split_times.seen, split_times.entered))
        return split_times.split_times(change.part, seen, entered, self.plan)

    def _records(self, change: InFlightChange, fresh: Collection[Channel]) -> list[Change]:
        part = change.part
        if part.is_alone:
            return [OverlapRecord(change.number, part.change, dict(change.times))]
        before = replace(part, change=replace(part.change, channels_before={}))
        drained = forget_all(DrainedRecord, ((change.number, f) for f in part.before))
        return [*wiring(before, fresh, self.host.store), change.record, *drained]

    def _run_both(self, change: InFlightChange) -> None:
        """Senders feed both, old and new fragments share what leaves. All of them are between two steps."""
        routing, part, own = self.host.routing, change.part, buffers(change.part)
        shared = {c.id: change.times[c.upstream] for c in leaving(part)}
        wires: Wires = with_channels(routing, (c for c in entering(part) if part.is_here(c.sender)))
        for fragment, installed in change.old.items():
            wires[fragment] = _until(installed.outputs, shared)
        fresh = change.installation.fragments
        new = [replace(f, outputs=_since(f.outputs, shared, own), is_beside=True) for f in fresh]
        routing.rewire(wires)
        routing.install(new)
        change.is_armed = change.is_marked = change.is_forked = True
        until = split_times.answered_at(change)
        change.windows_s = max(0, until - self.host.store.now_ms()) / 1000 if until < FOREVER else 0.0

    # ---------------------------------------------------------------- in between

    def _opened(self, change: InFlightChange) -> list[Rewire]:
        """Channels that old fragments need and that are cut: a copy where there is a way stands in for them.

        An input stays cut if the new fragments cannot have it either, a result if neither can send it. Between hosts
        there are no copies on the way.
        """
        exchange = self.host.store.exchange
        if not change.part.is_alone:
            return []
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

    def reroute(self, changes: Iterable[InFlightChange], channels: Iterable[tuple[Channel, Sequence[str]]]) -> None:
        """Lets channels take other routes, or none; those that belong to overlaps as far as both sides use them."""
        told = tuple(channels)
        wanted = {(c.upstream, c.receiver): c for c, _ in told}
        routes = {c.id: list(route) for c, route in told}
        left = self._reroute_overlaps(changes, wanted, routes)
        commit = rerouted({c.id: (c, routes[c.id]) for c in left.values()}, self.host.store, self._delay_ms)
        if commit.rewire:
            self.host.store.commit(commit)

    def _reroute_overlaps(
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
        change.times = dict(times)
        self._run_both(change)
        self.failover.stop_gone(change.part.after.values())
        self.failover.fail_over(change.old)


Outputs = tuple[tuple[Wire, ...], ...]


def _until(outputs: Outputs, shared: Mapping[ChannelId, int]) -> Outputs:
    """Outputs of old fragments: up to the times of what they share with new ones."""
    return tuple(
        tuple(replace(w, before_ms=shared[w.channel]) if w.channel in shared else w for w in wires) for wires in outputs
    )


def _since(outputs: Outputs, shared: Mapping[ChannelId, int], own: Mapping[ChannelId, ChannelId]) -> Outputs:
    """Outputs of new fragments: from these times on. Between hosts they wait in channels of their own."""

    def since(wire: Wire) -> Wire:
        if wire.channel not in shared:
            return wire
        channel = own.get(wire.channel, wire.channel)
        return replace(wire, channel=channel, since_ms=shared[wire.channel], tells=channel != wire.channel)

    return tuple(tuple(map(since, wires)) for wires in outputs)
