"""The driver: carries reconfigurations out on all hosts, by messages to their agents.

A change that touches only the coordinator's own host has one participant; nothing else is different. A change is
decided by one commit in the store of that host, which is also the effect there, and says what runs at the sites and who
still has to hear of it. A driver that starts again finishes what it finds decided; everything else it finds was never
to be, and is aborted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from meander.deploy.contexts import Reconfiguration, reconfiguration
from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange
from meander.deploy.protocols.sms import SMS
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.overlap import split_times
from meander.reconfigure.agent.upstream_backup import UpstreamBackup
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.driver.open_requests import OpenRequests
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.participants import Known, Participants
from meander.reconfigure.driver.progress import Phase, Progress
from meander.reconfigure.driver.remote_records import recorded, remote_records
from meander.reconfigure.driver.transport import InProcess, Network, Transport
from meander.reconfigure.messages import Abort, Effect, ForkAt, Positions, Reroute
from meander.reconfigure.outcome import ReconfigurationOutcome, never_begun
from meander.reconfigure.paths import Paths
from meander.reconfigure.serialised_fragment import remember_serialised
from meander.reconfigure.state import state_strategy
from meander.run.channels.flight.proof import HOME
from meander.run.failures import reason_of
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained_bindings import bounds_of, forget, keep_only, with_former
from meander.run.host import Host
from meander.run.installation import install
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import NumbersRecord, RemoteChannelRecord, RemoteFragmentRecord
from meander.run.store.records.reconfigurations import DecidedRecord, OverlapRecord, PartRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)
TIMEOUT_S = 60.0
THREADS = 64
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""How long a change between hosts waits that was aborted, the first time and at most: at once it would fail again."""


