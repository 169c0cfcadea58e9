"""A query whose aggregate Nova places as a tree, and keeps placed: partial results are merged on the way to the sink.

Nova decides at the beginning which producers and which merges come together at a node (`aggregate`), and from then on
where these nodes are: a merge moves with its state when its node leaves, takes in too much, or is clearly further from
its producers and its reader than another one. The tree itself stays, so nothing ever reads from another producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.events import ChangeEvent
from meander.model.global_plan import RunningQuery
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Union
from meander.model.plan import Query
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.costspace.maintenance import follow
from meander.place.nova.improvement.links import LinkLoad
from meander.place.nova.queries.aggregate import Merge, aggregation_tree
from meander.place.nova.queries.booking import Booking
from meander.place.nova.queries.cut_operators import CutOperators
from meander.place.nova.queries.join_parts import Running
from meander.place.nova.queries.partitioned_query import touched
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.tree_shape import tree_of

Floats = NDArray[np.float64]
NEARER = 0.75
"""A merge moves to a node when the latency to all around it is less than this share of the present one."""


class TreeQuery:
    """One query in one catalog. Nothing of it is in the plan before `start` or `restore`."""

    def __init__(
        self,
        catalog: Catalog,
        log: ChangeLog,
        query: Query,
        *,
        settings: NovaQuerySettings | None = None,
        shared: dict[Signature, OperatorId] | None = None,
        record: Mapping[str, Any] | None = None,
        fits: bool = False,
    ) -> None:
        """Places all merges, or takes up where `record` says they are. With `fits`, all is merged at the sink."""
        self.catalog, self.log, self.query = catalog, log, query
        self.shape = tree_of(query, catalog)
        self.settings = (settings or NovaQuerySettings()).with_options(query.options)
        self.operators = CutOperators(catalog, catalog.running if shared is None else shared)
        self.sink_node = catalog.topology.known_id(self.shape.sink_node)
        self.booking = Booking(catalog)
        self._placed: list[list[OperatorId]] = []
        """The operators of each merge."""
        if catalog.space is None:
            follow(catalog, ())
        if record is not None:
            self.merges = [Merge(node, tuple(inputs), *rates) for node, inputs, *rates in record["merges"]]
        elif fits:
            rates = self._source_tps()
            total = float(rates.sum())
            self.merges = [Merge(int(self.sink_node), tuple(range(len(rates))), total, 0.1 * total)]
        else:
            self.merges = self._decided()

    # ---------------------------------------------------------------- looking

    retired: tuple[Running, ...] = ()
    running: tuple[Running, ...] = ()

    @property
    def bookings(self) -> list[Booking]:
        """The capacity that it takes at nodes."""
        return [self.booking]

    def exceeded(self) -> list[LinkLoad]:
        """Links that it would load with more than they carry: merges keep to what the plan's routes leave."""
        return []

    def _source_tps(self) -> Floats:
        stream = self.shape.side.source.stream
        return np.array([self.catalog.source_rate_tps(stream, node) for node in self.shape.side.nodes])

    def _source_nodes(self) -> list[NodeId]:
        return [self.catalog.topology.known_id(node) for node in self.shape.side.nodes]

    # ---------------------------------------------------------------- beginning and ending

    def check(self) -> None:
        """Raises when some of it fits nowhere: deciding has found out."""

    def start(self) -> None:
        """Adds the query to the plan."""
        self._build()
        self.log.write(self.operators.fresh, (), f"query {self.query.id} added")

    def restore(self, record: Mapping[str, Any]) -> None:
        """Adds the query to the plan as it was recorded."""
        self.operators.given = [OperatorId(o) for o in reversed(record["cut"]["operators"])]
        self._build()

    def record(self) -> dict[str, Any]:
        """Where the merges are, as JSON values."""
        merges = [[m.node, list(m.inputs), m.in_tps, m.out_tps] for m in self.merges]
        return {"merges": merges, "cut": {"operators": [int(o) for o in self.operators.visited]}}

    def end(self) -> None:
        """Gives back what is booked."""
        self.booking.clear()

    def unshare(self) -> None:
        """Lets ordinary queries have sources of their own."""
        self.operators.unshare()

    def _build(self) -> None:
        """Adds all operators to the plan."""
        made, parts, shape, topology = self.operators, self.shape.operators, self.shape, self.catalog.topology
        ends: list[OperatorId] = []
        for name in shape.side.nodes:
            top = made.source(replace(shape.side.source, node=name))
            for spec in (*shape.side.chain, parts.before):
                top = made.operator(spec, (top,), topology.known_id(name))
            ends.append(top)
        tops: list[OperatorId] = []
        for merge in self.merges:
            node, partial = NodeId(merge.node), all(i >= 0 for i in merge.inputs)
            inputs = tuple(ends[i] if i >= 0 else tops[-1 - i] for i in merge.inputs)
            union = made.add(Union(), inputs, node)
            aggregate = made.add(parts.partial if partial else parts.merge, (union,), node)
            tops.append(made.add(parts.named if partial else parts.named_again, (aggregate,), node))
            self._placed.append([union, aggregate, tops[-1]])
        rest = {shape.aggregate: made.add(parts.finish, (tops[-1],), self.sink_node)}
        plan = shape.query.plan
        for own in shape.rest:
            rest[own] = made.add(plan.operators[own], tuple(rest[i] for i in plan.inputs[own]), self.sink_node)
        self.catalog.plan.bundles[self.query.id] = dict.fromkeys([*made.made, *(o for p in self._placed for o in p)])
        self.catalog.plan.replacing.add(self.query.id)
        self.catalog.plan.add_query(RunningQuery(self.query, tuple(rest[s] for s in plan.sinks)))
        self._book()

    # ---------------------------------------------------------------- changing

    def foresee(self, events: Sequence[ChangeEvent]) -> None:
        """Nothing is to be done before a node leaves: merges there move when it has left."""

    def follow(self, events: Sequence[ChangeEvent]) -> None:
        """Works out where merges go after events that have been applied."""
        self._measure()
        topology, free = self.catalog.topology, self._free()
        nodes = {node for name in touched(events) if (node := topology.find(name)) is not None}
        for number, merge in enumerate(self.merges[:-1]):
            here = NodeId(merge.node)
            gone = not self._can_be_at(here)
            if gone or free[here] < 0 or not nodes.isdisjoint([here, *self._around(number)]):
                self._settle(number, free, must=gone)
        self._book()

    def recut(self, cause: str, spent: Sequence[Running] = ()) -> bool:
        """Pins merges to where they are wanted now; says whether anything changes."""
        moved = [
            operator
            for merge, operators in zip(self.merges, self._placed, strict=True)
            for operator in operators
            if self.operators.settle(operator, NodeId(merge.node))
        ]
        self.log.write(moved, (), cause)
        return bool(moved)

    def _decided(self) -> list[Merge]:
        free = np.maximum(self._free(), 0.0)
        try:
            return aggregation_tree(
                self._points(), free, np.array(self._source_nodes(), dtype=np.int64), self._source_tps(),
                int(self.sink_node), fan_in=self.settings.fan_in,
                heights=self._heights(),
            )  # fmt: skip
        except InputError as error:
            raise error.inside(f"query {self.query.id!r}") from None

    def _points(self) -> Floats:
        """The coordinates of all nodes; nodes that are away are where the results are wanted."""
        space, topology = self.catalog.space, self.catalog.topology
        assert space is not None
        points = np.array(space.coordinates[: topology.nodes.count], dtype=np.float64)
        missing = np.isnan(points).any(axis=1)
        sink = points[self.sink_node]
        points[missing] = np.nanmean(points, axis=0) if np.isnan(sink).any() else sink
        return points

    def _free(self) -> Floats:
        """The tuples per second that nodes have left beside what the query takes; nothing where nothing can be."""
        topology, taken = self.catalog.topology, self.booking.taken
        count = topology.nodes.count
        free = topology.nodes.capacity_tps[:count].astype(np.float64) - self.catalog.ledger.load_tps[:count]
        free[~topology.nodes.alive[:count]] = -np.inf
        least = self.settings.least_free_tps
        if least:
            idle = np.ones(count, dtype=bool)
            idle[: len(taken)] = taken[:count] == 0
            free[idle & (free < least)] = 0.0
        return free

    def _can_be_at(self, node: NodeId) -> bool:
        topology = self.catalog.topology
        return topology.is_alive(node) and topology.reachable(node, self.sink_node)

    def _measure(self) -> None:
        """Takes note of what producers send now."""
        tps = self._source_tps()
        again: list[Merge] = []
        for merge in self.merges:
            taken = sum(float(tps[i]) if i >= 0 else again[-1 - i].out_tps for i in merge.inputs)
            again.append(Merge(merge.node, merge.inputs, taken, merge.out_tps / max(merge.in_tps, 1e-9) * taken))
        self.merges = again

    def _settle(self, number: int, free: Floats, *, must: bool) -> None:
        """Moves a merge to the node with room that is nearest to all around it, when it has to or gains by it."""
        merge, here = self.merges[number], self.merges[number].node
        points, heights = self._points(), self._heights()
        around = self._around(number)
        costs = sum(np.linalg.norm(points - points[end], axis=1) + heights for end in around)
        costs = np.where(free >= merge.in_tps, costs, np.inf)
        costs[here] = np.inf
        for node in np.argsort(costs, kind="stable").tolist():
            if not np.isfinite(costs[node]):
                break
            if self._can_be_at(NodeId(node)):
                at_home = sum(float(np.linalg.norm(points[here] - points[end])) + heights[here] for end in around)
                if must or free[here] < 0 or costs[node] < NEARER * at_home:
                    self._go(number, node, free)
                return
        if must:
            self._go(number, int(self.sink_node), free)

    def _around(self, number: int) -> list[int]:
        """The nodes that a merge reads from, and the one that reads it."""
        sources, merge = self._source_nodes(), self.merges[number]
        found = [int(sources[i]) if i >= 0 else self.merges[-1 - i].node for i in merge.inputs]
        return [*found, *(m.node for m in self.merges if -1 - number in m.inputs)]

    def _go(self, number: int, node: int, free: Floats) -> None:
        merge = self.merges[number]
        free[merge.node] += merge.in_tps
        free[node] -= merge.in_tps
        self.merges[number] = Merge(node, merge.inputs, merge.in_tps, merge.out_tps)

    def _heights(self) -> Floats:
        space, topology = self.catalog.space, self.catalog.topology
        assert space is not None
        count = topology.nodes.count
        return np.nan_to_num(space.heights[:count] + self.settings.extra_ms(topology)[:count])

    def _book(self) -> None:
        loads = np.zeros(self.catalog.topology.nodes.count)
        for merge in self.merges[:-1]:
            loads[merge.node] += merge.in_tps
        self.booking.charge(loads)
