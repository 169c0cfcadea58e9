"""The reconfigurator of a fleet: changes on the coordinator's own host as ever, changes that touch sites as journeys.

A journey is decided by one commit in the store of the coordinator's own host, which is also the effect there: what
runs at the sites, and who still has to hear of it. A coordinator that starts again finishes what it finds decided, and
everything else it finds was never to be: sites are told to take it back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from meander.deploy.contexts import Reconfiguration
from meander.deploy.control import control_of
from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange, Fragment
from meander.deploy.records import channel_to_json, deployment_from
from meander.model.ids import FragmentId, OperatorId
from meander.reconfigure.agent import Agent
from meander.reconfigure.distributed import DistributedChange, DistributedPhase
from meander.reconfigure.outbox import Outbox
from meander.reconfigure.part import Part
from meander.reconfigure.parts import SiteMap, cut, way_of
from meander.reconfigure.reconfigurator import ReconfigurationOutcome, Reconfigurator
from meander.run.channels.flight.proof import HOME
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained import forget, remember
from meander.run.installation import Installation, install
from meander.run.store.commit import Commit
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    NumbersRecord,
    RemoteChannelRecord,
    RemoteFragmentRecord,
)
from meander.run.store.records.reconfigurations import DecidedRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)
THREADS = 64
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""How long a change waits that was taken back, the first time and at most: trying at once would fail again."""


