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

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Channel, ChannelKey, Deployment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId
from meander.reconfigure.driver import recovery
from meander.reconfigure.driver.aborted import AbortedChanges
from meander.reconfigure.driver.decided import DecidedChanges
from meander.reconfigure.driver.deployment_records import remember_numbers
from meander.reconfigure.driver.forks import Forks
from meander.reconfigure.driver.open_requests import OpenRequests
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.own_agent import own_agent
from meander.reconfigure.driver.participants import Participants
from meander.reconfigure.driver.progress import Phase, Progress
from meander.reconfigure.driver.routes import ChannelRoutes
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.run.host import Host

_log = logging.getLogger(__name__)
TIMEOUT_S = 60.0
THREADS = 64


class Driver:
    """Reconfigurations of one coordinator. `poll` does what is due; nobody waits inside."""

    def __init__(
        self,
        host: Host,
        plan: GlobalPlan,
        paths: Paths,
        *,
        strategy: str = "migration_query",
        replicas: int = 1,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
        background: bool = True,
    ) -> None:
        self.host, self.plan = host, plan
        self.timeout_s, self.clock = timeout_s, clock
        self.agent = own_agent(
            host,
            plan,
            paths,
            strategy=strategy,
            replicas=replicas,
            clock=lambda: self.clock(),
            background=background,
        )
        self.participants = Participants(host, plan, self.agent, paths.topology)
        self.progress: dict[int, Progress] = {}
        self._forks = Forks(self.agent, self.participants, self.progress)
        self._routes = ChannelRoutes(self.agent, self.participants, self.progress, self._forks)
        self._decided = DecidedChanges(self.agent, self.participants)
        self.aborted = AbortedChanges(self.agent, self.participants, lambda: self.clock())
        self.before_telling: Callable[[], None] = lambda: None
        """Makes durable what led to a change, before sites hear of it."""
        self._forks.settle = self._decided.settle = self._make_durable
        self._happened: list[ReconfigurationOutcome] = []
        self.requests = OpenRequests(self.agent)
        self._turn = 0
        self._outbox: Outbox | None = None
        self._pool: ThreadPoolExecutor | None = None

    def connect(self, outbox: Outbox) -> None:
        """From now on nodes that a site of the fleet owns are that site's."""
        self._outbox, self._pool = outbox, ThreadPoolExecutor(THREADS, "driver")
        self._decided.outbox = self.aborted.outbox = self._routes.outbox = outbox
        self.requests = OpenRequests(self.agent, outbox, self._pool)
        self.participants.belong(outbox.clients.fleet.owner)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # ---------------------------------------------------------------- who has what

    @property
    def sites(self) -> Mapping[FragmentId, str]:
        """The sites of fragments that run at one, or are about to."""
        return self.participants.sites

    def site_of(self, fragment: FragmentId) -> str:
        return self.participants.site_of(fragment)

    def runs_here(self, fragment: FragmentId) -> bool:
        """Whether a fragment is the own host's to run."""
        return fragment not in self.participants.sites

    def depends_on_sites(self, number: int) -> bool:
        """Whether a reconfiguration depends on sites, so that nobody should wait for it."""
        return number in self._decided.numbers or (number in self.progress and not self.progress[number].is_alone)

    def can_abort(self, number: int) -> bool:
        if number in self.progress:
            return not self.progress[number].is_forked
        return number not in self._decided.numbers and all(o.number != number for o in self._happened)

    @property
    def under_way(self) -> tuple[int, ...]:
        """The changes under way, and those that have ended and were not reported yet."""
        return (*self.progress, *self._decided.numbers, *(o.number for o in self._happened))

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
        remember_numbers(self.host.store, deployment, next_number)
        for each in reconfigurations:
            match self.aborted.begun(each, deployment, started):
                case Progress() as progress:
                    self.progress[each.number] = progress
                case outcome:
                    self._happened.append(outcome)
        self._make_durable(self.progress[r.number] for r in reconfigurations if r.number in self.progress)
        self._go_on(beginning=True)

    def _make_durable(self, told: Iterable[Progress]) -> None:
        """Brings on the disk what sites are about to hear, whatever `durability` promises: they act on it, and a start
        of this machine must not take it back."""
        if any(not progress.is_alone for progress in told):
            self.before_telling()
            self.host.store.syncer.sync()

    # ---------------------------------------------------------------- going on

    def poll(self) -> list[ReconfigurationOutcome]:
        """Does what is due: messages to agents, decisions, aborts. Gives what ended."""
        self.agent.tidy()
        self._go_on()
        if self._outbox is not None:
            assert self._pool is not None
            self._happened += self._decided.ended()
            self._outbox.tick(self._pool)
        found, self._happened = self._happened, []
        return found

    def _go_on(self, *, beginning: bool = False) -> None:
        """Goes on for as long as agents answer at once: what only touches the own host may go through all phases."""
        self._turn += 1
        while True:
            under_way = (*self.progress, *self._decided.numbers)
            asked = self.requests.send(self.progress.values(), self._turn, under_way, beginning=beginning)
            self.requests.collect(self.clock(), self._turn)
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
            self._forks.fork(splitting, self.clock())
        complete = [p for p in self.progress.values() if p.phase is Phase.DECIDED]
        if complete:
            self._decide(complete)

    def _decide(self, complete: Sequence[Progress]) -> None:
        outcomes, refused = self._decided.decide(complete, self.clock)
        self._happened += outcomes
        for progress in complete:
            if progress.number in refused:
                progress.not_at_once = True
                reason = f"it could not take effect: {refused[progress.number]}"
                self._happened.append(self.abort(progress.number, reason))
            else:  # at no moment in neither: a site would be told to abort it by its handshake
                self.aborted.over(progress)
                del self.progress[progress.number]

    def abort(self, number: int, reason: str) -> ReconfigurationOutcome:
        """Aborts a reconfiguration: what ran before goes on from where it stopped."""
        progress = self.progress[number]
        progress.problem = progress.problem or reason  # if there is no room to write it down, it is tried again
        outcome = self.aborted.abort(progress, reason)
        del self.progress[number]
        return outcome

    # ---------------------------------------------------------------- other routes

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Lets channels take another route, or none until it is back: the hosts of both ends are told."""
        self._routes.change(channels)

    # ---------------------------------------------------------------- coming back

    def recover(self, slots: Mapping[FragmentId, int] | None = None) -> tuple[Deployment, list[Reconfiguration], int]:
        """Installs what the store says ran here; aborts what was not decided, and takes up what was.

        Gives the deployment that will run when that is done, what is under way, and the next number.
        """
        deployment, found, number = recovery.recover(self.agent, self.participants, self._forks, slots, self.clock())
        self._decided.resume()
        self._routes.change_all(deployment.channels)
        self.agent.remote_channels.refresh()  # sites may have missed which channels are cut
        return deployment, found, number
