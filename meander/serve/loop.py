"""The loop: change events in, placements amended, running queries reconfigured, all on one site host.

`apply` takes a batch of events; `poll` carries on what is under way. Both return at once: tuples keep flowing while a
change is on its way, and newer changes join those that wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meander.deploy.deployer import Deployer
from meander.deploy.fragments import Placed
from meander.model.events import ChangeEvent
from meander.model.ids import ChannelId, OperatorId
from meander.model.operators import Sink
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine
from meander.run.connectors.base import Outlet
from meander.run.host import Host
from meander.run.installation import OUTSIDE
from meander.run.paths import Paths
from meander.run.reconfigure import Outcome, Reconfigurator

WAIT_S = 0.02


@dataclass(slots=True)
class Applied:
    """A batch of events on its way: placed at once, in effect when nothing of it is open."""

    report: BatchReport
    placement_s: float
    reconfigurations: list[int] = field(default_factory=list)
    rerouted: int = 0


class Loop:
    """One catalog, one engine, one host."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        host: Host,
        *,
        emulated: bool = False,
        strategy: str = "migration_query",
        late: Iterable[OperatorId] = (),
        background: bool = True,
    ) -> None:
        self.catalog, self.engine, self.host = catalog, engine, host
        self.deployer = Deployer(Placed(catalog.plan, catalog.placement, catalog.topology))
        paths = Paths(catalog.topology, emulated)
        self.reconfigurator = Reconfigurator(
            host, catalog.plan, paths, strategy=strategy, late=late, background=background
        )

    def recover(self) -> None:
        """Takes up what the host's store says was running and under way. The catalog has its plan and placement."""
        deployment, under_way, number = self.reconfigurator.recover()
        self.deployer.deployment, self.deployer.next_number = deployment, number
        self.deployer.under_way = {r.number: r for r in under_way}
        self.deployer.note(dict.fromkeys([*self.catalog.plan.operators, *deployment.owner]), self._edges())
        self._begin()

    def _edges(self) -> list[tuple[OperatorId, OperatorId]]:
        return [(u, o) for o, record in self.catalog.plan.operators.items() for u in record.inputs]

    def apply(self, events: Sequence[ChangeEvent]) -> Applied:
        """Places what the events made invalid and begins to deploy it. A bad event raises before anything changed."""
        started = time.perf_counter()
        report = self.engine.run(events)
        applied = Applied(report, time.perf_counter() - started)
        self.deployer.note([m.operator for m in report.moves], report.rerouted)
        applied.reconfigurations, applied.rerouted = self._begin()
        return applied

    def poll(self) -> list[Outcome]:
        """What took effect or was taken back since the last time; begins what had to wait for that."""
        outcomes = self.reconfigurator.poll()
        for outcome in outcomes:
            if outcome.reason is None:
                self.deployer.finished(outcome.number)
            else:
                self.deployer.failed(outcome.number, outcome.reason)
        if outcomes:
            self._begin()
        return outcomes

    def _begin(self) -> tuple[list[int], int]:
        begun, rerouted = self.deployer.begin()
        self.reconfigurator.reroute(rerouted)
        self.reconfigurator.begin(begun, self.deployer.deployment, self.deployer.next_number)
        return [r.number for r in begun], len(rerouted)

    def settle(self, timeout_s: float = 60.0) -> list[Outcome]:
        """Waits until nothing is under way."""
        deadline = time.monotonic() + timeout_s
        outcomes: list[Outcome] = []
        while self.deployer.under_way and time.monotonic() < deadline:
            seen = self.host.store.commits
            found = self.poll()
            outcomes += found
            if not found:
                self.host.store.wait(seen, WAIT_S)
        return outcomes

    def outlets(self) -> list[Outlet]:
        """Where the results of all queries come out."""
        found: list[Outlet] = []
        for name, running in self.catalog.plan.queries.items():
            for sink in running.sinks:
                spec = self.catalog.plan[sink].spec
                assert isinstance(spec, Sink)
                found.append(Outlet(name, self.catalog.sinks[spec.name], ChannelId(OUTSIDE + sink)))
        return found

    def waiting(self) -> Mapping[OperatorId, str]:
        """Operators that have no place now, with the reason; those that ran before go on where they are."""
        operators = self.catalog.plan.operators
        nodes = self.catalog.placement.nodes
        return {o: record.reason or "no reason known" for o, record in operators.items() if o not in nodes}
