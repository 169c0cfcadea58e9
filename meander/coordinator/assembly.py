"""Assembly: catalog, engine, loop, adaptation and decision core on one host, new or as the last process left them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meander.coordinator.adaptation.restored import mechanisms_from, restored
from meander.coordinator.core.batches import ObservedEngine
from meander.coordinator.core.core import Core
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.ledger.recovery import rebuild
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.mobility.prediction import MOVES, prediction_of
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.measuring import Measuring
from meander.coordinator.read_model.publisher import Publisher
from meander.coordinator.restart_recovery import begin, finish, known_to, take_up
from meander.coordinator.sink_bindings import SinkBindings
from meander.lang.topology.reader import TopologyFile
from meander.membership.protocol import Epoch
from meander.run.connectors.base import Surroundings
from meander.run.delivery.latency import between
from meander.run.host import Host

SETTLE_S = 60.0
KNOWLEDGE = "knowledge.json"


@dataclass(slots=True)
class Assembly:
    """All parts, put together."""

    host: Host
    around: Surroundings
    ledger: Ledger
    loop: PlacementLoop
    core: Core
    measuring: Measuring
    knowledge: Path
    started: float

    def settle(self) -> None:
        """Lets changes in flight take effect, so that tuples find running fragments; then fills the read model."""
        publisher = self.core.publisher
        publisher.reconfigurations(self.loop.settle(SETTLE_S), self.core.clock())
        publisher.read_model.show_operators(self.loop.catalog.plan.operators)
        publisher.read_model.show_deployment(None)
        publisher.queries(list(publisher.texts))

    def close(self) -> None:
        self.core.adaptation.mapek.knowledge.save(self.knowledge)
        if self.core.prediction is not None:
            self.core.prediction.save()
        self.core.publisher.traces.close()
        self.loop.engine.close()
        self.ledger.close()

    def summary(self) -> dict[str, Any]:
        """The totals since the process began."""
        totals, status = self.core.publisher.totals, self.host.status()
        found = between({}, self.host.latencies())
        shown = {"p50": found.p50_ms, "p95": found.p95_ms, "p99": found.p99_ms}
        return {
            "changes": totals.batches,
            "events": totals.events,
            "refused": totals.refused,
            "moves": totals.moves,
            "reconfigurations": totals.reconfigurations,
            "aborted": totals.aborted,
            "fragments_moved": totals.fragments,
            "state_bytes": totals.state_bytes,
            "decisions": totals.decisions,
            "queries": len(self.core.publisher.texts),
            "tuples_in": status.ingest.rows if status.ingest else 0,
            "tuples_out": status.delivery.rows if status.delivery else 0,
            "results": {name: o.rows for name, o in (status.delivery.sink_bindings if status.delivery else {}).items()},
            "latency_ms": {share: None if np.isnan(ms) else ms for share, ms in shown.items()},
            "problems": list(status.problems),
            "uptime_s": round(time.monotonic() - self.started, 1),
        }


def assemble(
    host: Host,
    world: TopologyFile,
    ledger_path: Path,
    around: Surroundings,
    hub: Hub,
    options: CoordinatorOptions,
    epoch: Epoch | None = None,
    join: Callable[[PlacementLoop], None] = lambda loop: None,
) -> Assembly:
    """Puts everything together; the contents of the ledger and of the host's store are taken up, after `join` was
    called."""
    ledger = Ledger(ledger_path, epoch, durable=around.durable)
    fresh = not ledger.topology.exists()
    recovered = rebuild(ledger, world, known_to(host.store), options.nova)
    catalog = recovered.catalog
    if fresh:
        with ledger.transaction():
            ledger.topology.save(catalog.topology)
    library = mechanisms_from(options.mechanism)
    engine = ObservedEngine(catalog, library, amenders=options.amenders, applicator=recovered.applicator)
    loop = PlacementLoop(
        catalog,
        engine,
        host,
        emulated=options.emulate,
        protocol=options.chosen_protocol,
        strategy=options.state,
        replicas=world.resilience.replicas,
    )
    loop.driver.before_telling = ledger.sync
    join(loop)
    knowledge = ledger_path.with_name(KNOWLEDGE)
    adaptation = restored(loop, knowledge, options.policy(), ledger)
    sink_bindings = SinkBindings(loop, host, ledger, around, options.sink_of)
    core = Core(Publisher(loop, adaptation, ledger, sink_bindings, hub))
    core.validates = options.validate
    take_up(core, recovered)
    core.prediction = prediction_of(loop, options.prediction, ledger_path.with_name(MOVES), core.clock())
    parts = Assembly(host, around, ledger, loop, core, Measuring(host, core.measured), knowledge, time.monotonic())
    finish(core, world)
    if fresh:
        begin(core, world, options.first)
    return parts
