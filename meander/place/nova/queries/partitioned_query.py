"""A query whose join Nova places and keeps placed: change events in, a better cut out, in the plan it is part of.

Its operators are pinned where Nova wants them. Nodes that leave and come back are nodes whose capacity goes to nothing
and back. Sources whose node is away keep the cut that they have: nothing new can begin there. What runs, and which
retired parts have done their duty, is known to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meander.model.errors import InputError
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, NodeAdded, NodeRemoved, RateChanged
from meander.model.ids import NodeId, OperatorId
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.nova.improvement.bandwidth import respect_links
from meander.place.nova.queries.booking import Booking
from meander.place.nova.queries.join_parts import WHOLE, JoinPart, Running
from meander.place.nova.queries.placed_join import as_recorded, placed
from meander.place.nova.queries.question import Pairs, parts_of
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.shape import JoinShape
from meander.place.nova.queries.split import slots_of
from meander.place.nova.queries.takeover import Legacy
from meander.place.nova.queries.wiring import Wiring, record_of
from meander.place.nova.running.reoptimise import Reoptimiser
from meander.place.rates import output_rate_tps, row_bytes

EVERYTHING = slots_of(range(1), 1)
LEAST_TPS = 1.0
"""The rate of a stage's results that is reckoned with when next to nothing is expected."""


