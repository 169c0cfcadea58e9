"""Assembly: catalog, engine, loop, adaptation and decision core on one host, new or as the last process left them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meander.adapt.foresight import CatalogForesight
from meander.adapt.knowledge import Knowledge
from meander.adapt.settings import BY_DEMANDS
from meander.adapt.steering import AdaptationPolicy
from meander.coordinator.adaptation.adaptation import USUAL, Adaptation, per_query
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.batches import ObservedEngine
from meander.coordinator.core.core import Core
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.ledger.recovery import known_to, rebuild
from meander.coordinator.loop import PlacementLoop
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.prediction.prediction import MOVES, prediction_of
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.measuring import Measuring
from meander.coordinator.read_model.publisher import Publisher
from meander.coordinator.read_model.read_model import ReadModel
from meander.coordinator.read_model.traces import traces_from_environment
from meander.coordinator.sink_bindings import SinkBindings
from meander.coordinator.taking_up import finish, take_up
from meander.deploy.protocols import protocol
from meander.lang.topology.reader import TopologyFile
from meander.membership.protocol import Epoch
from meander.place.nova.queries.parted_queries import NOVA
from meander.run.connectors.base import Surroundings
from meander.run.delivery.latency import LatencyHistogram
from meander.run.host import Host

_log = logging.getLogger(__name__)
FORECAST_S = 0.5
"""The longest time of a mechanism for a forecast: the decision core waits meanwhile."""
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
        delivery = self.host.delivery
        everything = LatencyHistogram()
        for latency in delivery.latencies().values() if delivery is not None else ():
            everything = everything.plus(latency)
        found = everything.percentiles()
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
    ledger = Ledger(ledger_path, epoch)
    fresh = not ledger.topology.exists()
    recovered = rebuild(ledger, world, known_to(host.store))
    catalog = recovered.catalog
    if fresh:
        with ledger.transaction():
            ledger.topology.save(catalog.topology)
    usual = USUAL if options.mechanism in (BY_DEMANDS, NOVA) else options.mechanism
    engine = ObservedEngine(catalog, per_query(usual), amenders=options.amenders, applicator=recovered.applicator)
    loop = PlacementLoop(
        catalog,
        engine,
        host,
        emulated=options.emulate,
        protocol=protocol(options.protocol),
        strategy=options.state,
        replicas=world.resilience.replicas,
    )
    join(loop)
    knowledge = ledger_path.with_name(KNOWLEDGE)
    adaptation = _adaptation(loop, knowledge, options.policy(), ledger)
    sink_bindings = SinkBindings(loop, host, ledger, around, options.sink_of)
    read_model = ReadModel(loop)
    read_model.memory = ledger.away_links
    publisher = Publisher(loop, adaptation, ledger, read_model, sink_bindings, hub)
    publisher.traces = traces_from_environment()
    core = Core(publisher)
    core.validates = options.validate
    adaptation.meter.flows = lambda: publisher.measured.flows if publisher.measured is not None else {}
    adaptation.transitions.predictor.state_bytes = lambda fragment: (
        publisher.measured.state_bytes.get(fragment, 0) if publisher.measured is not None else 0
    )
    adaptation.meter.exchanged.queries_of = read_model.queries_of
    adaptation.meter.held = publisher.held
    adaptation.meter.waits_for = lambda query: publisher.waits_for(query, 1)
    adaptation.meter.still_ms = lambda query: publisher.still.get(query, (0, None))[0]
    take_up(core, recovered)
    core.prediction = prediction_of(loop, options.prediction, ledger_path.with_name(MOVES), core.clock())
    parts = Assembly(host, around, ledger, loop, core, Measuring(host, core.measured), knowledge, time.monotonic())
    finish(core, ChangeReader(world.streams, world.sinks))
    if fresh:
        _first(core, ChangeReader(world.streams, world.sinks), options.first)
    return parts


def _adaptation(loop: PlacementLoop, knowledge: Path, policy: AdaptationPolicy, ledger: Ledger) -> Adaptation:
    for query, values in ledger.queries.adaptation().items():
        for name in policy.restore(query, values):
            _log.warning("setting %s%s is not allowed any more: its default applies", name, query and f" of {query}")
    adaptation = Adaptation(loop, policy=policy, knowledge=Knowledge.load(knowledge))
    if isinstance(adaptation.mapek.foresight, CatalogForesight):
        adaptation.mapek.foresight.time_limit_s = FORECAST_S
    return adaptation


def _first(core: Core, reader: ChangeReader, texts: Mapping[str, str]) -> None:
    """The first queries of a new directory."""
    from meander.coordinator.service.submission import submission

    commands = [submission(reader, text, name) for name, text in texts.items()]
    core.take(commands)
    for command in commands:
        command.answer.result()
