"""The work of the last process, taken up: queries and their mechanisms, sink bindings, and batches it had accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meander.adapt.per_query import assign
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.commands import Response
from meander.coordinator.core.core import Core
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.ledger.recovery import Recovered, reopen
from meander.coordinator.service.submission import submission
from meander.lang.topology.reader import TopologyFile
from meander.model.events import ChangeEvent, DemandChanged, JoinMatrixChanged, MechanismChanged, PlacementChanged
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId, QueryId
from meander.place.nova.queries.partitioned_queries import NOVA
from meander.run.connectors.base import SinkBinding
from meander.run.installation import OUTSIDE
from meander.run.store.records.deployment import FragmentRecord, RemoteFragmentRecord
from meander.run.store.records.reconfigurations import ReconfigurationRecord
from meander.run.store.store import Store


def known_to(store: Store) -> set[OperatorId]:
    """Operators that the host's store runs, or is about to."""
    found = {o for record in store.records(FragmentRecord).values() for o in record.fragment.operators}
    found |= {o for record in store.records(RemoteFragmentRecord).values() for o in record.fragment.operators}
    for record in store.records(ReconfigurationRecord).values():
        found |= record.change.operators
    return found


def take_up(core: Core, recovered: Recovered) -> None:
    """Takes up the work of the last process: plan and placement from the ledger, fragments and channels from the
    host's store."""
    loop, publisher, ledger = core.loop, core.publisher, core.ledger
    engine, plan, now = loop.engine, loop.catalog.plan, core.clock()
    mechanisms = ledger.queries.mechanisms()
    publisher.read_model.why.update(recovered.why)
    publisher.texts.update((str(q), text) for q, text in recovered.texts.items())
    for query, running in plan.queries.items():
        name, why = mechanisms.get(query, (core.adaptation.chosen.fallback, ""))
        name = core.adaptation.chosen.fallback if name == NOVA else name
        if name != core.adaptation.chosen.fallback and name in core.adaptation.chosen.library:
            assign(engine, query, name)
        name = NOVA if engine.parted.has(query) else name
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


def finish(core: Core, world: TopologyFile) -> None:
    """Batches that were accepted and not applied are applied now; their requests get the answers they had to get."""
    loop, reader = core.loop, ChangeReader(world.streams, world.sinks)
    reopen(loop.catalog, loop.engine.log)
    waiting = core.ledger.batches.unfinished()
    for number, values in waiting:
        try:
            changes = reader.read([v for v in values if _is_to_come(v, loop.catalog.plan)])
            batch = core.batches.apply(number, _still_there(loop.catalog.plan, changes.events), changes.texts)
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


def _is_to_come(value: Mapping[str, Any], plan: GlobalPlan) -> bool:
    """Whether following the log of queries has left an event of an accepted batch to be applied."""
    if value.get("event") == "query_added":
        return value.get("mechanism") == NOVA and value["query"] not in plan.queries
    return value.get("event") != "query_removed"


def _still_there(plan: GlobalPlan, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Leaves out events of queries that left in the same batch: they are gone already, everything else has to come."""
    found: list[ChangeEvent] = []
    for event in events:
        match event:
            case PlacementChanged(operator=operator) if operator not in plan.operators or not plan[operator].users:
                continue
            case DemandChanged(query=query) if query not in plan.queries:
                continue
            case JoinMatrixChanged(query=query) | MechanismChanged(query=query) if query not in plan.queries:
                continue
        found.append(event)
    return found


def begin(core: Core, world: TopologyFile, texts: Mapping[str, str]) -> None:
    """The first queries of a new directory."""
    reader = ChangeReader(world.streams, world.sinks)
    commands = [submission(reader, text, name) for name, text in texts.items()]
    core.take(commands)
    for command in commands:
        command.answer.result()