class PartitionedQuery:
    """One join of a query in one catalog. Nothing of it is in the plan before `start` or `restore`."""

    def __init__(
        self,
        catalog: Catalog,
        log: ChangeLog,
        shape: JoinShape,
        *,
        settings: NovaQuerySettings | None = None,
        pairs: Pairs | None = None,
        shared: dict[Signature, OperatorId] | None = None,
        record: Mapping[str, Any] | None = None,
        fits: bool = False,
        stages: Sequence[PartitionedQuery] = (),
    ) -> None:
        """Places the join, or takes up where `record` says it is. `stages` are the query's joins before this one.

        Raises when all nodes together cannot take it. With `fits`, the sink takes all of it until the next change.
        """
        self.catalog = catalog
        self.shape, self.stages = shape, tuple(stages)
        self.settings = (settings or NovaQuerySettings()).with_options(shape.query.options)
        below: list[Wiring] = [stage.wiring for stage in stages]
        self.wiring: Wiring = Wiring(catalog, log, shape, shared, below)
        self.is_handed_over = record is not None and bool(record.get("handed_over"))
        """Whether another mechanism places the join."""
        if record is None:
            self.reoptimiser = self._placed(pairs, fits=fits)
        else:
            producers = [(side, node) for side, node in record["cut"]["producers"]]
            self.reoptimiser = as_recorded(catalog, shape, producers, self.settings, record, self._derived_tps)
        self.row_bytes = max(row_bytes(side.schema) for side in (self.shape.left, self.shape.right))
        self.booking = Booking(catalog)
        if record is None:
            self._respect_links()

    def _placed(self, pairs: Pairs | None, ends: Pairs | None = None, *, fits: bool) -> Reoptimiser:
        given = self.catalog, self.shape, self.wiring.producers, self.settings
        return placed(*given, pairs, ends=ends, fits=fits, derived_tps=self._derived_tps)

    @property
    def _derived_tps(self) -> dict[int, float]:
        """The rates of the sides that read another stage."""
        return {
            number: max(self.stages[side.below].output_tps, LEAST_TPS)
            for number, side in enumerate(self.shape.sides)
            if side.below is not None
        }

    @property
    def output_tps(self) -> float:
        """The rate at which results come out, as far as it can be estimated."""
        derived, streams = self._derived_tps, [side.source.stream for side in self.shape.sides]
        given = [0.0, 0.0]
        for side, node in self.wiring.producers:
            given[side] += derived[side] if side in derived else self.catalog.source_rate_tps(streams[side], node)
        return flow_of(self.shape, given)

    # ---------------------------------------------------------------- beginning and ending

    def check(self) -> None:
        """Raises when some of it fits nowhere."""
        joins = self.reoptimiser.joins
        if len(joins.unplaced):
            raise InputError(
                f"query {self.shape.query.id!r}: {len(joins.unplaced)} of its {joins.join_count} joins fit nowhere; "
                "add capacity, or place it by another mechanism"
            )

    def start(self) -> None:
        """Adds the query to the plan. Pairs that fit nowhere begin at the sink, and are tried again."""
        self.book()
        self.wiring.start([*self.parts, *self._at_sink(self.without_room)])

    def take_over(self, legacy: Legacy, cause: str) -> None:
        """Begins beside the join of a query that runs."""
        self.book()
        self.wiring.take_over([*self.parts, *self._at_sink(self.without_room)], legacy, cause)

    def hand_over(self) -> None:
        """Another mechanism places the join from now on, all producers with all others. `recut` has to follow."""
        self.is_handed_over = True
        self.booking.clear()

    def take_back(self) -> None:
        """Places a join again that was handed over. `recut` has to follow."""
        self.reoptimiser = self._placed(None, fits=True)
        self.is_handed_over = False
        self.follow(())

    def record(self) -> dict[str, Any]:
        """Where the join is, as JSON values."""
        if self.is_handed_over:
            return {"pairs": [], "replicas": [], "cut": record_of(self.wiring), "handed_over": True}
        joins = self.reoptimiser.joins
        rows = np.flatnonzero(joins.active)
        row_of = {int(row): place for place, row in enumerate(rows)}
        replicas = [
            [row_of[r.join], r.node, *_ends(r.left), *_ends(r.right), r.left_parts, r.right_parts]
            for r in joins.replicas()
        ]
        pairs = joins.board.joins["ends"][rows].tolist()
        return {"pairs": pairs, "replicas": replicas, "cut": record_of(self.wiring)}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Adds the query to the plan as it was recorded."""
        self.wiring.restore(record["cut"])
        self.book()

    def end(self) -> None:
        """Gives back what is booked. The query has left the plan."""
        self.booking.clear()

    # ---------------------------------------------------------------- looking

    @property
    def parts(self) -> list[JoinPart]:
        """The cut as Nova wants it."""
        return parts_of(self.reoptimiser.joins)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The sources that join, by their numbers: none where another mechanism places the join."""
        joins = self.reoptimiser.joins
        if self.is_handed_over:
            return []
        return [(int(a), int(b)) for a, b in joins.board.joins["ends"][np.flatnonzero(joins.active)].tolist()]

    def label(self, number: int) -> str:
        """A producer's name: that of its node, or of the stage that it is."""
        side, node = self.wiring.producers[number]
        shape = self.shape.sides[side]
        return node if shape.below is None else shape.source.stream

    @property
    def without_room(self) -> list[tuple[int, int]]:
        """Pairs of sources whose join fits nowhere at the moment; they stay where they were."""
        joins = self.reoptimiser.joins
        return [(int(a), int(b)) for a, b in joins.board.joins["ends"][joins.unplaced]]

    # ---------------------------------------------------------------- changing

    def gather(self, node: str) -> None:
        """Results come together at another node from now on. `relocate` has to follow, and `recut`."""
        self.shape = replace(self.shape, sink_node=node)
        self.wiring.gather(node)

    def relocate(self, *, moved: bool) -> None:
        """Looks where the stages are whose results it reads. All joins are placed anew when that is elsewhere, or when
        it has `moved` itself."""
        pairs = self.pairs
        if self.wiring.follow_hubs() or moved:
            self.booking.clear()
            self.reoptimiser = self._placed(None, pairs, fits=True)
            self._take_what_is_left(())

    def foresee(self, events: Iterable[ChangeEvent]) -> None:
        """Makes room at nodes that are about to leave. Before the events are applied."""
        if self.is_handed_over:
            return
        for event in events:
            if isinstance(event, NodeRemoved):
                self._resize(self.catalog.topology.find(event.node), 0.0)
        self.book()

    def follow(self, events: Sequence[ChangeEvent]) -> None:
        """Works out the effects of events that have been applied, on what they touch only."""
        if self.is_handed_over:
            return
        joins = self.reoptimiser.joins
        for event in events:
            match event:
                case RateChanged(stream=stream, rate_tps=rate, node=node):
                    for number, source in enumerate(self.wiring.sources):
                        if source[0] == stream and node in (None, source[1]):
                            self.reoptimiser.set_rate(number, rate)
        derived = self._derived_tps
        for number, (side, _) in enumerate(self.wiring.producers if derived else ()):
            if side in derived and float(joins.board.sources[number]["rate"]) != derived[side]:
                self.reoptimiser.set_rate(number, derived[side])
        self._move(events)
        self._take_what_is_left(events)
        if len(joins.unplaced):
            self.reoptimiser.retry()
        self._respect_links()

    def match(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Another join matrix from now on: joins that it does not have end, new ones are placed. `recut` has to
        follow."""
        joins, wanted = self.reoptimiser.joins, dict.fromkeys(pairs)
        rows = np.flatnonzero(joins.active).tolist()
        before = {(int(a), int(b)): row for row in rows for a, b in [joins.board.joins["ends"][row].tolist()]}
        for pair, row in before.items():
            if pair not in wanted:
                self.reoptimiser.remove_join(row)
        for pair in wanted:
            if pair not in before:
                self.reoptimiser.add_join(*pair, int(self.wiring.sink_node))

    def recut(self, cause: str, spent: Sequence[Running] = ()) -> bool:
        """Cuts the join in the plan as Nova wants it now; says whether anything changes there.

        Joins that fit nowhere, and those of sources that are away, stay as they are.
        """
        topology = self.catalog.topology
        if self.is_handed_over:
            wanted = [WHOLE]
        else:
            self.book()
            wanted = [
                p if topology.is_alive(p.node) else replace(p, node=self.wiring.sink_node) for p in self._wanted()
            ]
        for running in self.wiring.parts:
            part = running.part
            if not part.is_whole and not topology.is_alive(part.node):
                heirs = (p.node for p in wanted if (p.left, p.right) == (part.left, part.right))
                self.wiring.move(running, next(heirs, self.wiring.sink_node))
        return self.wiring.change(wanted, cause, spent)

    def _wanted(self) -> list[JoinPart]:
        """The cut from now on."""
        topology, active = self.catalog.topology, [p for p in self.wiring.active if not p.is_whole]
        away = {
            number for number, (_, name) in enumerate(self.wiring.producers)
            if not topology.is_alive(topology.known_id(name))
        }  # fmt: skip
        frozen = {(p.left, p.right) for p in active if p.left in away or p.right in away}
        wanted = [p for p in self.parts if (p.left, p.right) not in frozen]
        placed, known = {(p.left, p.right) for p in wanted}, set(self.pairs)
        wanted += [p for p in active if (p.left, p.right) not in placed and (p.left, p.right) in known]
        missing = known - placed - {(p.left, p.right) for p in active}
        return [*wanted, *self._at_sink(sorted(missing))]

    def _at_sink(self, pairs: Iterable[tuple[int, int]]) -> list[JoinPart]:
        return [JoinPart(a, b, EVERYTHING, EVERYTHING, self.wiring.sink_node) for a, b in pairs]

    def _respect_links(self) -> None:
        """Takes parts off links that would carry too much."""
        arcs = self.catalog.topology.arcs
        if np.isfinite(arcs.bandwidth_mbps[: arcs.count]).any():
            respect_links(self.reoptimiser.joins, self.catalog.topology, self.row_bytes)

    def _move(self, events: Iterable[ChangeEvent]) -> None:
        """Coordinates that links changed, and nodes that are new."""
        catalog, joins = self.catalog, self.reoptimiser.joins
        assert catalog.space is not None
        extra = self.settings.extra_ms(catalog.topology)
        for name in touched(events):
            node = catalog.topology.find(name)
            if node is None or np.isnan(catalog.space.coordinates[node]).any():
                continue
            point, height = catalog.space.coordinates[node], float(catalog.space.heights[node] + extra[node])
            if node < joins.node_count and joins.alive[node]:
                self.reoptimiser.move_node(int(node), point, height)
            else:
                while joins.node_count < node:
                    self.reoptimiser.add_node(point, 0.0)
                if joins.node_count == node:
                    self.reoptimiser.add_node(point, 0.0, height)

    def _take_what_is_left(self, events: Iterable[ChangeEvent]) -> None:
        """Brings the capacities of nodes up to date: what others leave, nothing where no path leads to the sink."""
        catalog, joins = self.catalog, self.reoptimiser.joins
        topology, count = catalog.topology, joins.node_count
        left = np.asarray(topology.nodes.capacity_tps[:count], dtype=np.float64) - catalog.ledger.load_tps[:count]
        left[: len(self.booking.taken)] += self.booking.taken[:count]
        left[~topology.nodes.alive[:count]] = 0.0
        suspects = {int(n) for name in touched(events) if (n := topology.find(name)) is not None and n < count}
        suspects |= set(np.flatnonzero(joins.board.nodes["count"][:count]).tolist())
        for node in suspects:
            if not topology.reachable(NodeId(node), self.wiring.sink_node):
                left[node] = 0.0
        left = np.maximum(left, 0.0)
        before = joins.board.nodes["capacity"][:count]
        changed = np.flatnonzero(~np.isclose(left, before, rtol=1e-9, atol=1e-6) & joins.alive[:count])
        for node in changed.tolist():
            self._resize(NodeId(node), float(left[node]))

    def _resize(self, node: NodeId | None, capacity_tps: float) -> None:
        joins = self.reoptimiser.joins
        if node is not None and node < joins.node_count and joins.alive[node]:
            self.reoptimiser.set_capacity(int(node), capacity_tps)

    def book(self) -> None:
        """Notes in the ledger what the join takes, so that others know."""
        joins = self.reoptimiser.joins
        self.booking.charge(joins.board.nodes["load"][: joins.node_count])


def flow_of(shape: JoinShape, input_tps: Sequence[float]) -> float:
    """The rate of a join's results, from those of its inputs."""
    rate = output_rate_tps(shape.join, input_tps)
    for operator in shape.behind:
        rate = output_rate_tps(operator, [rate])
    return rate


def _ends(cells: range) -> tuple[int, int]:
    return cells.start, cells.stop


def touched(events: Iterable[ChangeEvent]) -> list[str]:
    """Nodes whose place may be another one now."""
    touched: dict[str, None] = {}
    for event in events:
        match event:
            case NodeAdded(node=node):
                touched[node.name] = None
            case LinkAdded(link=link):
                touched.update({link.source: None, link.target: None})
            case LinkRemoved(source=a, target=b):
                touched.update({a: None, b: None})
    return list(touched)
