"""The loop: change events in, placements amended, running queries reconfigured, all on one site host.

`apply` takes a batch of events; `poll` carries on changes in flight. Both return at once: tuples keep flowing while a
change is on its way, and newer changes join those that wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from meander.coordinator.loop.applied import Applied, touched
from meander.coordinator.loop.failover import copies_of, running_on
from meander.coordinator.loop.quarantine import OperatorQuarantine
from meander.coordinator.loop.retired_parts import RetiredParts
from meander.coordinator.loop.retries import RetryPace
from meander.deploy.contexts import Reconfiguration
from meander.deploy.deployer import Deployer
from meander.deploy.fragments import Channel, ChannelKey, Placed
from meander.deploy.protocols import ISQD, Protocol
from meander.model.events import ChangeEvent, NodeAdded, NodeRemoved
from meander.model.ids import ChannelId, NodeId, OperatorId
from meander.model.operators import Sink
from meander.place.catalog import Catalog
from meander.place.difference import Difference
from meander.place.engine import BatchReport, Engine
from meander.place.sharing import forget
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.run.connectors.base import SinkBinding
from meander.run.host import Host
from meander.run.installation import OUTSIDE
from meander.run.store.journal import JournalError

WAIT_S = 0.02
AGAIN_S = 1.0


class PlacementLoop:
    """One catalog, one engine, one host."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        host: Host,
        *,
        emulated: bool = False,
        protocol: Protocol = ISQD,
        strategy: str | None = None,
        replicas: int = 1,
        background: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`strategy` moves state in another way than the protocol would."""
        self.catalog, self.engine, self.host, self.clock = catalog, engine, host, clock
        self.replicas = replicas
        self.pending: list[Applied] = []
        """Batches that are not in effect yet, oldest first."""
        self._is_due = False
        """Whether something was decided on that has not begun."""
        self._again_at = 0.0
        self.heard: Callable[[Sequence[ReconfigurationOutcome]], None] = lambda outcomes: None
        """Told of changes that ended."""
        self.let_go: Callable[[], object] = lambda: self.apply([])
        """Called when something of a join that was cut anew is of no use any more."""
        self._retries = RetryPace(time.monotonic)
        self._begun: list[Reconfiguration] = []
        self._rerouted: dict[ChannelKey, Channel] = {}
        """Channels whose rerouting the deployer has started and the loop has not carried out yet."""
        self._outcomes: list[ReconfigurationOutcome] = []
        """Outcomes that have not been reported yet."""
        self.deployer = Deployer(Placed(catalog.plan, catalog.placement, catalog.topology), protocol=protocol)
        engine.listener = self._placed_anew
        self.paths = Paths(catalog.topology, emulated)
        self.driver = Driver(
            host,
            catalog.plan,
            self.paths,
            clock=clock,
            strategy=strategy or protocol.state,
            replicas=replicas,
            background=background,
        )
        self.quarantine = OperatorQuarantine(host, self.deployer, self.driver.runs_here)
        self.retired = RetiredParts(host, self.deployer)
        engine.parted.has_run = lambda operator: operator in self.deployer.deployment.owner
        engine.parted.spent = self.retired.spent

    def recover(self, ghosts: Sequence[OperatorId] = ()) -> None:
        """Takes up what the host's store holds: the deployment and changes in flight. The catalog has its plan and
        placement.

        `ghosts` are in the plan only because the store names them: they leave it before anything new begins, so that
        nothing is made ready for operators that are about to go.
        """
        self.quarantine.restore()
        deployment, under_way, number = self.driver.recover()
        self.deployer.deployment, self.deployer.next_number = deployment, number
        self.deployer.under_way = {r.number: r for r in under_way}
        forget(self.catalog, list(ghosts))
        self.retired.note(self.engine.parted.retired)
        self.deployer.note(dict.fromkeys([*self.catalog.plan.operators, *deployment.owner]), self._edges())
        self._begin()

    def _edges(self) -> list[tuple[OperatorId, OperatorId]]:
        return [(u, o) for o, record in self.catalog.plan.operators.items() for u in record.inputs]

    def apply(self, events: Sequence[ChangeEvent]) -> Applied:
        """Places what the events made invalid and begins to deploy it. A bad event raises before anything changed."""
        applied = self.decide(events)
        self.begin(applied)
        return applied

    def begin(self, applied: Applied) -> None:
        """Begins to deploy the decisions; waits for slots to be between two steps."""
        applied.rerouted = self._begin()

    def decide(self, events: Sequence[ChangeEvent]) -> Applied:
        """Places what the events made invalid; `begin` has to follow."""
        started = self.clock()
        copies = copies_of(self.catalog.topology, self.deployer.deployment, events, self.replicas)
        report = self.engine.run(events)
        applied = Applied(report, started, self.clock() - started, touched(report))
        self.retired.note(self.engine.parted.retired, lambda: applied.ended is not None)
        try:
            self._note_failures(events, copies)
        finally:  # what is placed is deployed, also if there was no room to write down which nodes went
            self._expect(applied)
        return applied

    def _placed_anew(self, difference: Difference) -> None:
        """Deploys a batch of the engine, whichever caller ran it."""
        self.deployer.note(difference.operators, difference.rerouted)
        self._is_due = True

    def _note_failures(self, events: Sequence[ChangeEvent], copies: Mapping[NodeId, tuple[NodeId, ...]]) -> None:
        """Fragments of nodes that went stop; those of nodes that came back go on, unless they are elsewhere now."""
        topology = self.catalog.topology
        self.paths.copies.update(copies)
        changed = [e.node for e in events if isinstance(e, NodeRemoved)]
        changed += [e.node.name for e in events if isinstance(e, NodeAdded)]
        problem: JournalError | None = None
        for node in {topology.known_id(name) for name in changed}:
            try:
                if topology.is_alive(node):
                    self.driver.agent.failover.node_back(node, running_on(self.deployer.deployment, node))
                else:
                    self._supersede(node)
                    self._release(node)
                    self.driver.agent.failover.node_gone(node, running_on(self.deployer.deployment, node))
            except JournalError as error:
                problem = error
        if problem is not None:
            raise problem

    def _release(self, node: NodeId) -> None:
        """Operators that were to stay on a node that went need not any more."""
        held = self.deployer.placed.held
        gone = [o for o, where in held.items() if where == node]
        for operator in gone:
            del held[operator]
        self.deployer.note(gone)

    def _supersede(self, node: NodeId) -> None:
        """Aborts changes in flight to a node that was removed; they are considered again with the newer changes."""
        for number, each in list(self.deployer.under_way.items()):
            if all(f.node != node for f in each.change.fragments_after.values()):
                continue
            reason = f"node {self.catalog.topology.name(node)}, where fragments were to go, is gone"
            if number in self._held_back:
                self._drop(number, reason)
            elif self.driver.can_abort(number):
                self._take_note(self.driver.abort(number, reason))

    def follow(self, operators: Iterable[OperatorId], report: BatchReport, started: float) -> Applied:
        """Deploys a placement that was changed outside of a batch, such as by a transition."""
        applied = self.expect(operators, report, started)
        applied.rerouted = self._begin()
        return applied

    def expect(
        self, operators: Iterable[OperatorId], report: BatchReport, started: float, *, join: bool = False
    ) -> Applied:
        """As `follow`, and `begin_expected` has to come; with `join` changes that have begun already belong to it."""
        moved = frozenset(operators)
        applied = Applied(report, started, self.clock() - started, moved | touched(report))
        if join:
            under_way = self.deployer.under_way.items()
            applied.open = {n for n, r in under_way if not applied.operators.isdisjoint(r.change.operators)}
        self.deployer.note(moved)
        self._expect(applied)
        return applied

    def _expect(self, applied: Applied) -> None:
        self.pending.append(applied)
        self._is_due = True

    def begin_expected(self) -> None:
        """Begins to deploy what `expect` was told, all of it at once: slots are asked to stop between steps once."""
        self._begin()

    def poll(self) -> list[ReconfigurationOutcome]:
        """The outcomes since the last call, committed or aborted; begins the changes that waited for them."""
        found = self.driver.poll()
        for outcome in found:
            self._take_note(outcome)
        self._outcomes += found
        self.heard(found)
        regrouped = self.quarantine.tick()
        self.deployer.note(regrouped)
        if self._may_begin(found, bool(regrouped)):
            self._begin()
        if self.engine.parted and self.retired.look():
            self.let_go()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _may_begin(self, found: Sequence[ReconfigurationOutcome], regrouped: bool) -> bool:
        """Whether something has to begin now; changes that would fail again are tried less and less often."""
        if any(o.not_at_once for o in found):
            self._retries.put_off()
        elif any(o.reason is None for o in found):
            self._retries.succeed()
        self._is_due = self._is_due or regrouped
        due = bool(found) or regrouped or (self._is_due and time.monotonic() >= self._again_at)
        return due and (regrouped or self._retries.is_due)

    def _take_note(self, outcome: ReconfigurationOutcome) -> None:
        if outcome.reason is None:
            self.deployer.finished(outcome.number)
        else:
            self.deployer.failed(outcome.number, outcome.reason)
        self._is_due = True
        for applied in self.pending:
            if outcome.number in applied.open:
                applied.open.discard(outcome.number)
                applied.outcomes.append(outcome)
                applied.waits = applied.waits or outcome.reason is not None

    def _begin(self) -> int:
        """Begins what can begin; says how many channels only took another way.

        What fails, such as for want of room on the disk, is tried again with one of the next looks.
        """
        self._is_due, self._again_at = True, time.monotonic() + AGAIN_S
        begun, rerouted = self.deployer.begin()
        deployment, under_way = self.deployer.deployment, self.deployer.under_way
        self._begun += begun
        self._rerouted |= rerouted
        self._rerouted = {k: c for k, c in self._rerouted.items() if deployment.channels.get(k) == c}
        try:
            self.driver.begin(list(self._held_back.values()), deployment, self.deployer.next_number)
            self.driver.reroute(self._rerouted)
        except JournalError:
            raise
        except Exception as error:  # must not keep others from beginning
            for number in self._held_back:
                self._drop(number, f"it could not begin: {error}")
            self._begun, self._rerouted = [], {}
            self._retries.put_off()
            raise
        begun, rerouted = [r for r in self._begun if r.number in under_way], self._rerouted
        self._begun, self._rerouted, self._is_due, self._again_at = [], {}, False, 0.0
        waiting = self.deployer.waiting
        for applied in self.pending:
            if applied.waits:
                applied.open |= {r.number for r in begun if not applied.operators.isdisjoint(r.change.operators)}
                applied.waits = not applied.operators.isdisjoint(waiting)
            if not applied.open and not applied.waits:
                applied.ended = self.clock()
        self.pending = [a for a in self.pending if a.ended is None]
        return len(rerouted)

    def _drop(self, number: int, reason: str) -> None:
        """Withdraws reconfigurations that are not carried out yet."""
        self._begun = [r for r in self._begun if r.number != number]
        change = self.deployer.under_way[number].change
        self.deployer.failed(number, reason)
        self.driver.aborted.let_go_on(change)

    @property
    def _held_back(self) -> dict[int, Reconfiguration]:
        """Reconfigurations that the deployer has started and the loop has not carried out yet, by number."""
        if not self._begun:
            return {}
        carried_out = set(self.driver.under_way)
        mine = self.deployer.under_way
        return {r.number: r for r in self._begun if r.number in mine and r.number not in carried_out}

    def settle(self, timeout_s: float = 60.0) -> list[ReconfigurationOutcome]:
        """Waits until no change is in flight on this host; sites that are away are not waited for."""
        deadline = time.monotonic() + timeout_s
        outcomes: list[ReconfigurationOutcome] = []
        elsewhere = self.driver.depends_on_sites
        while any(not elsewhere(n) for n in self.deployer.under_way) and time.monotonic() < deadline:
            seen = self.host.store.changes
            found = self.poll()
            outcomes += found
            if not found:
                self.host.store.wait(seen, WAIT_S)
        return outcomes

    def sink_bindings(self) -> list[SinkBinding]:
        """The sink bindings of all queries."""
        found: list[SinkBinding] = []
        for name, running in self.catalog.plan.queries.items():
            for sink in running.sinks:
                spec = self.catalog.plan[sink].spec
                assert isinstance(spec, Sink)
                found.append(SinkBinding(name, self.catalog.sinks[spec.name], ChannelId(OUTSIDE + sink)))
        return found

    def waiting(self) -> Mapping[OperatorId, str]:
        """Operators that have no place now, with the reason; those that ran before go on where they are."""
        operators = self.catalog.plan.operators
        nodes = self.catalog.placement.nodes
        return {o: record.reason or "no reason known" for o, record in operators.items() if o not in nodes}