class Driver(Reconfigurator):
    """Give it a fleet with `spread` before anything begins; without one it is a reconfigurator like any other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hosts: dict[FragmentId, str] = {}
        """Fragments that run at sites, or are about to."""
        self._relays: set[str] = set()
        """Sites that something passes through, or once did."""
        self._journeys: dict[int, DistributedChange] = {}
        self._decided: dict[int, ReconfigurationOutcome | None] = {}
        """Decided, but not everywhere in effect: with the outcome that is told then, unless that was long ago."""
        self._failed: dict[frozenset[OperatorId], int] = {}
        """How often changes of these operators were taken back in a row."""
        self._pool = ThreadPoolExecutor(THREADS, "spreader")
        self._sharing: Agent | None = None
        self._upkeep: Outbox | None = None
        self._map = SiteMap(self.paths.topology, lambda node: HOME)

    def spread(self, sharing: Agent, upkeep: Outbox) -> None:
        """From now on nodes that a site of the fleet owns are that site's."""
        fleet, topology = upkeep.switchboard.fleet, self.paths.topology
        self._sharing, self._upkeep = sharing, upkeep
        self._map = SiteMap(topology, lambda node: fleet.owner(topology.name(node)) or HOME)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---------------------------------------------------------------- who has what

    def site_of(self, fragment: FragmentId) -> str:
        return self.hosts.get(fragment, HOME)

    def concerned(self) -> set[str]:
        """Sites that run or relay something."""
        return {*self.hosts.values(), *self._relays}

    def is_spread(self, change: DeploymentChange) -> bool:
        """Whether a change touches sites: fragments that run there or shall, or channels to and from them."""
        if self._upkeep is None:
            return False
        ends = (f for c in (*change.channels_before.values(), *change.channels_after.values()) for f in _ends(c))
        if any(f in self.hosts for f in (*change.fragments, *ends)):
            return True
        fresh = [f for f in change.fragments_after.values() if f.id not in change.fragments_before]
        return any(self._site_for(f, change) != HOME for f in fresh)

    def is_elsewhere(self, number: int) -> bool:
        """Whether a reconfiguration depends on sites, so that nobody should wait for it."""
        return number in self._journeys or number in self._decided

    @property
    def under_way(self) -> tuple[int, ...]:
        return (*super().under_way, *self._journeys, *self._decided)

    # ---------------------------------------------------------------- beginning

    def begin(self, reconfigurations: Sequence[Reconfiguration], deployment: Deployment, next_number: int) -> None:
        far = [r for r in reconfigurations if self.is_spread(r.change)]
        super().begin([r for r in reconfigurations if r not in far], deployment, next_number)
        if not far:
            return
        numbers = NumbersRecord(deployment.next_fragment, deployment.next_channel, next_number)
        self.host.store.commit(Commit(records=(numbers,)))
        for each in far:
            self._journeys[each.number] = self._journey(each, deployment)

    def _journey(self, reconfiguration: Reconfiguration, deployment: Deployment) -> DistributedChange:
        change = reconfiguration.change
        for fragment in change.fragments_after.values():
            if fragment.id not in change.fragments_before and (site := self._site_for(fragment, change)) != HOME:
                self.hosts[fragment.id] = site
        shares = cut(reconfiguration, self.plan, deployment, self.hosts, self._map)
        self._relays.update(
            s for share in shares.values() for w in share.ways.values() for way in w.values() for s in way
        )
        installation = None
        if HOME in shares:
            installation = self._bound(shares[HOME])
            remember(self.plan, installation.fragments, shares[HOME].after)
        failures = self._failed.get(change.operators, 0)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures) if failures else 0.0
        return DistributedChange(reconfiguration, shares, installation, self._clock(), time.monotonic() + pause_s)

    def _site_for(self, fragment: Fragment, change: DeploymentChange) -> str:
        """Where a new fragment will run: with those it comes from if they are on its node, otherwise at its site.

        A site that takes a node over while something runs there gets what is new on it; what runs stays where it is.
        """
        mine = set(fragment.operators)
        former = [f for f in change.fragments_before.values() if f.node == fragment.node and mine & set(f.operators)]
        return self.site_of(former[0].id) if former else self._map.site_of(fragment.node)

    def _bound(self, share: Part) -> Installation:
        routing, kept = self.host.routing, self.host.bindings
        slots: dict[FragmentId, int] = {}
        for fragment in share.after:
            old = routing.fragments.get(fragment)
            usual = first_slot(fragment, routing.slots) if old is None else old.slot
            bound = kept.of(fragment)
            slots[fragment] = usual if bound is None else bound
        return install(self.plan, share.after.values(), share.local.channels_after, slots, {}, self.late)

    # ---------------------------------------------------------------- going on

    def poll(self) -> list[ReconfigurationOutcome]:
        outcomes = super().poll()
        if self._upkeep is None:
            return outcomes
        self._happened += outcomes
        open_ = [*self._journeys, *self._decided]
        for journey in list(self._journeys.values()):
            journey.advance(self._pool, self._ask, open_, self._upkeep.is_owed)
            if journey.problem is not None:
                self._happened.append(self.abort(journey.number, journey.problem))
            elif journey.phase is DistributedPhase.DECIDED:
                self._decide(journey)
            elif self._clock() - journey.started > self.timeout_s:
                self._happened.append(self.abort(journey.number, _overdue(journey, self.timeout_s)))
        self._happened += self._ended()
        self._upkeep.tick(self._pool)
        return self._all_happened()

    def _ask(self, site: str, action: str, body: Mapping[str, Any]) -> Any:
        """Gives an order, from a thread of the pool; the coordinator's own host does it itself."""
        assert self._upkeep is not None
        if site == HOME:
            return self._at_home(action, body)
        if action == "prepare":
            self._upkeep.introduce(site)
            body = {"share": body["share"].to_json(), "open": body["open"]}
        return self._upkeep.switchboard.order(site, action, body)

    def _at_home(self, action: str, body: Mapping[str, Any]) -> Any:
        sharing = self._sharing
        assert sharing is not None
        match action:
            case "prepare":
                sharing.abort_forgotten(body["share"].number, body["open"])
                return sharing.prepare(body["share"], body["installation"])
            case "mark":
                course = sharing.courses.get(body["number"])
                self._stand_in(course.old if course is not None else ())
                return sharing.mark(body["number"])
            case "fetch":
                return sharing.fetch(body["number"], body)
            case _:
                return {str(n): sharing.look(n) for n in body["numbers"]}

    # ---------------------------------------------------------------- ending

    def _decide(self, journey: DistributedChange) -> None:
        """One commit: from here on the change has happened, whoever hears of it when."""
        assert self._sharing is not None
        assert self._upkeep is not None
        change, number = journey.reconfiguration.change, journey.number
        sites = [site for site in journey.shares if site != HOME]
        decided = DecidedRecord(number, tuple(sites), journey.told)
        self._sharing.effect(number, journey.told, (*self._records(change), decided))
        for fragment in change.fragments_before:
            if fragment not in change.fragments_after:
                self.hosts.pop(fragment, None)
        forget(self.plan, change.fragments_before.values())
        for site in sites:
            self._upkeep.owe_effect(site, number, journey.told)
        self._failed.pop(change.operators, None)
        # At no moment in neither: a site that is being greeted would be told to take it back.
        self._decided[number] = self._told(journey)
        del self._journeys[number]

    def _records(self, change: DeploymentChange) -> list[Change]:
        """What is remembered here of fragments and channels that are elsewhere."""
        records = forget_all(RemoteFragmentRecord, change.fragments_before)
        records += forget_all(RemoteChannelRecord, (c.id for c in change.channels_before.values()))
        records += [
            RemoteFragmentRecord(self.hosts[f.id], f) for f in change.fragments_after.values() if f.id in self.hosts
        ]
        between = (c for c in change.channels_after.values() if all(f in self.hosts for f in _ends(c)))
        return [*records, *map(RemoteChannelRecord, between)]

    def _ended(self) -> list[ReconfigurationOutcome]:
        """Changes that are in effect everywhere by now."""
        assert self._upkeep is not None
        done = [n for n in self._decided if not self._upkeep.has_effect(n)]
        if done:
            self.host.store.commit(Commit(records=tuple(forget_all(DecidedRecord, done))))
        return [outcome for n in done if (outcome := self._decided.pop(n)) is not None]

    def abort(self, number: int, reason: str) -> ReconfigurationOutcome:
        journey = self._journeys.get(number)
        if journey is None:
            return super().abort(number, reason)
        assert self._sharing is not None
        assert self._upkeep is not None
        journey.problem = journey.problem or reason  # if there is no room to write it down, it is tried again
        journey.settle()
        self._sharing.abort(number)
        change = journey.reconfiguration.change
        self._failed[change.operators] = min(self._failed.get(change.operators, 0) + 1, 20)
        for site in journey.shares:
            if site != HOME:
                self._upkeep.owe_abort(site, number)
        del self._journeys[number]
        forget(self.plan, change.fragments_after.values())
        for fragment in change.fragments_after:
            if fragment not in change.fragments_before:
                self.hosts.pop(fragment, None)
        self.taken_back(change)
        _log.warning("change %d, which touches sites, was taken back: %s", number, reason)
        return self._told(journey, reason)

    def can_take_back(self, number: int) -> bool:
        return number not in self._decided and super().can_take_back(number)

    def _told(self, journey: DistributedChange, reason: str | None = None) -> ReconfigurationOutcome:
        change, ended = journey.reconfiguration.change, self._clock()
        marked = journey.marked or ended
        drained = journey.drained or ended
        messages, size = control_of(journey.reconfiguration)
        before, after = change.fragments_before.keys(), change.fragments_after.keys()
        return ReconfigurationOutcome(
            journey.number,
            reason,
            marked - journey.started,
            max(0.0, drained - marked),
            ended - drained,
            journey.bytes,
            len(after - before),
            len(after & before),
            len(before - after),
            control_messages=messages,
            control_bytes=size,
            operators=tuple(sorted(change.operators)),
        )

    # ---------------------------------------------------------------- other ways, and coming back

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> None:
        far = {key: c for key, c in channels.items() if any(f in self.hosts for f in _ends(c))}
        super().reroute({key: c for key, c in channels.items() if key not in far})
        if far:
            self._reroute_far(list(far.values()))

    def _reroute_far(self, channels: Sequence[Channel]) -> None:
        """Both ends are told; here it is remembered."""
        assert self._sharing is not None
        assert self._upkeep is not None
        records: list[Change] = []
        told: dict[str, dict[str, Any]] = {}
        for channel in channels:
            wanted: dict[str, Any] = {"is_cut": channel.is_cut, "way": way_of(channel, self.hosts, self._map)}
            self._relays.update(wanted["way"])
            sites = {self.site_of(f) for f in _ends(channel)}
            if HOME not in sites:
                records.append(RemoteChannelRecord(channel))
            for site in sites:
                told.setdefault(site, {})[str(channel.id)] = {**wanted, "record": channel_to_json(channel)}
        if records:
            self.host.store.commit(Commit(records=tuple(records)))
        for site, wanted_here in told.items():
            if site == HOME:
                self._sharing.reroute(wanted_here)
            else:
                self._upkeep.owe_ways(site, wanted_here)

    def recover(self, slots: Mapping[FragmentId, int] | None = None) -> tuple[Deployment, list[Reconfiguration], int]:
        store = self.host.store
        if self._sharing is not None:
            self._sharing.forget_undecided()
        self.hosts = {f: record.site for f, record in store.records(RemoteFragmentRecord).items()}
        deployment, under_way, number = super().recover(slots)
        for decided in store.records(DecidedRecord).values():
            self._decided[decided.number] = None
            for site in decided.sites:
                if self._upkeep is not None:
                    self._upkeep.owe_effect(site, decided.number, decided.told)
        self._tell_ways(deployment)
        if self._sharing is not None:
            self._sharing.pulling.refresh()
        return deployment, under_way, number

    def _recorded(self) -> Deployment:
        store = self.host.store
        fragments = [r.fragment for r in store.records(FragmentRecord).values()]
        fragments += [r.fragment for r in store.records(RemoteFragmentRecord).values()]
        channels = [r.channel for r in store.records(ChannelRecord).values()]
        channels += [r.channel for r in store.records(RemoteChannelRecord).values()]
        return deployment_from(fragments, channels)

    def runs_here(self, fragment: FragmentId) -> bool:
        return fragment not in self.hosts

    def _tell_ways(self, deployment: Deployment) -> None:
        """Sites may have missed which channels are cut."""
        far = [c for c in deployment.channels.values() if any(f in self.hosts for f in _ends(c))]
        if far and self._upkeep is not None:
            self._reroute_far(far)


def _ends(channel: Channel) -> tuple[FragmentId, FragmentId]:
    return channel.sender, channel.receiver


def _overdue(journey: DistributedChange, timeout_s: float) -> str:
    away = "".join(f"; {site} is away: {reason}" for site, reason in journey.away.items())
    return f"its phase '{journey.phase.value}' did not end within {timeout_s:g} s{away}"