class Driver:
    """Reconfigurations of one coordinator. `poll` does what is due; nobody waits inside."""

    def __init__(
        self,
        host: Host,
        plan: GlobalPlan,
        paths: Paths,
        *,
        strategy: str = "migration_query",
        late: Iterable[OperatorId] = (),
        replicas: int = 1,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
        background: bool = True,
    ) -> None:
        self.host, self.plan = host, plan
        self.timeout_s, self.clock = timeout_s, clock
        backup = None
        if not replicas or state_strategy(strategy).needs_input:
            runner, idle_timeout_ms = host.stepper.runner, host.options.idle_timeout_ms
            backup = UpstreamBackup(host.store, host.routing, runner, lambda: self.clock(), idle_timeout_ms)
        self.agent = Agent(
            host,
            paths,
            strategy=strategy,
            backup=backup,
            has_copies=bool(replicas),
            clock=lambda: self.clock(),
            background=background,
        )
        self.agent.overlaps.plan = plan
        self.participants = Participants(host, plan, self.agent, late, paths.topology)
        self.progress: dict[int, Progress] = {}
        self._decided: dict[int, ReconfigurationOutcome | None] = {}
        """Decided, but not everywhere in effect: with the outcome that is told then, unless that was long ago."""
        self._happened: list[ReconfigurationOutcome] = []
        self._aborts: dict[frozenset[OperatorId], int] = {}
        """How often changes of these operators were aborted in a row."""
        self._requests = OpenRequests(InProcess(self.agent))
        self._turn = 0
        self._outbox: Outbox | None = None
        self._pool: ThreadPoolExecutor | None = None

    def connect(self, outbox: Outbox) -> None:
        """From now on nodes that a site of the fleet owns are that site's."""
        fleet, topology = outbox.switchboard.fleet, self.participants.map.topology
        self._outbox, self._pool = outbox, ThreadPoolExecutor(THREADS, "driver")
        self._requests = OpenRequests(Network(self.agent, outbox, self._pool))
        self.participants.belong(lambda node: fleet.owner(topology.name(node)) or HOME)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def transport(self) -> Transport:
        """How the agents of hosts are reached."""
        return self._requests.transport

    def use_paths(self, paths: Paths) -> None:
        """Lets state and tuples take these paths from now on."""
        self.agent.paths = paths

    # ---------------------------------------------------------------- who has what

    @property
    def sites(self) -> Mapping[FragmentId, str]:
        """The sites of fragments that run at one, or are about to."""
        return self.participants.sites

    @property
    def late(self) -> tuple[OperatorId, ...]:
        """Sinks that want to know which tuples came too late."""
        return self.participants.late

    def site_of(self, fragment: FragmentId) -> str:
        return self.participants.site_of(fragment)

    def runs_here(self, fragment: FragmentId) -> bool:
        """Whether a fragment is the own host's to run."""
        return fragment not in self.participants.sites

    def depends_on_sites(self, number: int) -> bool:
        """Whether a reconfiguration depends on sites, so that nobody should wait for it."""
        return number in self._decided or (number in self.progress and not self.progress[number].is_alone)

    def can_abort(self, number: int) -> bool:
        if number in self.progress:
            return not self.progress[number].is_forked
        return number not in self._decided and all(o.number != number for o in self._happened)

    @property
    def under_way(self) -> tuple[int, ...]:
        """The changes under way, and those that have ended and were not reported yet."""
        return (*self.progress, *self._decided, *(o.number for o in self._happened))

    @property
    def forked(self) -> tuple[int, ...]:
        """Changes whose old and new fragments run side by side."""
        return tuple(n for n, p in self.progress.items() if p.is_forked)

    # ---------------------------------------------------------------- beginning

    def begin(self, reconfigurations: Sequence[Reconfiguration], deployment: Deployment, next_number: int) -> None:
        """Makes the new fragments ready and sends the markers. `deployment` is what will run when all is done."""
        if not reconfigurations:
            return
        started = self.clock()
        numbers = NumbersRecord(deployment.next_fragment, deployment.next_channel, next_number)
        self.host.store.commit(Commit(records=(numbers,)))
        for each in reconfigurations:
            try:
                self.progress[each.number] = self._begun(each, deployment, started)
            except JournalError:
                raise
            except Exception as error:  # must not keep others from beginning
                _log.exception("reconfiguration %d cannot begin", each.number)
                self._happened.append(never_begun(each.number, f"it could not begin: {reason_of(error)}"))
        self._go_on(beginning=True)

    def _begun(self, each: Reconfiguration, deployment: Deployment, started: float) -> Progress:
        parts = self.participants.parts_of(each, deployment)
        aborts = 0 if parts.keys() == {HOME} else self._aborts.get(each.change.operators, 0)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**aborts) if aborts else 0.0
        return Progress(each, parts, started, time.monotonic() + pause_s if pause_s else 0.0)

    # ---------------------------------------------------------------- going on

    def poll(self) -> list[ReconfigurationOutcome]:
        """Does what is due: messages to agents, decisions, aborts. Gives what ended."""
        if self.agent.backup is not None:
            self.agent.backup.tick()
        self.agent.failover.let_back({})
        self.agent.tidy()
        self._go_on()
        if self._outbox is not None:
            assert self._pool is not None
            self._let_end(self._outbox)
            self._outbox.tick(self._pool)
        found, self._happened = self._happened, []
        return found

    def _go_on(self, *, beginning: bool = False) -> None:
        """Goes on for as long as agents answer at once: what only touches the own host may go through all phases."""
        self._turn += 1
        while True:
            under_way = (*self.progress, *self._decided)
            asked = self._requests.send(self.progress.values(), self._turn, under_way, beginning=beginning)
            self._requests.collect(self.clock(), self._turn)
            if not beginning:
                self._end()
            if not asked:
                return

    def _end(self) -> None:
        """Aborts what cannot go on, and decides what is complete, all of it at once."""
        now = self.clock()
        for progress in list(self.progress.values()):
            reason = progress.problem or progress.overdue(now, self.timeout_s)
            if reason is not None:
                self._happened.append(self.abort(progress.number, reason))
        splitting = [p for p in self.progress.values() if p.phase is Phase.SPLIT]
        if splitting:
            self._fork(splitting)
        complete = [p for p in self.progress.values() if p.phase is Phase.DECIDED]
        if complete:
            self._decide(complete)

    def _fork(self, splitting: Sequence[Progress]) -> None:
        """One commit: from here on old and new fragments run side by side, until the old ones have ended."""
        times: dict[int, dict[OperatorId, int]] = {}
        records: list[Change] = []
        for progress in splitting:
            at = progress.positions
            part = next(iter(progress.parts.values()))
            times[progress.number] = found = split_times(part, at.seen, at.entered, self.plan)
            records.append(self._overlap_record(progress, found))
        self.agent.fork(ForkAt(times), tuple(records))
        for progress in splitting:
            progress.forked(times[progress.number], self.clock())

    def _decide(self, complete: Sequence[Progress]) -> None:
        """One commit: from here on the changes have happened, whoever hears of it when."""
        positions = {p.number: p.positions for p in complete}
        records = {p.number: self._records(p) for p in complete if not p.is_alone}
        done = self.agent.effect(Effect(positions), records)
        ended = self.clock()
        for progress in complete:
            if progress.number in done.refused:
                progress.not_at_once = True
                reason = f"it could not take effect: {done.refused[progress.number]}"
                self._happened.append(self.abort(progress.number, reason))
            else:
                self._happens(progress, positions[progress.number], ended)

    def _happens(self, progress: Progress, positions: Positions, ended: float) -> None:
        change, outcome = progress.reconfiguration.change, progress.outcome(ended)
        self.participants.left(change.fragments_before.keys() - change.fragments_after.keys())
        forget(self.plan, change.fragments_before.values())
        self._aborts.pop(change.operators, None)
        if progress.is_alone:
            self._happened.append(outcome)
        else:
            assert self._outbox is not None
            for site in progress.parts.keys() - {HOME}:
                self._outbox.add_effect(site, progress.number, positions)
            # At no moment in neither: a site that is being greeted would be told to abort it.
            self._decided[progress.number] = outcome
        del self.progress[progress.number]

    def _records(self, progress: Progress) -> list[Change]:
        """The records of a change that touches sites: the fragments there, and the sites that have to hear of it."""
        sites = [site for site in progress.parts if site != HOME]
        decided = DecidedRecord(progress.number, tuple(sites), encode(progress.positions))
        change = progress.reconfiguration.change
        return [*remote_records(change, self.sites), decided, OverlapRecord.forgotten(progress.number)]

    def _let_end(self, outbox: Outbox) -> None:
        """Ends changes that are in effect everywhere by now."""
        done = [n for n in self._decided if not outbox.has_effect(n)]
        if done:
            self.host.store.commit(Commit(records=tuple(forget_all(DecidedRecord, done))))
        self._happened += [outcome for n in done if (outcome := self._decided.pop(n)) is not None]

    def abort(self, number: int, reason: str) -> ReconfigurationOutcome:
        """Takes a reconfiguration back: what ran before goes on from where it stopped."""
        progress = self.progress[number]
        progress.problem = progress.problem or reason  # if there is no room to write it down, it is tried again
        if HOME in progress.parts:
            self.agent.abort(Abort((number,)))
        change = progress.reconfiguration.change
        if not progress.is_alone:
            assert self._outbox is not None
            self._aborts[change.operators] = min(self._aborts.get(change.operators, 0) + 1, 20)
            for site in progress.parts.keys() - {HOME}:
                self._outbox.add_abort(site, number)
        del self.progress[number]
        forget(self.plan, change.fragments_after.values())
        self.participants.left(change.fragments_after.keys() - change.fragments_before.keys())
        self.let_go_on(change)
        _log.warning("reconfiguration %d was aborted: %s", number, reason)
        return progress.outcome(self.clock(), reason)

    def let_go_on(self, change: DeploymentChange) -> None:
        """Fragments of a change that is not to be go on where they were, also if their node went and came back
        meanwhile: they were to be elsewhere then, so that nobody let them go on."""
        self.agent.failover.let_back({f.id: f.node for f in change.fragments_before.values()})

    # ---------------------------------------------------------------- other routes, nodes that come and go

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Lets channels take another route, or none until it is back: the hosts of both ends are told."""
        told: dict[str, list[tuple[Channel, tuple[str, ...]]]] = {}
        records = self._reroute_overlaps(channels)
        beside = {key for p in self.progress.values() if p.overlaps for key in p.reconfiguration.change.channels_after}
        for key, channel in channels.items():
            sites = {self.site_of(f) for f in _ends(channel)}
            route = self.participants.route_of(channel)
            if HOME not in sites and key not in beside:
                records.append(RemoteChannelRecord(channel))
            for site in sites:
                told.setdefault(site, []).append((channel, route))
        if records:
            self.host.store.commit(Commit(records=tuple(records)))
        for site, routes in told.items():
            if site == HOME:
                self.agent.reroute(Reroute(tuple(routes)))
            elif self._outbox is not None:
                self._outbox.tell_routes(site, routes)

    def _reroute_overlaps(self, channels: Mapping[ChannelKey, Channel]) -> list[Change]:
        """Channels of overlaps between hosts are remembered with these until the old fragments have ended."""
        records: list[Change] = []
        for progress in (p for p in self.progress.values() if p.overlaps and not p.is_alone):
            change = progress.reconfiguration.change
            mine = {key: c for key, c in channels.items() if key in change.channels_after}
            if mine:
                changed = replace(change, channels_after={**change.channels_after, **mine})
                progress.reconfiguration = replace(progress.reconfiguration, change=changed)
                if progress.is_forked:
                    records.append(self._overlap_record(progress, progress.times))
        return records

    def _overlap_record(self, progress: Progress, times: Mapping[OperatorId, int]) -> OverlapRecord:
        change = progress.reconfiguration.change
        sites = {f: self.sites[f] for f in change.fragments_after if f in self.sites}
        return OverlapRecord(progress.number, change, dict(times), sites)

    def node_gone(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        """Fragments of a node of the own host stop; a site whose node is gone is away itself."""
        self.agent.failover.node_gone(node, fragments)

    def node_back(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        self.agent.failover.node_back(node, fragments)

    # ---------------------------------------------------------------- coming back

    def recover(self, slots: Mapping[FragmentId, int] | None = None) -> tuple[Deployment, list[Reconfiguration], int]:
        """Installs what the store says ran here; aborts what was not decided, and takes up what was.

        Gives the deployment that will run when that is done, what is under way, and the next number.
        """
        store, routing, agent = self.host.store, self.host.routing, self.agent
        agent.abort_undecided()
        self.participants.sites = {f: r.site for f, r in store.records(RemoteFragmentRecord).items()}
        deployment = recorded(store)
        bindings = slots or {f: first_slot(f, routing.slots) for f in deployment.fragments}
        delays = {c.id: agent.delay_ms(c) for c in deployment.channels.values()}
        remember_serialised(self.plan, store)
        plan, known = with_former(self.plan), bounds_of(self.plan)
        here = [f for f in deployment.fragments.values() if self.runs_here(f.id)]
        channels = {k: c for k, c in deployment.channels.items() if any(map(self.runs_here, _ends(c)))}
        self.host.install(install(plan, here, channels, bindings, delays, self.late, known))
        if agent.backup is not None:
            agent.backup.adopt()
        agent.failover.recover(deployment)
        found = self._resume_overlaps(plan, known, deployment)
        kept = [*deployment.fragments.values(), *(f for r in found for f in r.change.fragments_before.values())]
        keep_only(self.plan, {(f.id, f.version) for f in kept})
        for decided in store.records(DecidedRecord).values():
            self._decided[decided.number] = None
            for site in decided.sites:
                if self._outbox is not None:
                    self._outbox.add_effect(site, decided.number, decode(Positions, decided.told))
        self.reroute({key: c for key, c in deployment.channels.items() if any(f in self.sites for f in _ends(c))})
        agent.refresh()  # sites may have missed which channels are cut
        saved = store.record(NumbersRecord) or NumbersRecord(1, 1, 1)
        deployment.next_fragment = max(deployment.next_fragment, saved.fragment)
        deployment.next_channel = max(deployment.next_channel, saved.channel)
        return deployment, found, saved.reconfiguration

    def _resume_overlaps(self, plan: GlobalPlan, known: Known, deployment: Deployment) -> list[Reconfiguration]:
        """Takes up changes whose old and new fragments ran side by side: what was forked cannot be aborted."""
        found: list[Reconfiguration] = []
        for number, record in sorted(self.host.store.records(OverlapRecord).items()):
            again = reconfiguration(number, record.change, plan, SMS)
            deployment.apply(record.change)
            self.participants.sites |= record.sites
            parts = self.participants.parts_again(again, deployment, plan, known)
            if HOME in parts:
                saved = self.host.store.record(PartRecord, number) or PartRecord(number, {}, is_marked=True)
                self.agent.resume(parts[HOME], replace(saved, times=record.times))
            self.progress[number] = progress = Progress(again, parts, self.clock())
            progress.forked(record.times, self.clock())
            found.append(again)
        return found


def _ends(channel: Channel) -> tuple[FragmentId, FragmentId]:
    return channel.sender, channel.receiver
