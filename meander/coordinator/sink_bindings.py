"""Sink bindings: delivery kept in step with the queries that come and go.

A sink binding begins to deliver when its channel exists, and ends when its query was stopped and the last result is
out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.newest_results import NewestResults, NewestResultsSink
from meander.model.errors import InputError
from meander.model.ids import ChannelId, OperatorId, QueryId
from meander.model.operators import Sink
from meander.model.plan import Query
from meander.model.streams import SinkTarget
from meander.run.connectors.base import SinkBinding, SinkConnector, Surroundings
from meander.run.host import Host
from meander.run.installation import OUTSIDE
from meander.run.store.commit import Commit, RemoveChannel

_log = logging.getLogger(__name__)
NO_CHANNEL = ChannelId(0)
SinkOf = Callable[[SinkBinding, Surroundings], SinkConnector]


@dataclass(slots=True)
class SinkBindings:
    """The ways out of all queries."""

    loop: PlacementLoop
    host: Host
    ledger: Ledger
    around: Surroundings
    sink_of: SinkOf
    known: dict[str, SinkBinding] = field(default_factory=dict)
    """By name: all that deliver or wait for their channel."""
    newest: dict[str, NewestResults] = field(default_factory=dict)
    """The newest results, by query: those of its first sink."""
    stopping: set[str] = field(default_factory=set)
    """Queries that were stopped and still have results on their way."""
    _sinks: dict[str, SinkConnector] = field(default_factory=dict)
    _delivering: set[str] = field(default_factory=set)

    def names(self, query: str) -> list[str]:
        return [name for name, binding in self.known.items() if binding.query == query]

    # ---------------------------------------------------------------- coming

    def prepare(self, query: Query) -> None:
        """Makes the sinks of a query that is about to come, so that one that cannot be is known before."""
        if query.id in self.stopping:
            raise InputError(f"query {query.id!r} is being stopped; try again when it is gone, or choose another name")
        sinks = self.loop.catalog.sinks
        for operator in query.plan.operators.values():
            if isinstance(operator, Sink) and operator.name in sinks:
                _check_late(sinks[operator.name])
                binding = SinkBinding(query.id, sinks[operator.name], NO_CHANNEL)
                self._sinks[binding.name] = self._sink(binding)

    def _sink(self, binding: SinkBinding) -> SinkConnector:
        sink = self.sink_of(binding, self.around)
        path = getattr(sink, "path", None)
        for name, other in self._sinks.items():
            if path is not None and name in self.known and getattr(other, "path", None) == path:
                raise InputError(
                    f"sink {binding.target.name!r}: {binding.name!r} and {name!r} would both write to {path}; "
                    "put {query} into option 'path' of the sink"
                )
        return sink

    def expect(self, query: QueryId) -> None:
        """The query is in the plan now: its sink bindings begin when their channels exist."""
        plan, sinks = self.loop.catalog.plan, self.loop.catalog.sinks
        for sink in plan.query(query).sinks:
            spec = plan[sink].spec
            assert isinstance(spec, Sink)
            self.adopt(SinkBinding(query, sinks[spec.name], ChannelId(OUTSIDE + sink)))

    def adopt(self, binding: SinkBinding) -> None:
        """A sink binding, new or of an earlier process."""
        if binding.name not in self._sinks:
            self._sinks[binding.name] = self._sink(binding)
        self.known[binding.name] = binding
        self.ledger.queries.save_sink_binding(binding.channel, binding.query, binding.target.name)

    def stop(self, query: QueryId) -> None:
        self.stopping.add(query)

    # ---------------------------------------------------------------- keeping up

    def tick(self) -> list[QueryId]:
        """Begins and ends sink bindings that are due; returns the queries that are gone for good now."""
        delivery = self.host.delivery
        if delivery is None or (len(self._delivering) == len(self.known) and not self.stopping):
            return []
        channels = set(self.host.store.exchange.channels())
        for name, binding in self.known.items():
            if name not in self._delivering and binding.channel in channels:
                delivery.add(binding, self._with_newest(binding))
                self._delivering.add(name)
        gone = [QueryId(q) for q in sorted(self.stopping) if self._is_done(q, channels)]
        for query in gone:
            self._free(query, channels)
        return gone

    def _with_newest(self, binding: SinkBinding) -> SinkConnector:
        sink = self._sinks[binding.name]
        if binding.query in self.newest:
            return sink
        newest = self.newest[binding.query] = NewestResults()
        return NewestResultsSink(sink, newest)

    def _is_done(self, query: str, channels: set[ChannelId]) -> bool:
        """Whether nothing of the query runs, and nothing of it waits to be delivered or can be."""
        mine = [self.known[name] for name in self.names(query)]
        if self._still_runs(OperatorId(o.channel - OUTSIDE) for o in mine):
            return False
        assert self.host.delivery is not None
        paused = self.host.delivery.paused_channels()
        counters = self.host.store.exchange.counters
        left = [o for o in mine if o.channel in channels and o.channel not in paused]
        return not any(counters(o.channel).pending_tuples for o in left)

    def _still_runs(self, sinks: Iterable[OperatorId]) -> bool:
        deployer = self.loop.deployer
        found = set(sinks)
        if any(o in deployer.deployment.owner for o in found):
            return True
        return any(found & each.change.operators for each in deployer.under_way.values())

    def _free(self, query: QueryId, channels: set[ChannelId]) -> None:
        assert self.host.delivery is not None
        for name in self.names(query):
            binding = self.known.pop(name)
            if name in self._delivering:
                self._delivering.discard(name)
                self.host.delivery.remove(name)
            self._sinks.pop(name, None)
            if binding.channel in channels:
                self.host.store.commit(Commit(remove=(RemoveChannel(binding.channel, discard=True),)))
            self.ledger.queries.forget_sink_binding(binding.channel)
        self.newest.pop(query, None)
        self.stopping.discard(query)
        _log.info("query %s is stopped and freed", query)


def _check_late(target: SinkTarget) -> None:
    """A service counts the tuples that come too late, and delivers none of them."""
    if "late" in target.options:
        raise InputError(
            f"sink {target.name!r}: option 'late' is for `meander run`; a service counts late tuples "
            "(`meander_late_tuples`) and keeps none: take the option away"
        )
