"""Assembly: catalog, engine, loop, adaptation and decision core on one host, new or as the last process left them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meander.adapt.foresight import CatalogForesight
from meander.adapt.knowledge import Knowledge
from meander.adapt.per_query import assign
from meander.adapt.settings import BY_DEMANDS
from meander.adapt.steering import AdaptationPolicy
from meander.coordinator.adaptation.adaptation import USUAL, Adaptation, per_query
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.batches import ObservedEngine
from meander.coordinator.core.commands import Response
from meander.coordinator.core.core import Core
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.ledger.recovery import Recovered, known_to, rebuild, reopen
from meander.coordinator.loop import PlacementLoop
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.measuring import Measuring
from meander.coordinator.read_model.publisher import Publisher
from meander.coordinator.read_model.read_model import ReadModel
from meander.coordinator.read_model.traces import traces_from_environment
from meander.coordinator.sink_bindings import SinkBindings
from meander.deploy.protocols import protocol
from meander.lang.topology.reader import TopologyFile
from meander.membership.protocol import Epoch
from meander.model.events import ChangeEvent, DemandChanged, PlacementChanged
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId, QueryId
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.delivery.latency import LatencyHistogram
from meander.run.host import Host
from meander.run.installation import OUTSIDE

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
    join: Callable[[PlacementLoop, Host], None] = lambda loop, host: None,
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
    usual = USUAL if options.mechanism == BY_DEMANDS else options.mechanism
    engine = ObservedEngine(catalog, per_query(usual), amenders=options.amenders)
    loop = PlacementLoop(
        catalog,
        engine,
        host,
        emulated=options.emulate,
        protocol=protocol(options.protocol),
        replicas=world.resilience.replicas,
    )
    join(loop, host)
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
    adaptation.meter.held = publisher.held
    adaptation.meter.waits_for = lambda query: publisher.waits_for(query, 1)
    adaptation.meter.still_ms = lambda query: publisher.still.get(query, (0, None))[0]
    _take_up(core, recovered, knowledge_of=ledger.queries.mechanisms())
    parts = Assembly(host, around, ledger, loop, core, Measuring(host, core.measured), knowledge, time.monotonic())
    _finish(core, ChangeReader(world.streams, world.sinks))
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


def _take_up(core: Core, recovered: Recovered, knowledge_of: Mapping[str, tuple[str, str]]) -> None:
    """Takes up the work of the last process: plan and placement from the ledger, fragments and channels from the
    host's store."""
    loop, publisher, ledger = core.loop, core.publisher, core.ledger
    engine, plan, now = loop.engine, loop.catalog.plan, core.clock()
    publisher.read_model.why.update(recovered.why)
    publisher.texts.update((str(q), text) for q, text in recovered.texts.items())
    for query, running in plan.queries.items():
        name, why = knowledge_of.get(query, (core.adaptation.chosen.fallback, ""))
        if name != core.adaptation.chosen.fallback and name in core.adaptation.chosen.library:
            assign(engine, query, name)
        core.adaptation.mapek.watch(query, running.query.demands, name, now)
        core.adaptation.mapek.knowledge.queries[query].why = why
        publisher.read_model.show_query(query)
    publisher.mechanisms = dict(core.adaptation.mechanisms())
    core.batches.restore()
    history = EventHistory(ledger.path)
    publisher.change_history.adopt(history.reconfigurations(1_000))
    history.close()
    _take_up_sink_bindings(core)
    core.adaptation.restore()
    loop.recover(recovered.ghosts)
    core.adaptation.resume()
    publisher.read_model.show_whole_topology()


def _take_up_sink_bindings(core: Core) -> None:
    """Takes up the sink bindings of queries that run, and of those that were being stopped."""
    sink_bindings, sinks = core.sink_bindings, core.loop.catalog.sinks
    running = {OperatorId(s) for r in core.loop.catalog.plan.queries.values() for s in r.sinks}
    with core.ledger.transaction():
        for channel, query, sink in core.ledger.queries.sink_bindings():
            if sink in sinks:
                sink_bindings.adopt(SinkBinding(query, sinks[sink], channel))
                if OperatorId(channel - OUTSIDE) not in running:
                    sink_bindings.stop(QueryId(query))
                    core.publisher.texts.setdefault(query, "")
        for query in core.loop.catalog.plan.queries:
            if not sink_bindings.names(query):
                sink_bindings.expect(query)


def _finish(core: Core, reader: ChangeReader) -> None:
    """Batches that were accepted and not applied are applied now; their requests get the answers they had to get."""
    loop = core.loop
    reopen(loop.catalog, loop.engine.log)
    waiting = core.ledger.batches.unfinished()
    for number, values in waiting:
        try:
            changes = reader.read([v for v in values if v.get("event") not in ("query_added", "query_removed")])
            batch = core.batches.apply(number, _still_there(loop.catalog.plan, changes.events), {})
            core.batches.begin(batch)
        except Exception as error:  # a batch that cannot be applied must not keep everything else from running
            core.failed(f"applying batch {number}, which had been accepted,", error)
            with core.ledger.transaction():
                core.ledger.batches.applied(number, {"failed": str(error)})
            continue
        with core.ledger.transaction():
            for key, response in core.ledger.answers.unanswered(number):
                core.ledger.answers.give(key, *Response.of_json(response).answer(core, batch))
    if not waiting and (loop.engine.log.entries or loop.deployer.has_waiting_changes):
        report = loop.engine.run([])
        loop.follow((), report, loop.clock())
        core.batches.follow()


def _still_there(plan: GlobalPlan, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Leaves out events of queries that left in the same batch: they are gone already, everything else has to come."""
    found: list[ChangeEvent] = []
    for event in events:
        match event:
            case PlacementChanged(operator=operator) if operator not in plan.operators or not plan[operator].users:
                continue
            case DemandChanged(query=query) if query not in plan.queries:
                continue
        found.append(event)
    return found


def _first(core: Core, reader: ChangeReader, texts: Mapping[str, str]) -> None:
    """The first queries of a new directory."""
    from meander.coordinator.service.submission import submission

    commands = [submission(reader, text, name) for name, text in texts.items()]
    core.take(commands)
    for command in commands:
        command.answer.result()
